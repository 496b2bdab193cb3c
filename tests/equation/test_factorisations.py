"""The two factorisations without LAPACK."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ukjax._solve import cholesky, inverse_cholesky, orthonormal_rows

from ..helpers import mass_matrix, rows_of_rank

CLOSE = 1e-13  # float64 rounding times the condition (below 1e2) of the matrices made here
THRESHOLD = 1e-10  # of the rank decisions: rows here are of order 1, or combinations of others to rounding


@jax.jit
def basis(B):
    return orthonormal_rows(B, THRESHOLD)


def active(V):
    return np.asarray(V)[np.any(np.asarray(V) != 0, axis=1)]


@pytest.mark.parametrize("n", (1, 5, 37))
def test_inverse_cholesky_matches_numpy(rng, n):
    S = mass_matrix(rng, n)
    np.testing.assert_allclose(
        inverse_cholesky(jnp.asarray(S)), np.linalg.inv(np.linalg.cholesky(S)), rtol=0, atol=CLOSE
    )


def test_inverse_cholesky_is_exactly_lower_triangular(rng):
    L_inverse = np.asarray(inverse_cholesky(jnp.asarray(mass_matrix(rng, 5))))
    assert np.array_equal(L_inverse, np.tril(L_inverse))


def test_inverse_cholesky_of_empty_matrix_is_empty():
    assert inverse_cholesky(jnp.zeros((0, 0))).shape == (0, 0)


@pytest.mark.parametrize(
    "S",
    (
        [[1.0, 2.0], [2.0, 1.0]],  # indefinite
        [[1.0, 1.0], [1.0, 1.0]],  # semidefinite
        [[-1.0, 0.0], [0.0, 1.0]],
        [[0.0, 0.0], [0.0, 1.0]],
        [[1.0, 1.0], [1.0, 1.0 + 2.0**-52]],  # semidefinite up to one rounding
    ),
)
def test_inverse_cholesky_is_nan_where_not_positive_definite(S):
    assert np.isnan(inverse_cholesky(jnp.asarray(S))).any()


def test_inverse_cholesky_accepts_small_pivot_above_rounding():
    S = np.array([[1.0, 1.0], [1.0, 1.0 + 1e-12]])
    np.testing.assert_allclose(inverse_cholesky(jnp.asarray(S))[1, 1], 1e6, rtol=1e-3)


@pytest.mark.parametrize("n", (0, 1, 5, 16, 17, 37))
def test_cholesky_matches_numpy(rng, n):
    S = mass_matrix(rng, n)
    C, scale = map(np.asarray, cholesky(jnp.asarray(S)))
    assert np.array_equal(C, np.tril(C, -1))
    np.testing.assert_allclose(C + np.diag(1 / scale), np.linalg.cholesky(S), rtol=0, atol=CLOSE)


def test_cholesky_of_singular_matrix_is_nan():
    assert np.isnan(cholesky(jnp.ones((3, 3))).scale).any()


@pytest.mark.parametrize(
    ("m", "n", "rank"),
    ((4, 6, 4), (4, 6, 2), (7, 3, 3), (7, 3, 2), (4, 6, 1), (40, 50, 40), (40, 50, 21), (40, 20, 20)),
)
def test_basis_is_orthonormal_and_spans_the_rows(rng, m, n, rank):
    B = rows_of_rank(rng, m, n, rank)
    found = basis(B)
    V, C, scale = (np.asarray(x) for x in (found.V, *found.triangle))
    assert V.shape == (m, n) and C.shape == (m, m)
    assert len(active(V)) == np.sum(scale > 0) == rank
    np.testing.assert_allclose(active(V) @ active(V).T, np.eye(rank), rtol=0, atol=CLOSE)
    lengths = np.where(scale > 0, 1 / np.where(scale > 0, scale, 1), 0)
    np.testing.assert_allclose((C + np.diag(lengths)) @ V, B, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(B @ V.T @ V, B, rtol=0, atol=CLOSE)  # V spans the row space of B


def test_rows_that_are_nearly_parallel_give_an_orthonormal_basis():
    """A single Gram–Schmidt pass leaves an error of 1e-16 / 1e-8 in the angle between the first two rows."""
    B = np.array([[1.0, 1.0, 1.0, 0.0, 0.0, 0.0]] * 4) + 1e-8 * np.eye(4, 6)
    V = active(basis(B)[0])
    assert len(V) == 4
    np.testing.assert_allclose(V @ V.T, np.eye(4), rtol=0, atol=CLOSE)


@pytest.mark.parametrize(("m", "n", "rank"), ((4, 6, 4), (4, 6, 2), (7, 3, 3), (40, 50, 40), (40, 50, 21)))
def test_coordinates_and_multipliers_solve_the_rows(rng, m, n, rank):
    B, x = rows_of_rank(rng, m, n, rank), rng.normal(size=n)
    found = basis(B)
    np.testing.assert_allclose(
        B @ (found.V.T @ found.triangle.solve(jnp.asarray(B @ x))), B @ x, rtol=0, atol=10 * CLOSE
    )
    y = found.V @ jnp.asarray(x)
    np.testing.assert_allclose(B.T @ found.triangle.solve_transposed(y), found.V.T @ y, rtol=0, atol=10 * CLOSE)


def test_basis_uses_rows_in_their_order():
    """Row i of V is a combination of rows 0 to i."""
    _, (C, scale) = basis(np.array([[1.0, 0, 0], [2, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1]]))
    np.testing.assert_array_equal(scale, [1, 0, 1, 0, 1])
    np.testing.assert_array_equal(C, [[0] * 5, [2, 0, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 1, 0, 0]])


def test_zero_rows_add_nothing(rng):
    B = rng.normal(size=(4, 6))
    B[[0, 2]] = 0
    found = basis(B)
    V, C, scale = (np.asarray(x) for x in (found.V, *found.triangle))
    np.testing.assert_array_equal(scale > 0, [False, True, False, True])
    assert not np.any(V[[0, 2]]) and not np.any(C[[0, 2]])


def test_zero_matrix_gives_no_basis():
    assert not any(np.any(part) for part in jax.tree.leaves(basis(np.zeros((4, 6)))))


def test_no_rows_give_no_basis():
    V, (C, scale) = orthonormal_rows(jnp.zeros((0, 3)), THRESHOLD)
    assert V.shape == (0, 3) and C.shape == (0, 0) and scale.shape == (0,)


def test_rows_within_the_tolerance_are_redundant():
    B = jnp.array([[1.0, 0.0, 0.0], [1.0, 1e-6, 0.0]])
    assert len(active(orthonormal_rows(B, 1e-7)[0])) == 2
    assert len(active(orthonormal_rows(B, 1e-5)[0])) == 1


def test_basis_uses_only_permitted_rows(rng):
    B = jnp.asarray(rng.normal(size=(4, 6)))
    V, (_, scale) = orthonormal_rows(B, THRESHOLD, jnp.array([True, False, True, True]))
    np.testing.assert_array_equal(scale > 0, [True, False, True, True])
    alone = orthonormal_rows(B[jnp.array([0, 2, 3])], THRESHOLD).V
    np.testing.assert_allclose(active(V), alone, rtol=0, atol=CLOSE)


def test_batch_matches_single_members(rng):
    """The ranks of the members differ."""
    batch = np.stack([rows_of_rank(rng, 4, 6, rank) for rank in (4, 1, 3)])
    together = jax.jit(jax.vmap(lambda B: orthonormal_rows(B, THRESHOLD)))(batch)
    for i, B in enumerate(batch):
        alone = orthonormal_rows(jnp.asarray(B), THRESHOLD)
        for one, many in zip(*map(jax.tree.leaves, (alone, together)), strict=True):
            np.testing.assert_allclose(many[i], one, rtol=0, atol=CLOSE)


def test_nan_of_indefinite_member_does_not_change_other_members(rng):
    batch = np.stack([mass_matrix(rng, 5), -np.eye(5), mass_matrix(rng, 5)])
    L_inverse = jax.vmap(inverse_cholesky)(jnp.asarray(batch))
    assert np.isnan(L_inverse[1]).any()
    for i in (0, 2):
        np.testing.assert_allclose(L_inverse[i] @ batch[i] @ L_inverse[i].T, np.eye(5), rtol=0, atol=CLOSE)
