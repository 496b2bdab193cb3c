"""Knife edge, sleigh, rolling disk and body with a quaternion, against closed forms and equations of Euler and Kane."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import ukjax as uk

close = functools.partial(np.testing.assert_allclose, rtol=0)  # the default rtol, 1e-7, would hide an atol of 1e-9
TIGHT: Any = {"rtol": 1e-11, "atol": 1e-11}


def run(mechanism, start=None, end=None):
    """Always simulate 101 samples, so that runs of one mechanism share a compiled program."""
    q0, v0 = uk.project(mechanism, 0.0, *(start or mechanism.start()))
    return uk.simulate(mechanism, q0, v0, jnp.linspace(0, end or mechanism.end, 101), **TIGHT)


def test_knife_edge_matches_closed_form():
    edge = uk.systems.KnifeEdge()
    motion = run(edge)
    close(motion.q[-1, :2], [0.0478685208, 3.8432431352], atol=1e-9)
    close(motion.q, jax.vmap(edge.reference)(motion.t), atol=1e-9)
    close(motion.residual, 0, atol=1e-13)
    close(np.asarray(motion.energy), 0.3 * 4 / 2, atol=1e-8)
    # Force of the edge by Newton's law across it: m (ẍ sin θ − ÿ cos θ) − m g sin(slope) sin θ, in closed form.
    t = np.asarray(motion.t)
    k = 9.81 * 0.5 / (2 * 4)
    x_dd, y_dd = 8 * k * np.cos(4 * t), 8 * k * np.sin(4 * t)
    pull = (x_dd - 9.81 * 0.5) * np.sin(2 * t) - y_dd * np.cos(2 * t)
    forces = np.stack([pull * np.sin(2 * t), -pull * np.cos(2 * t), 0 * t], axis=1)
    close(motion.constraint_force, forces, atol=1e-8)


@pytest.fixture(scope="module")
def sleigh():
    return run(uk.systems.ChaplyginSleigh())


def test_sleigh_matches_closed_form(sleigh):
    t, theta, (vx, vy, w) = np.asarray(sleigh.t), np.asarray(sleigh.q[:, 2]), np.asarray(sleigh.v).T
    I = 0.5 + 0.09
    V = np.sqrt(I)
    k = 0.3 * V / I
    close(vx * np.cos(theta) + vy * np.sin(theta), V * np.tanh(k * t), atol=1e-9)
    close(w, V / np.sqrt(I) / np.cosh(k * t), atol=1e-9)
    close(theta, 2 * V / np.sqrt(I) / k * np.arctan(np.tanh(k * t / 2)), atol=1e-9)
    assert float(theta[-1]) == pytest.approx(3.3001642583, abs=1e-9)
    close(sleigh.residual, 0, atol=1e-13)


def test_sleigh_accelerations_match_kane(rng):
    """Generalised speeds: forward speed of the edge and yaw rate, which satisfy the constraint of the edge."""
    import sympy as sm
    from sympy.physics import mechanics as me

    t, m, J, a = me.dynamicsymbols._t, 1.3, 0.7, 0.4
    x, y, theta, u, w = me.dynamicsymbols("x y theta u w")
    ground = me.ReferenceFrame("N")
    body = ground.orientnew("B", "Axis", (theta, ground.z))
    body.set_ang_vel(ground, w * ground.z)
    centre = me.Point("C")
    centre.set_vel(ground, u * body.x + a * w * body.y)
    inertia = me.inertia(body, 0, 0, J)
    rigid = me.RigidBody("sleigh", centre, body, m, (inertia, centre))
    kinematics = [
        x.diff(t) - u * sm.cos(theta) + a * w * sm.sin(theta),
        y.diff(t) - u * sm.sin(theta) - a * w * sm.cos(theta),
        theta.diff(t) - w,
    ]
    kane = me.KanesMethod(ground, [x, y, theta], [u, w], kinematics)
    kane.kanes_equations([rigid], [])
    rates = sm.lambdify((theta, u, w), kane.mass_matrix.LUsolve(kane.forcing))

    mechanism = uk.systems.ChaplyginSleigh(m=m, J=J, a=a)
    for _ in range(3):
        th, speed, turn = rng.normal(size=3)
        s, c = np.sin(th), np.cos(th)
        v = np.array([speed * c - a * turn * s, speed * s + a * turn * c, turn])
        u_dot, w_dot = np.asarray(rates(th, speed, turn), float).ravel()
        expected = [
            u_dot * c - a * w_dot * s - turn * v[1],
            u_dot * s + a * w_dot * c + turn * v[0],
            w_dot,
        ]
        found = uk.constrained_motion(mechanism(0.0, np.array([0.0, 0.0, th]), v)).acceleration
        close(found, expected, rtol=1e-12, atol=1e-13)


# --- rolling disk --------------------------------------------------------------------------------------------------


def euler_disk(t, y, m=1.0, r=0.2, g=9.81):
    """d(θ, ω1, ω2, ω3)/dt in the frame (level, u, n): angular momentum about the centre, contact force eliminated."""
    theta, w1, w2, w3 = y
    A, C = m * r**2 / 4, m * r**2 / 2
    yaw = w2 / np.tan(theta)  # ψ̇ cos θ
    w1_dot = (A * yaw * w2 - (C + m * r**2) * w2 * w3 - m * g * r * np.cos(theta)) / (A + m * r**2)
    return [w1, w1_dot, (C * w1 * w3 - A * yaw * w1) / A, m * r**2 * w1 * w2 / (C + m * r**2)]


def spins(motion):
    theta, (yaw, rate, spin) = np.asarray(motion.q[:, 4]), np.asarray(motion.v[:, 3:]).T
    return np.stack([theta, rate, yaw * np.sin(theta), spin + yaw * np.cos(theta)])


@pytest.fixture(scope="module")
def disk():
    return run(uk.systems.RollingDisk())


def test_disk_matches_euler_equations(disk):
    found = spins(disk)
    exact = solve_ivp(euler_disk, (0, 5), found[:, 0], "DOP853", np.asarray(disk.t), rtol=1e-13, atol=1e-13).y
    close(found, exact, atol=1e-8)
    assert np.ptp(exact[0]) > 0.05


def test_disk_conserves_energy_and_satisfies_its_constraints(disk):
    close(disk.energy, disk.energy[0], atol=1e-9)
    close(disk.residual, 0, atol=1e-12)
    close(disk.velocity_residual, 0, atol=1e-12)
    assert disk.residual.shape[1] == disk.velocity_residual.shape[1] == 3


def test_tilt_and_forces_of_a_steadily_rolling_disk():
    motion = run(uk.systems.RollingDisk(wobble=0.0))
    close(motion.q[:, 4], 1.2, atol=1e-9)
    # The centre moves on a circle at the speed r ω₃: the table carries the weight, with an inward force m W r ω₃.
    W, s, c = 1.5, np.sin(1.2), np.cos(1.2)
    axial = (0.01 * W**2 * s * c - 9.81 * 0.2 * c) / (0.06 * W * s)
    x, y, z = np.asarray(motion.constraint_force[:, :3]).T
    close(z, 9.81, atol=1e-9)
    close(np.hypot(x, y), W * 0.2 * abs(axial), atol=1e-9)


def test_straight_rolling_is_stable_above_the_critical_spin():
    """ω² > g/(3r) for a thin disk: a disturbance of 1e-4 stays small slightly above this, and grows slightly below."""
    model = uk.systems.RollingDisk()
    lean = {}
    for share in (1.02, 0.98):
        spin = share * np.sqrt(9.81 / (3 * 0.2))
        q0, v0 = [0.0, 0.0, 0.2, 0.0, np.pi / 2, 0.0], [-0.2 * spin, 0.0, 0.0, 0.0, 1e-4, spin]
        motion = run(model, (jnp.array(q0), jnp.array(v0)), 8.0)
        lean[share] = np.abs(np.asarray(motion.q[:, 4]) - np.pi / 2).max()
    assert lean[1.02] < 5e-4 < 2e-3 < lean[0.98]


# --- quaternions ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def body():
    mechanism = uk.systems.RigidBody()
    return mechanism, run(mechanism)


def test_tumbling_body_matches_euler_equations(body):
    mechanism, motion = body
    J = np.array([1.0, 2.0, 3.0])
    euler = lambda t, w: np.cross(J * w, w) / J
    exact = solve_ivp(euler, (0, 10), [0.05, 2, 0], "DOP853", np.asarray(motion.t), rtol=1e-13, atol=1e-13).y.T
    omega = np.asarray(jax.vmap(mechanism.angular_velocity)(motion.q, motion.v))
    close(omega, exact, atol=1e-8)
    assert exact[:, 1].min() < -1.9  # the body turned over
    close(motion.energy, motion.energy[0], rtol=1e-8)
    close(np.linalg.norm(J * omega, axis=1), np.linalg.norm(J * exact[0]), rtol=1e-8)
    close(np.linalg.norm(motion.q, axis=1), 1, atol=1e-13)


def test_acceleration_with_a_singular_mass_matrix_matches_closed_form(body, rng):
    """ü = ½ Eᵀ J⁻¹ (J ω × ω) − ¼ |ω|² u, also for a body with additional inertia of |u|, whose M is regular."""
    mechanism, _ = body
    J = np.array([1.0, 2.0, 3.0])
    u = rng.normal(size=4)
    u /= np.linalg.norm(u)
    v = rng.normal(size=4)
    v -= u * (u @ v)
    terms = mechanism(0.0, u, v)
    assert np.linalg.matrix_rank(np.asarray(terms.M)) == 3
    u0, u1, u2, u3 = u
    E = np.array([[-u1, u0, u3, -u2], [-u2, -u3, u0, u1], [-u3, u2, -u1, u0]])
    omega = 2 * E @ v
    exact = E.T @ (np.cross(J * omega, omega) / J) / 2 - omega @ omega * u / 4
    found = uk.constrained_motion(terms)
    close(found.acceleration, exact, atol=1e-12)
    regular = uk.Lagrangian(lambda t, q, v: mechanism.kinetic(t, q, v) + 2 * 25.0 * (q @ v) ** 2)
    terms = uk.System(regular, mechanism.constraints)(0.0, u, v)
    assert np.linalg.matrix_rank(np.asarray(terms.M)) == 4
    close(uk.constrained_motion(terms).acceleration, exact, atol=1e-12)


@pytest.mark.parametrize("name", ("knife_edge", "chaplygin_sleigh", "rolling_disk", "rigid_body"))
def test_run_command(name, check_run):
    check_run(name)
