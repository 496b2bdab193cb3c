"""The systems of Zhao et al. 2018, against closed forms and derivations in NumPy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import ukjax as uk

TIGHT: Any = {"rtol": 1e-11, "atol": 1e-11}


def run(mechanism, ts, **how):
    q0, v0 = uk.project(mechanism, ts[0], *mechanism.start())
    return uk.simulate(mechanism, q0, v0, ts, **TIGHT, **how)


# --- projectile ----------------------------------------------------------------------------------------------------


def test_projectile_in_both_coordinates_matches_the_parabola():
    ts = jnp.linspace(0, 1.4, 15)
    flat, polar = (run(uk.systems.Projectile(polar=choice), ts) for choice in (False, True))
    t = np.asarray(ts)
    exact = np.stack([5 * t, 10 - 9.81 * t**2 / 2], axis=1)
    r, theta = polar.q.T
    np.testing.assert_allclose(flat.q, exact, rtol=0, atol=1e-10)
    np.testing.assert_allclose(jnp.stack([r * jnp.cos(theta), r * jnp.sin(theta)], axis=1), exact, rtol=0, atol=1e-9)


def test_run_command_projectile(check_run):
    check_run("projectile", 15)


def test_polar_mass_matrix_and_force_match_derivatives_of_energies(rng):
    projectile = uk.systems.Projectile(m=1.7, polar=True)
    energies = uk.Lagrangian(
        lambda t, q, v: 1.7 * (v[0] ** 2 + (q[0] * v[1]) ** 2) / 2, lambda t, q: 1.7 * 9.81 * q[0] * jnp.sin(q[1])
    )
    q, v = jnp.asarray(rng.normal(size=2)), jnp.asarray(rng.normal(size=2))
    M, Q = energies.terms(jnp.zeros(()), q, v)
    np.testing.assert_allclose(projectile(0.0, q, v).M, M, rtol=0, atol=1e-13)
    np.testing.assert_allclose(projectile(0.0, q, v).Q, Q, rtol=0, atol=1e-12)


# --- spiral --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spiral():
    particle = uk.systems.SpiralParticle()
    return particle, run(particle, jnp.linspace(0, 40, 81))


def test_particle_follows_the_spiral_to_rounding(spiral):
    particle, motion = spiral
    np.testing.assert_allclose(motion.q, jax.vmap(particle.reference)(motion.t), rtol=0, atol=1e-12)
    errors = jax.vmap(particle.errors)(motion.t, motion.q, motion.v)
    assert max(float(error.max()) for error in errors) < 1e-13


def test_run_command_spiral_particle(check_run):
    check_run("spiral_particle", 81)


def test_force_on_the_spiral_matches_newton(spiral):
    """On the spiral x + iy = exp((growth + i) θ) with θ = 30 − t: force by acceleration and gravity, torque r × F."""
    _, motion = spiral
    w = (0.1 + 1j) * (30 - np.asarray(motion.t))
    z, z_dd = np.exp(w), (0.1 + 1j) ** 2 * np.exp(w)
    F = z_dd + 9.81j
    radial = (F * np.conj(z)).real / np.abs(z)
    torque = (F * np.conj(z)).imag
    np.testing.assert_allclose(motion.constraint_force, np.stack([radial, torque], axis=1), rtol=1e-10, atol=1e-10)


def test_unit_mass_matrix_gives_the_motion_but_not_the_force(spiral):
    particle, motion = spiral
    wrong = particle.published()["unit_mass_matrix"]
    for i in (0, 40, 80):
        state = motion.t[i], motion.q[i], motion.v[i]
        printed = uk.constrained_motion(wrong(*state))
        np.testing.assert_allclose(printed.acceleration, motion.acceleration[i], rtol=0, atol=1e-12)
        np.testing.assert_allclose(
            printed.constraint_force * jnp.stack([jnp.ones(()), motion.q[i, 0] ** 2]),
            motion.constraint_force[i],
            rtol=1e-10,
            atol=1e-10,
        )


def test_with_one_row_the_unit_mass_matrix_gives_a_wrong_motion():
    """Row r = exp(0.1 θ) alone, at θ = 0.3, θ̇ = −1. The correct result is that in Cartesian coordinates."""
    particle = uk.systems.SpiralParticle()
    theta, r = 0.3, np.exp(0.03)
    state = 0.0, np.array([r, theta]), np.array([-0.1 * r, -1.0])
    seen = []
    for version in (particle.published()["unit_mass_matrix"], particle):
        terms = version(*state)
        seen.append(uk.constrained_motion(uk.Terms(terms.M, terms.Q, terms.A[:1], terms.b[:1])).acceleration)
    np.testing.assert_allclose(seen[0], [-0.957168, -9.388790], rtol=0, atol=5e-7)
    np.testing.assert_allclose(seen[1], [-0.956610, -9.383374], rtol=0, atol=5e-7)

    # Cartesian: on the curve z = exp((0.1 + i) θ), the tangential component of gravity determines θ̈.
    z1 = (0.1 + 1j) * np.exp((0.1 + 1j) * theta)
    z2 = (0.1 + 1j) * z1
    theta_dd = ((-9.81j - z2) * np.conj(z1)).real / np.abs(z1) ** 2
    assert float(seen[1][1]) == pytest.approx(theta_dd, abs=1e-11)


# --- swarm ---------------------------------------------------------------------------------------------------------


def swarm_rates(agents, near, P, m):
    """Return d(q, v)/dt of the swarm with β̇ = −β/P, pair by pair in NumPy."""

    def rule(q):
        x = q.reshape(agents, 2)
        gradient = np.zeros_like(x)
        for i in range(agents):
            for j in range(agents):
                if i != j:
                    d = x[i] - x[j]
                    gradient[i] += d - near * d / np.linalg.norm(d)
        return gradient.reshape(-1)

    def rates(t, y):
        q, v = y[: 2 * agents], y[2 * agents :]
        x, w = q.reshape(agents, 2), v.reshape(agents, 2)
        along = np.zeros_like(x)
        for i in range(agents):
            for j in range(agents):
                if i != j:
                    d, e = x[i] - x[j], w[i] - w[j]
                    size = np.linalg.norm(d)
                    along[i] += e * (1 - near / size) + near * d * (d @ e) / size**3
        beta = v + rule(q)
        return np.concatenate([v, -along.reshape(-1) - beta / P])

    return rule, rates


def test_swarm_follows_its_rule_without_collisions():
    agents = 3
    swarm = uk.systems.Swarm(agents=agents)
    ts = jnp.linspace(0, 5, 51)
    motion = run(swarm, ts)
    rule, rates = swarm_rates(agents, 0.5, 0.5, 2.0)
    q0, v0 = (np.asarray(x) for x in swarm.start())
    y = solve_ivp(rates, (0, 5), np.concatenate([q0, v0]), "DOP853", np.asarray(ts), rtol=1e-13, atol=1e-13).y.T
    np.testing.assert_allclose(motion.q, y[:, : 2 * agents], rtol=0, atol=1e-8)
    forces = 2.0 * np.stack([rates(0.0, row)[2 * agents :] for row in y])
    np.testing.assert_allclose(np.asarray(motion.control), forces, rtol=1e-7, atol=1e-7)

    beta = np.linalg.norm(np.asarray(motion.task_residual), axis=1)
    assert beta[0] > 10 and beta[-1] < 0.01
    np.testing.assert_allclose(beta, beta[0] * np.exp(-2 * np.asarray(ts)), rtol=1e-6)
    x = np.asarray(motion.q).reshape(-1, agents, 2)
    i, j = np.triu_indices(agents, 1)
    assert np.linalg.norm(x[:, i] - x[:, j], axis=2).min() > 0.1


def test_swarm_without_agents_raises():
    with pytest.raises(ValueError, match="agents must be a whole number from 1 on, got 0"):
        uk.systems.Swarm(agents=0)


# --- flexible joints -----------------------------------------------------------------------------------------------


def links_under_eq_72(t, y, P=0.2):
    """Return d(q_l, v_l)/dt of the links, with u of eq. 72 as K q_m and all numbers of section 8.3."""
    q, v = y[:2], y[2:]
    c, s = np.cos(q[1]), np.sin(q[1])
    D = np.array([[1 * (1 + 0.25 + c) + 0.25 + 2, 0.25 + 0.5 * c + 1], [0.25 + 0.5 * c + 1, 1.25]])
    C = 0.5 * s * np.array([[-v[1], -(v[0] + v[1])], [v[0], 0]])
    G = 9.81 * np.array([1.5 * np.sin(q[0]) + 0.5 * np.sin(q.sum()), 0.5 * np.sin(q.sum())])
    A = np.array([[1.0, 1.0]])
    Di = np.linalg.inv(D)
    load = C @ v + G + q
    u = A.T @ np.linalg.inv(A @ Di @ A.T) @ (A @ Di @ load) - D @ A.T @ (A @ v) / 2 / P
    return np.concatenate([v, Di @ (u - load)]), u


@pytest.fixture(scope="module")
def runtime_rows():
    return run(uk.systems.FlexibleJointManipulator(), jnp.linspace(0, 5, 51))


@pytest.mark.slow
def test_links_match_motion_under_equation_72(runtime_rows):
    motion = runtime_rows
    y = solve_ivp(
        lambda t, y: links_under_eq_72(t, y)[0],
        (0, 5),
        [0, 0, 1, -0.1],
        "DOP853",
        np.asarray(motion.t),
        rtol=1e-13,
        atol=1e-13,
    ).y.T
    np.testing.assert_allclose(motion.q[:, 1::2], y[:, :2], rtol=0, atol=1e-8)
    np.testing.assert_allclose(motion.v[:, 1::2], y[:, 2:], rtol=0, atol=1e-7)
    motors = np.stack([links_under_eq_72(0.0, row)[1] for row in y])  # K = 1
    np.testing.assert_allclose(motion.q[:, ::2], motors, rtol=0, atol=1e-7)


@pytest.mark.slow
def test_run_command_flexible_joint_manipulator(check_run):
    check_run("flexible_joint_manipulator", 51)


@pytest.mark.slow
def test_motor_torque_matches_inverse_dynamics_of_the_motors(runtime_rows):
    """J q̈_m = u + K (q_l − q_m): the NumPy law along a NumPy motion, at Chebyshev points, differentiated twice."""
    motion = runtime_rows
    reach, degree = 0.15, 11
    points = -np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))
    for i in (5, 20, 40):
        t = float(motion.t[i])
        y = solve_ivp(
            lambda t, y: links_under_eq_72(t, y)[0],
            (0, t + reach),
            [0, 0, 1, -0.1],
            "DOP853",
            np.append(t + reach * points, t + reach),
            rtol=1e-13,
            atol=1e-14,
        ).y.T[:-1]
        goal = np.stack([links_under_eq_72(0.0, row)[1] for row in y])
        curves = [np.polynomial.Chebyshev.fit(reach * points, goal[:, k], degree) for k in range(2)]
        second = np.array([curve.deriv(2)(0.0) for curve in curves])
        spring = np.asarray(motion.q[i])[1::2] - [curve(0.0) for curve in curves]
        np.testing.assert_allclose(np.asarray(motion.control)[i], second - spring, rtol=1e-7, atol=1e-6)


@pytest.mark.slow
def test_error_of_the_rule_decays_within_two_seconds(runtime_rows):
    motion = runtime_rows
    beta = np.asarray(motion.v[:, 1] + motion.v[:, 3])
    np.testing.assert_allclose(beta, 0.9 * np.exp(-5 * np.asarray(motion.t)), rtol=0, atol=1e-7)
    assert np.abs(beta[20:]).max() < 1e-4


def test_equation_72_as_motor_torque_does_not_follow_the_rule():
    arm = uk.systems.FlexibleJointManipulator()
    q0, v0 = arm.start()
    printed = uk.simulate(arm.published()["torque"], q0, v0, jnp.linspace(0, 5, 51), drift="none")
    assert np.abs(printed.v[20:, 1] + printed.v[20:, 3]).max() > 1
