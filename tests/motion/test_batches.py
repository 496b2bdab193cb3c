"""Batches of motions: each member has the same motion as alone."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ellipj, ellipk

import ukjax as uk

from ..mechanisms import GRAVITY, Pendulum, redundant_only_on_the_constraint

BATCH = 300  # several blocks on two cores, and lanes that are refilled
TS = np.array([0.0, 0.3, 1.0])


def released(angles):
    """Pendulums at rest at these angles from the downward vertical."""
    angles = np.asarray(angles)
    return np.stack([np.sin(angles), -np.cos(angles)], axis=-1), np.zeros((len(angles), 2))


def exact(angle, t):
    """x, y at t by Jacobi's functions, with k = sin(angle / 2)."""
    k2 = np.sin(angle / 2) ** 2
    sn = ellipj(ellipk(k2) - np.sqrt(GRAVITY) * t, k2)[0]
    theta = 2 * np.arcsin(np.sqrt(k2) * sn)
    return np.stack([np.sin(theta), -np.cos(theta)], axis=-1)


@pytest.fixture(scope="module")
def angles():
    return np.random.default_rng(1).permutation(np.linspace(0.01, 3.0, BATCH))


@pytest.fixture(scope="module")
def adaptive(angles):
    return uk.simulate(Pendulum(), *released(angles), TS, rtol=1e-10, atol=1e-10)


@pytest.fixture(scope="module")
def fixed(angles):
    return uk.simulate(Pendulum(), *released(angles), TS, dt=1e-3, solver=uk.RungeKutta4())


@pytest.mark.parametrize(("kind", "close"), (("adaptive", 1e-8), ("fixed", 1e-10)))
def test_each_member_matches_elliptic_functions(request, angles, kind, close):
    motion = request.getfixturevalue(kind)
    expected = np.stack([exact(angle, TS) for angle in angles])
    np.testing.assert_allclose(motion.q, expected, rtol=0, atol=close)
    assert motion.q.shape == (BATCH, 3, 2) and motion.t.shape == motion.rank.shape == (BATCH, 3)
    np.testing.assert_allclose(motion.residual, 0, rtol=0, atol=1e-13)
    np.testing.assert_allclose(motion.energy, motion.energy[:, :1] + np.zeros(3), rtol=0, atol=100 * close)


def test_adaptive_step_count_of_member_does_not_depend_on_batch(adaptive, angles):
    steps = np.asarray(adaptive.steps)
    assert steps[np.argmin(angles)] < steps[np.argmax(angles)] / 1.3
    again = uk.simulate(Pendulum(), *released(angles[:140]), TS, rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(again.steps, steps[:140])


def test_fixed_steps_are_equal_between_samples(fixed):
    np.testing.assert_array_equal(fixed.steps, 1000)
    uneven = uk.simulate(Pendulum(), *released([0.5, 1.0]), [0.0, 0.025, 0.1], dt=0.01, solver=uk.RungeKutta4())
    np.testing.assert_array_equal(uneven.steps, 3 + 8)


def test_runge_kutta_4_is_of_order_four():
    errors, (q0, v0) = [], released([1.5])
    for dt in (0.02, 0.01):
        motion = uk.simulate(Pendulum(), q0[0], v0[0], [0.0, 1.0], dt=dt, solver=uk.RungeKutta4())
        errors.append(np.abs(np.asarray(motion.q[-1]) - exact(1.5, 1.0)).max())
    assert 12 < errors[0] / errors[1] < 20


def test_one_runge_kutta_4_step_matches_formula():
    """One step of a free particle in a force field, against the formula in NumPy."""
    field = lambda t, q: np.array([np.sin(q[1]) + t, -q[0]])
    dynamics = uk.MassForce(jnp.eye(2), lambda t, q, v: jnp.stack([jnp.sin(q[1]) + t, -q[0]]))
    q, v, h = np.array([0.3, 0.5]), np.array([-0.2, 0.4]), 0.5
    a1 = field(0, q)
    a2 = field(h / 2, q + h / 2 * v)
    v2, v3 = v + h / 2 * a1, v + h / 2 * a2
    a3 = field(h / 2, q + h / 2 * v2)
    v4 = v + h * a3
    a4 = field(h, q + h * v3)
    motion = uk.simulate(uk.System(dynamics), q, v, [0.0, h], dt=h, solver=uk.RungeKutta4())
    np.testing.assert_allclose(motion.q[-1], q + h / 6 * (v + 2 * v2 + 2 * v3 + v4), rtol=0, atol=1e-15)
    np.testing.assert_allclose(motion.v[-1], v + h / 6 * (a1 + 2 * a2 + 2 * a3 + a4), rtol=0, atol=1e-15)


def test_solver_without_error_estimate_needs_dt():
    q0, v0 = released([1.0])
    with pytest.raises(ValueError, match="RungeKutta4 does not estimate its error.*give dt"):
        uk.simulate(Pendulum(), q0[0], v0[0], TS, solver=uk.RungeKutta4())


@pytest.mark.parametrize("steps", ({"dt": 0.01}, {"rtol": 1e-8, "atol": 1e-8}))
def test_failed_member_is_named_and_does_not_change_others(steps):
    """The force is not finite where x > 1."""
    force = lambda t, q, v: jnp.array([0.0, -1.0]) * jnp.sqrt(1 - q[0])
    system = uk.System(uk.MassForce(jnp.eye(2), force), uk.Holonomic(lambda t, q: q[1]))
    q0 = np.zeros((BATCH, 2))
    v0 = np.zeros((BATCH, 2))
    v0[7, 0] = 3.0
    with pytest.raises(uk.SimulationError, match=r"trajectory 7 \(1 of 300 failed\)"):
        uk.simulate(system, q0, v0, TS, **steps)
    motion = uk.simulate(system, q0, v0, TS, throw=False, **steps)
    np.testing.assert_array_equal(motion.finished, np.arange(BATCH) != 7)
    alone = uk.simulate(system, q0[0], v0[0], TS, **steps)
    np.testing.assert_allclose(np.asarray(motion.q)[[0, 6, 8]], np.tile(alone.q, (3, 1, 1)), rtol=0, atol=1e-7)
    assert np.isfinite(motion.q[7, 0]).all() and np.isnan(motion.q[7, -1]).all()


def test_max_steps_stops_only_members_that_need_more(angles, adaptive):
    most = int(np.median(np.asarray(adaptive.steps)))
    motion = uk.simulate(Pendulum(), *released(angles), TS, rtol=1e-10, atol=1e-10, max_steps=most, throw=False)
    np.testing.assert_array_equal(motion.finished, np.asarray(adaptive.steps) <= most)
    done = np.asarray(motion.finished)
    np.testing.assert_array_equal(np.asarray(motion.q)[done], np.asarray(adaptive.q)[done])


def test_batch_with_redundant_rows_matches_single_motion():
    system, (q0, v0) = redundant_only_on_the_constraint(), (x[0] for x in released([1.5]))
    together = uk.simulate(system, np.tile(q0, (BATCH, 1)), np.tile(v0, (BATCH, 1)), TS, dt=5e-3)
    alone = uk.simulate(system, q0, v0, TS, dt=5e-3)
    np.testing.assert_allclose(np.asarray(together.q)[[0, -1]], np.stack([alone.q, alone.q]), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(together.rank, 1)


def test_fixed_steps_under_jit_match_eager(angles, fixed):
    @jax.jit
    def end(q0, v0):
        return uk.simulate(Pendulum(), q0, v0, TS, dt=1e-3, solver=uk.RungeKutta4()).q

    np.testing.assert_allclose(end(*released(angles)), fixed.q, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_gradient_of_batch_is_sum_of_gradients_of_members():
    q0, v0 = released(np.array([0.2, 1.4]))

    def total(length, q0, v0):
        # without drift correction, so that only b enforces the length
        start = Pendulum(length=length), q0 * length, v0
        end = uk.simulate(*start, TS, dt=0.02, solver=uk.RungeKutta4(), drift="none").q
        return jnp.sum(end[..., -1, :] ** 2 * jnp.array([1.0, 2.0]))

    together = jax.jit(jax.grad(total))(1.0, q0, v0)
    alone = jax.jit(jax.grad(total))
    np.testing.assert_allclose(together, sum(alone(1.0, q0[i], v0[i]) for i in (0, 1)), rtol=1e-12)
    nudge = 1e-5
    difference = (total(1 + nudge, q0, v0) - total(1 - nudge, q0, v0)) / (2 * nudge)
    np.testing.assert_allclose(together, difference, rtol=1e-8)


@pytest.mark.slow
def test_implicit_solver_accepts_batch():
    angles = np.array([0.5, 1.0])
    pendulum = uk.System(uk.MassForce(np.eye(1), lambda t, q, v: -GRAVITY * jnp.sin(q)))
    found = uk.simulate(pendulum, angles[:, None], [0.0], [0.0, 0.2], solver=dfx.Kvaerno5(), rtol=1e-8, atol=1e-8)
    end = np.asarray(found.q[:, -1, 0])
    np.testing.assert_allclose(np.stack([np.sin(end), -np.cos(end)], 1), [exact(a, 0.2) for a in angles], atol=1e-6)


@pytest.mark.slow
def test_thousand_calls_from_two_threads_do_not_hang():
    """Batches with the default method, called repeatedly from two threads. They contain no call of LAPACK."""
    from concurrent.futures import ThreadPoolExecutor

    rng = np.random.default_rng(0)
    A, b = rng.normal(size=(1000, 4, 6)), rng.normal(size=(1000, 4))
    one = jax.jit(jax.vmap(lambda A, b: uk.constrained_motion(uk.Terms(jnp.eye(6), jnp.ones(6), A, b)).acceleration))
    expected = np.asarray(one(A, b))
    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(lambda _: np.asarray(one(A, b)), range(1000)):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("spoil", ("redundant row", "singular mass", "no mass matrix"))
def test_member_that_needs_fallback_changes_no_bit_of_others(rng, spoil):
    """Accelerations of a batch. The fallback is another program, with other rounding errors."""
    n, m, doubtful = 6, 4, 5
    B = rng.normal(size=(BATCH, n, n))
    M, A = B @ np.swapaxes(B, 1, 2) + np.eye(n), rng.normal(size=(BATCH, m, n))
    Q, b = rng.normal(size=(BATCH, n)), np.einsum("kmn,kn->km", A, rng.normal(size=(BATCH, n)))
    usual = accelerate(M, Q, A, b)
    if spoil == "redundant row":
        A[doubtful, 3], b[doubtful, 3] = A[doubtful, 0], b[doubtful, 0]
    elif spoil == "singular mass":
        M[doubtful] = np.diag([0, 1, 2, 3, 4, 5])
    else:
        M[doubtful, 0, 1] += 1
    mixed = accelerate(M, Q, A, b)
    others = np.arange(BATCH) != doubtful
    np.testing.assert_array_equal(mixed[others], usual[others])
    alone = accelerate(*(x[doubtful : doubtful + 1] for x in (M, Q, A, b)))[0]
    np.testing.assert_allclose(mixed[doubtful], alone, rtol=1e-9)


@jax.jit
@jax.vmap
def accelerate(M, Q, A, b):
    return uk.constrained_motion(uk.Terms(M, Q, A, b)).acceleration
