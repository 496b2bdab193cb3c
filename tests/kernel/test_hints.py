"""The fast branch of kernels for clearly independent rows: its accuracy, and when it is taken."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax._kernel import fast_branch, lowering

from ..helpers import EPS, HardCase, exact_acceleration, mass_matrix, multiplier_motion

BATCH = 128
SHAPES = ((6, 4), pytest.param(9, 9, marks=pytest.mark.slow))


def graded_case(rng, n, m, angle):
    """A system whose last row is at ``angle`` to the span of the others."""
    R = np.linalg.qr(rng.normal(size=(n, m)))[0].T
    R[:-1] = mass_matrix(rng, m - 1) @ R[:-1]
    R[-1] = angle * R[-1] + R[:-1].sum(axis=0) / np.linalg.norm(R[:-1].sum(axis=0))
    return HardCase(mass_matrix(rng, n), rng.normal(size=n), R, rng.normal(size=m), np.eye(m), R, n)


def tiled(cases):
    """M, Q, A, b of the cases, repeated to fill a batch."""
    count = -(-BATCH // len(cases))
    return [np.stack([getattr(case, name) for case in cases] * count) for name in "MQAb"]


def acceleration(M, Q, A, b):
    return uk.constrained_motion(uk.Terms(M, Q, A, b)).acceleration


doubtful = jax.jit(jax.vmap(uk.per_member(lambda M, A: uk.Orthogonal().factorise(M, A).doubtful)))
accelerations = jax.jit(jax.vmap(acceleration))


@pytest.mark.parametrize(("n", "m"), SHAPES)
@pytest.mark.parametrize("angle", (1.0, 0.1, 5e-3))
def test_accelerations_match_fifty_digit_reference(rng, n, m, angle):
    cases = [graded_case(rng, n, m, angle) for _ in range(4)]
    M, Q, A, b = tiled(cases)
    assert not np.any(doubtful(M, A))
    found = accelerations(M, Q, A, b)
    for case, one in zip(cases, found, strict=False):
        exact = exact_acceleration(case)
        # The bound of a backward-stable solution. Without refinement the error is up to cond(A) times as large.
        bound = 2 * EPS * np.linalg.cond(case.M) * np.linalg.cond(case.A)
        assert np.linalg.norm(one - exact) <= bound * np.linalg.norm(exact)
        assert np.max(np.abs(case.A @ one - case.b)) <= 10 * EPS * np.linalg.norm(one)


@pytest.mark.slow
def test_long_chain_of_rows_matches_multiplier_method(rng):
    """More rows than are eliminated at once, each on two coordinates: A M⁻¹ Aᵀ has three diagonals."""
    m = 19

    def chain(mass, left, right, Q, b):
        i = jnp.arange(m)
        A = jnp.zeros((m, m + 1)).at[i, i].set(left).at[i, i + 1].set(right)
        return uk.Terms(jnp.diag(mass), Q, A, b)

    values = [rng.uniform(1, 2, size=(BATCH, size)) for size in (m + 1, m, m, m + 1, m)]
    moved = uk.per_member(lambda *x: uk.constrained_motion(chain(*x)).acceleration)
    found = jax.jit(jax.vmap(moved))(*values)
    for k in (0, BATCH - 1):
        terms = chain(*(x[k] for x in values))
        expected = multiplier_motion(*map(np.asarray, (terms.M, terms.Q, terms.A, terms.b)))
        np.testing.assert_allclose(found[k], expected, rtol=0, atol=1e-12 * np.abs(expected).max())


def test_member_with_nearly_dependent_rows_is_accurate_in_a_batch(rng):
    cases = [graded_case(rng, 6, 4, 1.0) for _ in range(3)] + [graded_case(rng, 6, 4, 1e-6)]
    M, Q, A, b = tiled(cases)
    assert np.array_equal(doubtful(M, A)[:4], [False, False, False, True])
    found = accelerations(M, Q, A, b)
    for case, one in zip(cases, found, strict=False):
        exact = exact_acceleration(case)
        assert np.linalg.norm(one - exact) <= 1e3 * EPS * np.linalg.cond(case.A) * np.linalg.norm(exact)


@pytest.mark.slow
def test_derivatives_in_kernels_match_xla(rng):
    M, Q, A, b = tiled([graded_case(rng, 6, 4, 0.1)])
    change = [x + x.swapaxes(-1, -2) if x.ndim == 3 and x.shape[1] == 6 else x for x in map(rng.normal, (M, Q, A, b))]
    along = lambda M, Q, A, b, *change: jax.jvp(acceleration, (M, Q, A, b), change)[1]
    of_all = jax.jit(jax.vmap(along))(M, Q, A, b, *change)[0]
    alone = jax.jit(along)(*(x[0] for x in (M, Q, A, b, *change)))
    np.testing.assert_allclose(of_all, alone, rtol=1e-11)


def test_mobility_and_compose_in_kernels_match_formula(rng):
    """W from its factor, and the motion with additional rows, against W = M⁻¹ − M⁻¹Aᵀ(A M⁻¹Aᵀ)⁻¹A M⁻¹."""
    M, Q, A, b = tiled([graded_case(rng, 6, 4, 0.3)])

    def further(M, Q, A, b):
        motion = uk.mobility(uk.Terms(M, Q, A[:2], b[:2]))
        composed = uk.compose(motion, A[2:], b[2:])
        return motion.matrix, motion.factor @ motion.factor.T, composed.matrix, composed.acceleration

    def matrix(A):
        W = np.linalg.inv(M[0])
        return W - W @ A.T @ np.linalg.solve(A @ W @ A.T, A @ W)

    found = jax.jit(jax.vmap(uk.per_member(further)))(M, Q, A, b)
    expected = matrix(A[0, :2]), matrix(A[0, :2]), matrix(A[0]), multiplier_motion(M[0], Q[0], A[0], b[0])
    for one, by_numpy in zip(found, expected, strict=True):
        np.testing.assert_allclose(one[0], by_numpy, rtol=0, atol=1e-12 * np.abs(by_numpy).max())


def told_apart(x):
    """1 by the fast branch, 2 by the general one."""
    return fast_branch(x > 3, lambda: jnp.full((), 2.0), lambda: jnp.ones(()))


def test_function_compiled_by_xla_has_no_fast_branch():
    x = jnp.linspace(0.0, 5.0, BATCH)
    np.testing.assert_array_equal(jax.vmap(told_apart)(x), 2)
    assert told_apart(x[0]) == jax.jit(told_apart)(x[0]) == 2


def test_kernel_takes_fast_branch_where_condition_is_false():
    x = jnp.linspace(0.0, 5.0, BATCH)
    np.testing.assert_array_equal(jax.vmap(uk.per_member(told_apart))(x), np.where(x > 3, 2, 1))


def test_motion_of_one_member_with_redundant_rows_is_one_short_kernel(rng, monkeypatch):
    """Its rare branch is part of the kernel, with loops. Otherwise XLA would compile the whole motion again."""
    n = m = 6
    A = rng.normal(size=(m, n))
    A[4:] = rng.normal(size=(2, 4)) @ A[:4]
    M, Q, b = mass_matrix(rng, n), rng.normal(size=n), A @ rng.normal(size=n)

    def motion(steps, M, Q, A, b):
        def step(state):
            k, v = state
            return k + 1, v + uk.Orthogonal().factorise(M, A).motion(Q, (1 + k) * b)

        return jax.lax.while_loop(lambda state: state[0] < steps, step, (0, jnp.zeros(n)))[1]

    traced = jax.make_jaxpr(motion)(2, M, Q, A, b)
    usual, complete = (len(lowering._graph_of(traced, 10**6, only, "cpu")[0].operations) for only in (True, False))
    assert complete < 2.7 * usual  # 3.0 with the loops of the rare branch written out

    monkeypatch.setattr(lowering, "MAX_OPERATIONS_ALL_BRANCHES", 0)
    assert not lowering.build_kernel(traced, (False,) * 5, lowering.MAX_OPERATIONS).omits_rare_branches
    W = np.linalg.inv(M)
    nearest = W @ A.T @ np.linalg.pinv(A @ W @ A.T, rcond=1e-9)
    expected = 2 * W @ Q + nearest @ (3 * b - 2 * A @ W @ Q)
    found = jax.jit(uk.per_member(motion))(2, M, Q, A, b)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
