"""Properties of the constrained motion, on systems that hypothesis chooses: ranks, scales, orders, coordinates."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import ukjax as uk

from ..helpers import mass_matrix, rows_of_rank

N, ROWS = 6, 4
"""One shape of the arrays, so that each method is compiled once."""

FEW = settings(max_examples=40, deadline=None, derandomize=True, database=None)


def motion(method="orthogonal"):
    return jax.jit(lambda M, Q, A, b: uk.constrained_motion(uk.Terms(M, Q, A, b), method=method))


MOTION = motion()


@st.composite
def systems(draw, least_rank=1):
    """M, Q, A, b of consistent rows of a rank from ``least_rank`` to 4, and a generator for more numbers."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rank = draw(st.integers(least_rank, ROWS))
    M = mass_matrix(rng, N, 10.0 ** draw(st.integers(0, 4)))
    A = rows_of_rank(rng, ROWS, N, rank)
    return M, rng.normal(size=N), A, A @ rng.normal(size=N), rng


def size(x):
    return np.max(np.abs(x))


@FEW
@given(systems())
def test_motion_satisfies_rows_gauss_and_dalembert_principles(case):
    M, Q, A, b, rng = case
    found = MOTION(M, Q, A, b)
    a, force = np.asarray(found.acceleration), np.asarray(found.constraint_force)
    np.testing.assert_allclose(A @ a, b, rtol=0, atol=1e-10 * (size(A) * size(a) + size(b)))
    directions = np.linalg.svd(A)[2][np.linalg.matrix_rank(A, 1e-9) :]  # virtual displacements
    np.testing.assert_allclose(directions @ force, 0, rtol=0, atol=1e-9 * size(force) * np.sqrt(N))
    free = np.linalg.solve(M, Q)
    gauss = lambda x: (x - free) @ M @ (x - free)
    for _ in range(3):
        assert gauss(a) <= gauss(a + directions.T @ rng.normal(size=len(directions))) * (1 + 1e-12)


@FEW
@given(systems(), st.permutations(range(ROWS)), st.integers(-6, 6), st.integers(-6, 6))
def test_motion_does_not_depend_on_order_scale_basis_and_units(case, order, row_scale, unit):
    """Order, duplication and scale of rows; coordinates in another basis and in other units."""
    M, Q, A, b, rng = case
    expected = np.asarray(MOTION(M, Q, A, b).acceleration)
    close = lambda x: np.testing.assert_allclose(x, expected, rtol=0, atol=1e-7 * size(expected))
    scale = 10.0**row_scale
    close(MOTION(M, Q, scale * A[list(order)], scale * b[list(order)]).acceleration)
    mixed = np.concatenate([A, np.linalg.qr(rng.normal(size=(ROWS, ROWS)))[0] @ A])
    close(MOTION(M, Q, mixed, np.concatenate([b, mixed[ROWS:] @ expected])).acceleration)
    T = np.linalg.qr(rng.normal(size=(N, N)))[0] * 10.0 ** rng.uniform(-1, 1, N)
    close(T @ np.asarray(MOTION(T.T @ M @ T, T.T @ Q, A @ T, b).acceleration))
    units = np.where(np.arange(N) < N // 2, 1.0, 10.0**unit)
    close(units * np.asarray(MOTION(M * units[:, None] * units, Q * units, A * units, b).acceleration))


METHODS = {name: motion(name) for name in ("svd", "kkt", "cholesky", "udwadia_phohomsiri")}


@FEW
@given(systems(least_rank=ROWS))
def test_methods_agree_also_in_a_batch_and_in_float32(case):
    M, Q, A, b, _ = case
    expected = np.asarray(MOTION(M, Q, A, b).acceleration)
    for name, method in METHODS.items():
        found = method(M, Q, A, b).acceleration
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8 * size(expected), err_msg=name)
    several = [np.stack([x, 2 * x]) for x in (M, Q, A, b)]
    both = jax.vmap(MOTION)(*several).acceleration
    for i, member in enumerate(zip(*several, strict=True)):
        np.testing.assert_allclose(both[i], MOTION(*member).acceleration, rtol=0, atol=1e-12 * size(both))
    single = MOTION(*(jnp.asarray(x, jnp.float32) for x in (M, Q, A, b))).acceleration
    assert single.dtype == jnp.float32
    bound = 10 * np.linalg.cond(M) * np.linalg.cond(A) * np.finfo(np.float32).eps
    np.testing.assert_allclose(single, expected, rtol=0, atol=bound * size(expected))
