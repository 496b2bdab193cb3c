"""The systems of Liu et al. 2015, against closed forms and a derivation in NumPy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk

TIGHT: Any = {"rtol": 1e-11, "atol": 1e-11}
B = np.array(  # eq. 70
    [
        [1, -1, 0, 0, 0, 0],
        [0, 1, -1, 0, 0, 0],
        [0, 0, 1, 1, 0, 0],
        [0, 0, 0, -1, 1, 0],
        [0, 0, 0, 0, -1, 1],
    ],
    dtype=float,
)


def links(theta, v):
    """Return M, Q of the open chain and A, b of loop and task, from positions of the centres as complex numbers.

    Unit links, masses and moments of inertia; g = 9.8.
    """
    e = np.exp(1j * theta)
    M, Q = np.eye(5), np.zeros(5)
    for link in range(5):
        reach = np.array([1.0] * link + [0.5] + [0.0] * (4 - link))
        J = 1j * reach * e  # derivatives of the position of the centre
        bias = -np.sum(reach * e * v**2)
        M += (J[:, None] * J.conj()).real
        Q -= (J.conj() * (bias + 9.8j)).real
    rows = {}
    for name, reach in (("loop", np.ones(5)), ("load", np.array([1, 1, 0.5, 0, 0]))):
        J, bias = 1j * reach * e, -np.sum(reach * e * v**2)
        rows[name] = np.stack([J.real, J.imag]), -np.array([bias.real, bias.imag])
    return M, Q, rows


def task_rows(t, rows):
    A, b = rows["load"]
    return np.vstack([A, [0, 0, 1, 0, 0]]), np.append(b + [0, np.cos(t) / 2], 0)


def exact_control(t, theta, v, acceleration):
    """Return the least-norm u of Nᵀ (M q̈ − Q − B u) = 0 (d'Alembert), where N spans the motions that the loop
    allows."""
    M, Q, rows = links(theta, v)
    N = np.linalg.svd(rows["loop"][0])[2][2:].T
    return np.linalg.pinv(N.T @ B) @ N.T @ (M @ acceleration - Q)


@pytest.fixture(scope="module")
def robots():
    return uk.systems.CoordinatedRobots()


@pytest.fixture(scope="module")
def motion(robots):
    q0, v0 = uk.project(robots, 0.0, *robots.start())
    return uk.simulate(robots, q0, v0, jnp.linspace(0, 10, 101), **TIGHT)


def test_terms_match_derivation_from_centres(robots, rng):
    at = jax.jit(lambda t, q, v: (robots.passive(t, q, v), robots.lift.rows(t, q, v)))
    for _ in range(3):
        t, q, v = rng.uniform(0, 6), rng.normal(size=5), rng.normal(size=5)
        terms, own = at(t, q, v)
        M, Q, rows = links(q, v)
        np.testing.assert_allclose(terms.M, M, rtol=0, atol=1e-13)
        np.testing.assert_allclose(terms.Q, Q, rtol=0, atol=1e-12)
        np.testing.assert_allclose(terms.A, rows["loop"][0], rtol=0, atol=1e-14)
        np.testing.assert_allclose(terms.b, rows["loop"][1], rtol=0, atol=1e-13)
        A, b = task_rows(t, rows)
        np.testing.assert_allclose(own[0], A, rtol=0, atol=1e-14)
        np.testing.assert_allclose(own[1], b, rtol=0, atol=1e-13)


@pytest.mark.slow
def test_motion_matches_inverse_kinematics_of_the_load(robots, motion):
    """The end of the first link, as a complex number: a triangle with sides 1 and 1 over the left end of the load."""
    t = np.asarray(motion.t)
    w = 1 + 0.5j * (1 - np.cos(t))
    elbow = w / 2 + 1j * w / np.abs(w) * np.sqrt(1 - np.abs(w) ** 2 / 4)
    first, second = np.angle(elbow), np.angle(w - elbow)
    np.testing.assert_allclose(motion.q, np.stack([first, second, 0 * t, -second, -first], axis=1), rtol=0, atol=1e-12)
    np.testing.assert_allclose(motion.q, jax.vmap(robots.reference)(motion.t), rtol=0, atol=1e-12)


@pytest.mark.slow
def test_run_command_coordinated_robots(check_run):
    check_run("coordinated_robots")


@pytest.mark.slow
def test_loop_and_task_are_satisfied_to_rounding(motion):
    assert np.abs(motion.residual).max() <= 1e-12
    assert np.abs(motion.acceleration_residual).max() <= 1e-12
    assert motion.residual.shape == (101, 5)
    assert (np.asarray(motion.control_rank) == 3).all()


@pytest.mark.slow
def test_torques_have_least_norm_by_d_alembert(motion):
    exact = np.stack(
        [
            exact_control(*map(np.asarray, x))
            for x in zip(motion.t, motion.q, motion.v, motion.acceleration, strict=True)
        ]
    )
    np.testing.assert_allclose(motion.control, exact, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_torques_are_mirror_symmetric(motion):
    u = np.asarray(motion.control)
    np.testing.assert_allclose(u[:, 3:], -u[:, 2::-1], rtol=0, atol=1e-11)
    assert np.abs(u).max() > 5


@pytest.mark.slow
def test_loop_force_matches_inverse_dynamics(motion):
    for i in range(0, 101, 20):
        M, Q, _ = links(np.asarray(motion.q[i]), np.asarray(motion.v[i]))
        left = M @ np.asarray(motion.acceleration[i]) - Q - B @ np.asarray(motion.control[i])
        np.testing.assert_allclose(motion.constraint_force[i], left, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_printed_law_opens_the_loop(robots):
    """Torques of eq. 71 as printed, at t = 0, and the residual of the loop, in NumPy."""
    q, v = (np.asarray(x) for x in robots.start())
    M, Q, rows = links(q, v)
    A_h, b_h = rows["loop"]
    A, b = task_rows(0.0, rows)
    Mi = np.linalg.inv(M)
    Qc = A_h.T @ np.linalg.solve(A_h @ Mi @ A_h.T, b_h - A_h @ Mi @ Q)
    u = np.linalg.pinv(A @ Mi @ B) @ (b - A @ Mi @ (Q + Qc))
    np.testing.assert_allclose(u, [11.53, 4.40, -8.78, 12.63, 1.10, -6.59], rtol=0, atol=5e-3)
    opening = np.abs(A_h @ Mi @ (Q + Qc + B @ u) - b_h).max()
    assert opening == pytest.approx(3.44, abs=5e-3)

    printed = robots.published()["printed_law"]
    q0, v0 = robots.start()
    run = uk.simulate(printed, q0, v0, jnp.linspace(0, 0.4, 5), drift="none")
    np.testing.assert_allclose(np.asarray(run.control)[0], u, rtol=0, atol=1e-9)
    assert np.abs(run.acceleration_residual[0]).max() == pytest.approx(opening, abs=1e-9)
    assert np.abs(run.position_residual[-1, :2]).max() > 0.1


def test_two_masses_match_equation_47():
    masses = uk.systems.TwoMassSpring(m1=1.5, m2=2.5, k=4.0, l=0.8)
    q0, v0 = uk.project(masses, 0.0, *masses.start())
    motion = uk.simulate(masses, q0, v0, jnp.linspace(0, 2, 21), **TIGHT)
    np.testing.assert_allclose(np.asarray(motion.control), -(1 + 1.5 / 2.5) * 4.0 * 0.8, rtol=0, atol=1e-12)
    x1 = -4.0 * 0.8 / 2.5 * np.asarray(motion.t) ** 2 / 2
    np.testing.assert_allclose(motion.q, np.stack([x1, x1 + 1.6], axis=1), rtol=0, atol=1e-11)
    np.testing.assert_allclose(motion.residual, 0, rtol=0, atol=1e-14)
    work = np.asarray(motion.control)[:, 0] * x1  # work of a constant force
    energy = np.asarray(motion.energy)
    np.testing.assert_allclose(energy - energy[0], work, rtol=0, atol=1e-10)


def test_run_command_two_mass_spring(check_run):
    check_run("two_mass_spring", 21)
