"""The SCARA robot of Xu & Liu 2017, against inverse kinematics and the printed matrices of the paper."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk

ROUNDING = 1e-14  # entries of order one to ten, after about twelve operations


@pytest.fixture(scope="module")
def robot():
    return uk.systems.Scara()


@pytest.fixture(scope="module")
def motion(robot):
    q0, v0 = uk.project(robot, 0.0, *robot.start())
    return uk.simulate(robot, q0, v0, jnp.linspace(0, 10, 101))


@pytest.fixture(scope="module")
def exact(robot, motion):
    """Return q, v and accelerations by inverse kinematics, at the samples."""
    rate = jax.jacfwd(robot.reference)
    at = jax.jit(jax.vmap(lambda t: (robot.reference(t), rate(t), jax.jacfwd(rate)(t))))
    return [np.asarray(x) for x in at(motion.t)]


@pytest.fixture(scope="module")
def published(robot):
    ts = jnp.linspace(0, 20, 201)
    q0, v0 = robot.start()
    return {name: uk.simulate(version, q0, v0, ts, drift="none") for name, version in robot.published().items()}


def printed_terms(t, q, v, alpha=0.5, beta=200.0, g=9.81):
    """Return M, Q, A and b of eqs. 34, 35, 36 and 54, copied from the paper."""
    m1, m2, m3, m4, l0, l1, l2, r1, r2 = 20, 15, 15, 0.5, 0, 0.2, 0.25, 0.1, 0.125
    I1, I2, I3, I4 = 0.27, 0.31, 0.02, 0.0001
    s1, c1, s12, c12 = np.sin(q[0]), np.cos(q[0]), np.sin(q[0] + q[1]), np.cos(q[0] + q[1])
    al = I1 + r1**2 * m1 + l1**2 * m2 + l1**2 * m3 + l1**2 * m4
    be = I2 + I3 + I4 + l2**2 * m3 + l2**2 * m4 + m2 * r2**2
    ga = l1 * l2 * m3 + l1 * l2 * m4 + l1 * m2 * r2
    de = I3 + I4
    c2, s2 = np.cos(q[1]), np.sin(q[1])
    M = np.array(
        [[al + be + 2 * ga * c2, be + ga * c2, de, 0], [be + ga * c2, be, de, 0], [de, de, de, 0], [0, 0, 0, m4]]
    )
    C = np.zeros((4, 4))
    C[0, :2] = -ga * s2 * v[1], -ga * s2 * (v[0] + v[1])
    C[1, 0] = ga * s2 * v[0]
    Q = -C @ v - np.array([0, 0, 0, m4 * g])
    A = np.array(
        [[-l1 * c1 - l2 * c12, -l2 * c12, 0, 0], [-l1 * s1 - l2 * s12, -l2 * s12, 0, 0], [1, 1, 1, 0], [0, 0, 0, 1]]
    )
    w, v12 = 0.4 * np.pi, v[0] + v[1]
    phi = np.array(
        [
            -l1 * s1 - l2 * s12 - 0.05 * np.sin(w * t),
            l1 * c1 + l2 * c12 - 0.35 - 0.05 * np.cos(w * t),
            q[0] + q[1] + q[2],
            q[3] + l0 - 0.02 * t,
        ]
    )
    phi_dot = np.array(
        [
            -v[0] * l1 * c1 - v12 * l2 * c12 - 0.05 * w * np.cos(w * t),
            -v[0] * l1 * s1 - v12 * l2 * s12 + 0.05 * w * np.sin(w * t),
            v[0] + v[1] + v[2],
            v[3] - 0.02,
        ]
    )
    b = np.array(
        [
            -(v[0] ** 2) * l1 * s1 - v12**2 * l2 * s12 - 0.05 * w**2 * np.sin(w * t),
            v[0] ** 2 * l1 * c1 + v12**2 * l2 * c12 - 0.05 * w**2 * np.cos(w * t),
            0,
            0,
        ]
    )
    return M, Q, A, b - alpha * phi_dot - beta * phi


def test_terms_match_the_printed_ones(robot, rng):
    for _ in range(3):
        t, q, v = rng.uniform(0, 20), rng.normal(size=4), rng.normal(size=4)
        terms = robot(t, q, v)
        for name, printed in zip("MQAb", printed_terms(t, q, v), strict=True):
            np.testing.assert_allclose(getattr(terms, name), printed, rtol=0, atol=200 * ROUNDING, err_msg=name)


def test_mass_matrix_and_force_match_derivatives_of_energies(robot, rng):
    kinetic = lambda t, q, v: v @ robot.mass_matrix(t, q) @ v / 2
    potential = lambda t, q: robot.m4 * robot.g * q[3]
    q, v = jnp.asarray(rng.normal(size=4)), jnp.asarray(rng.normal(size=4))
    M, Q = uk.Lagrangian(kinetic, potential).terms(jnp.array(0.0), q, v)
    np.testing.assert_allclose(Q, robot.force(0.0, q, v), rtol=0, atol=100 * ROUNDING)
    np.testing.assert_allclose(M, robot.mass_matrix(0.0, q), rtol=0, atol=100 * ROUNDING)


def test_start_needs_minus_signs_that_the_paper_omits(robot):
    q0, v0 = robot.start()
    phi = np.asarray(robot.position_residual(0.0, q0))
    np.testing.assert_allclose(phi, [-5.7e-3, -2.2e-4, 0.0175, 0], rtol=0, atol=5e-5)
    as_printed = np.asarray(robot.position_residual(0.0, q0 * jnp.array([-1, 1, -1, 1])))
    np.testing.assert_allclose(as_printed, [-0.349, -0.205, 1.902, 0], rtol=0, atol=5e-4)
    assert np.abs(robot.velocity_residual(0.0, q0, v0)).max() < 1e-3


def test_projected_start_matches_inverse_kinematics(robot):
    q0, v0 = uk.project(robot, 0.0, *robot.start())
    np.testing.assert_allclose(np.rad2deg(q0[:3]), [-30.75351981, 54.9003678, -24.146848], rtol=0, atol=5e-8)
    np.testing.assert_allclose(v0, [-0.05 * np.pi, 0, 0.05 * np.pi, 0.02], rtol=0, atol=ROUNDING)


def test_motion_matches_inverse_kinematics(motion, exact):
    for found, expected in zip((motion.q, motion.v, motion.acceleration), exact, strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_run_command(check_run):
    check_run("scara")


def test_constraints_are_satisfied_to_rounding(motion):
    assert np.abs(motion.residual).max() <= 1e-10
    assert np.abs(motion.velocity_residual).max() <= 1e-10
    assert (np.asarray(motion.rank) == 4).all()


def test_constraint_force_matches_inverse_dynamics_of_the_exact_motion(motion, exact):
    q, v, acceleration = exact
    for i in range(0, 101, 10):
        M, Q, _, _ = printed_terms(float(motion.t[i]), q[i], v[i])
        np.testing.assert_allclose(motion.constraint_force[i], M @ acceleration[i] - Q, rtol=0, atol=1e-11)


def test_without_stabilisation_the_violation_grows_linearly(robot, published):
    run = published["without"]
    phi, phi_dot = run.residual[0], run.velocity_residual[0]
    np.testing.assert_allclose(run.residual, phi + run.t[:, None] * phi_dot, rtol=0, atol=1e-8)
    tool = jax.vmap(robot.tool)(run.q) - jax.vmap(robot.path)(run.t)
    np.testing.assert_allclose(jnp.abs(tool[-1, :3]), [7.43e-3, 1.733e-2, 1.000e-2], rtol=1e-3)  # z as in the paper


def test_violation_with_baumgarte_decays_by_the_gains_of_the_paper(published):
    run = published["baumgarte"]
    t, phi = np.asarray(run.t), np.asarray(run.residual)
    rate, frequency = 0.25, np.sqrt(200 - 0.25**2)
    phase = frequency * t[:, None]
    start = (np.asarray(run.velocity_residual[0]) + rate * phi[0]) / frequency
    np.testing.assert_allclose(
        phi, np.exp(-rate * t[:, None]) * (phi[0] * np.cos(phase) + start * np.sin(phase)), rtol=0, atol=1e-8
    )
