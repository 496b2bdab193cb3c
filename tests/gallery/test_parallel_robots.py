"""The parallel robots of Han et al. 2020 and its companion paper.

NumPy references are multiplier equations in joint coordinates, and d'Alembert's principle at the end point.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import ukjax as uk

from ..helpers import multiplier_motion

TIGHT: Any = {"rtol": 1e-11, "atol": 1e-11}
L = 0.244
R = np.array([[0.1150, 0.1621], [0.0657, 0.1096], [0.0657, 0.1096]])
MASS = np.array([[1.2525, 1.0771], [1.3663, 0.4132], [1.3663, 0.4132]])
INERTIA = np.array([[0.0124, 0.0098], [0.0122, 0.0036], [0.0122, 0.0036]])
BASE = np.array([0.25j, 0.43, 0.4269 + 0.5005j])
START = np.array([[1.3015, -2.1752], [2.9105, -1.4593], [2.981, 1.8776]])
TURNS = np.array([[1.0, 0.0], [1.0, 1.0]])  # absolute angles of both links from qa, qb


def parts(i, q, v):
    """Return, for both centres and the end of chain i, Jacobian (2,) and bias acceleration, complex; and M, C q̇."""
    e, w = np.exp(1j * TURNS @ q), TURNS @ v
    arms = np.array([[R[i, 0], 0], [L, R[i, 1]], [L, L]])
    J = 1j * (arms * e) @ TURNS
    bias = -(arms * e) @ w**2
    M = TURNS.T @ np.diag(INERTIA[i]) @ TURNS
    load = np.zeros(2)
    for k in range(2):
        M = M + MASS[i, k] * (J[k][:, None] * J[k].conj()).real
        load += MASS[i, k] * (J[k].conj() * bias[k]).real
    return J, bias, M, load


def end(i, q):
    return BASE[i] + L * np.exp(1j * TURNS @ q).sum()


def pair(z):
    return np.stack([z.real, z.imag])


def joint_accelerations(q, v, tau):
    """Return q̈ (3, 2) from [M −Aᵀ; A 0] [q̈; λ] = [τ − C q̇; b] with the loops E_1 = E_2, E_1 = E_3."""
    K, known = np.zeros((10, 10)), np.zeros(10)
    for i in range(3):
        J, bias, M, load = parts(i, q[i], v[i])
        at = slice(2 * i, 2 * i + 2)
        K[at, at], known[at] = M, tau[i] - load
        for loop in range(2):
            sign = 1.0 if i == 0 else -1.0 if i == loop + 1 else 0.0
            rows = slice(6 + 2 * loop, 8 + 2 * loop)
            K[rows, at] += sign * pair(J[2])
            known[rows] -= sign * pair(bias[2])
    K[:6, 6:] = -K[6:, :6].T
    return np.linalg.solve(K, known)[:6].reshape(3, 2)


def inverse_kinematics(w, w_d, w_dd):
    """Return q, v, q̈ (3, 2) for the end point w, in the assembly of the start."""
    q, v, a = np.zeros((3, 2)), np.zeros((3, 2)), np.zeros((3, 2))
    for i in range(3):
        z = w - BASE[i]
        bend = np.sign(np.sin(START[i, 1])) * np.arccos((np.abs(z) ** 2 - 2 * L**2) / (2 * L**2))
        q[i] = np.angle(z) - bend / 2, bend
        q[i, 0] += 2 * np.pi * np.round((START[i, 0] - q[i, 0]) / (2 * np.pi))
        J = parts(i, q[i], v[i])[0]
        v[i] = np.linalg.solve(pair(J[2]), pair(w_d))
        J, bias, *_ = parts(i, q[i], v[i])
        a[i] = np.linalg.solve(pair(J[2]), pair(w_dd - bias[2]))
    return q, v, a


def least_torques(q, v, a):
    """Return the least-norm τ of Σ J⁻ᵀ (M q̈ + C q̇ − τ) = 0, for virtual displacements of the end."""
    needed, motors = np.zeros(2), np.zeros((2, 3))
    for i in range(3):
        J, _, M, load = parts(i, q[i], v[i])
        pull = np.linalg.inv(pair(J[2])).T
        needed += pull @ (M @ a[i] + load)
        motors[:, i] = pull[:, 0]
    return np.linalg.pinv(motors) @ needed


@pytest.fixture(scope="module")
def free():
    robot = uk.systems.ParallelRobot()
    q0, v0 = uk.project(robot, 0.0, *robot.start())
    return robot, uk.simulate(robot, q0, v0, jnp.linspace(0, 10, 101), **TIGHT)


@pytest.fixture(scope="module")
def manipulator():
    robot = uk.systems.ParallelManipulator()
    q0, v0 = uk.project(robot, 0.0, *robot.start())
    return robot, uk.simulate(robot, q0, v0, jnp.linspace(0, 10, 101), **TIGHT)


@pytest.mark.slow
def test_matrices_match_derivatives_of_the_energy_of_equation_10(rng):
    """Kinetic energy from velocities of the centres, differentiated by JAX."""
    robot = uk.systems.ParallelRobot()

    def kinetic(t, q, v):
        def centres(q):
            qa, qb, x, y = q.reshape(3, 4).T
            first = jnp.stack([x + R[:, 0] * jnp.cos(qa), y + R[:, 0] * jnp.sin(qa)])
            second = jnp.stack(
                [
                    x + L * jnp.cos(qa) + R[:, 1] * jnp.cos(qa + qb),
                    y + L * jnp.sin(qa) + R[:, 1] * jnp.sin(qa + qb),
                ]
            )
            return jnp.stack([first, second])

        speed = jnp.sum(jax.jvp(centres, (q,), (v,))[1] ** 2, axis=1)
        va, vb = v.reshape(3, 4).T[:2]
        return jnp.sum(MASS.T * speed) / 2 + jnp.sum(INERTIA[:, 0] * va**2 + INERTIA[:, 1] * (va + vb) ** 2) / 2

    q, v = jnp.asarray(rng.normal(size=12)), jnp.asarray(rng.normal(size=12))
    M, Q = jax.jit(lambda q, v: uk.Lagrangian(kinetic).terms(jnp.zeros(()), q, v))(q, v)
    passive = jax.jit(lambda q, v: robot.passive(0.0, q, v))(q, v)
    np.testing.assert_allclose(passive.M, M, rtol=0, atol=1e-14)
    np.testing.assert_allclose(passive.Q, Q, rtol=0, atol=1e-13)


def test_printed_start_closes_the_loops_to_its_digits():
    ends = np.array([end(i, START[i]) for i in range(3)])
    np.testing.assert_allclose(ends, 0.2216 + 0.2981j, rtol=0, atol=1e-4)
    assert np.abs(ends - ends[0]).max() < 4e-5


def test_free_motion_matches_the_multiplier_form(free):
    _, motion = free
    joints = lambda x: np.asarray(x).reshape(-1, 3, 4)[:, :, :2]

    def rates(t, y):
        q, v = y[:6].reshape(3, 2), y[6:].reshape(3, 2)
        tau = np.zeros((3, 2))
        tau[0, 0] = 0.1 * np.cos(np.pi * t)
        return np.concatenate([y[6:], joint_accelerations(q, v, tau).ravel()])

    y0 = np.concatenate([joints(motion.q)[0].ravel(), np.zeros(6)])
    y = solve_ivp(rates, (0, 10), y0, "DOP853", np.asarray(motion.t), rtol=1e-11, atol=1e-11).y.T
    np.testing.assert_allclose(joints(motion.q).reshape(-1, 6), y[:, :6], rtol=0, atol=1e-8)
    assert np.abs(y[:, :6] - y[0, :6]).max() > 0.3
    np.testing.assert_allclose(motion.control[:, 0], 0.1 * np.cos(np.pi * np.asarray(motion.t)), rtol=0, atol=1e-14)


def test_run_command_parallel_robot(check_run):
    check_run("parallel_robot")


def test_base_forces_match_newton(free):
    """The constraint force on the base of a chain is the total force on the chain: Σ m a of its two centres."""
    _, motion = free
    for sample in (0, 37, 100):
        q, v, a = (np.asarray(x[sample]).reshape(3, 4) for x in (motion.q, motion.v, motion.acceleration))
        force = np.asarray(motion.constraint_force[sample]).reshape(3, 4)
        for i in range(3):
            J, bias, *_ = parts(i, q[i, :2], v[i, :2])
            total = sum(MASS[i, k] * (J[k] @ a[i, :2] + bias[k]) for k in range(2))
            np.testing.assert_allclose(force[i, 2:], pair(total), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("which", "rows"), [("free", 10), pytest.param("manipulator", 6, marks=pytest.mark.slow)])
def test_loops_bases_and_path_are_satisfied_to_rounding(which, rows, request):
    _, motion = request.getfixturevalue(which)
    assert np.abs(motion.residual).max() <= 1e-12
    assert np.abs(motion.velocity_residual).max() <= 1e-12
    assert motion.residual.shape[1] == rows


def line(t):
    """Return position, velocity and acceleration of the end point, from the end of chain 1 at the printed start."""
    begin = end(0, START[0])
    return begin + 0.01 * (np.cos(t) - 1), -0.01 * np.sin(t), -0.01 * np.cos(t)


@pytest.mark.slow
def test_manipulator_tracks_the_line_with_least_norm_torques(manipulator):
    _, motion = manipulator
    joints = lambda x: np.asarray(x).reshape(len(motion.t), 3, -1)[:, :, :2]
    for sample in range(0, 101, 10):
        q, v, a = inverse_kinematics(*line(float(motion.t[sample])))
        np.testing.assert_allclose(joints(motion.q)[sample], q, rtol=0, atol=1e-11)
        np.testing.assert_allclose(joints(motion.v)[sample], v, rtol=0, atol=1e-11)
        np.testing.assert_allclose(motion.control[sample], least_torques(q, v, a), rtol=1e-7, atol=1e-13)


@pytest.mark.slow
def test_run_command_parallel_manipulator(check_run):
    check_run("parallel_manipulator")


@pytest.mark.slow
def test_tracking_robot_accelerates_along_the_line_by_least_norm_torques():
    """At exact states, with bases at rest; accelerations by the multiplier form."""
    robot = uk.systems.ParallelRobotTracking()
    with_bases = lambda x, base=0 * START: np.hstack([x, base]).ravel()
    at = jax.jit(lambda *state: (robot.passive(*state), robot.command(*state).u))
    for t in (0.0, 2.5, 7.0):
        q, v, a = inverse_kinematics(*line(t))
        terms, torques = at(t, with_bases(q, pair(BASE).T), with_bases(v))
        np.testing.assert_allclose(torques, least_torques(q, v, a), rtol=1e-7, atol=1e-13)
        M, Q, A, b = (np.array(x) for x in (terms.M, terms.Q, terms.A, terms.b))
        Q[::4] += torques
        np.testing.assert_allclose(multiplier_motion(M, Q, A, b), with_bases(a), rtol=0, atol=1e-11)


@pytest.mark.slow
def test_printed_cascade_opens_the_loops_by_4_6_mm_in_a_second():
    robot = uk.systems.ParallelRobotTracking()
    cascade = uk.simulate(robot.published()["printed_cascade"], *robot.start(), jnp.linspace(0, 1, 11), drift="none")
    assert np.abs(cascade.position_residual[-1]).max() == pytest.approx(4.6e-3, abs=5e-5)
    assert np.abs(cascade.acceleration_residual[0]).max() == pytest.approx(0.01, abs=1e-3)


@pytest.mark.slow
def test_published_uk_force_also_acts_on_passive_joints(manipulator):
    robot, motion = manipulator
    published = robot.published()["uk_force"]
    force = np.asarray(uk.constrained_motion(published(motion.t[0], motion.q[0], motion.v[0])).constraint_force)
    q, v, a = inverse_kinematics(*line(0.0))
    exact = np.concatenate([M @ a[i] + load for i in range(3) for *_, M, load in [parts(i, q[i], v[i])]])
    np.testing.assert_allclose(force, exact, rtol=1e-7)
    assert np.abs(force[1::2]).max() > 0.3 * np.abs(force[::2]).max()
