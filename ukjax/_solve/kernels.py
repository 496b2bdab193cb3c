"""Factorisations of small matrices in elementary array arithmetic, without LAPACK.

One LAPACK call per matrix makes a batch of small systems slow, and repeated batches of such calls can deadlock on a
machine with two cores. The loops of this file have a static length and are compiled into kernels (see
``ukjax._kernel``).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

BLOCK_SIZE = 16
"""Largest number of rows that are eliminated one by one. For more rows, block products do most of the work."""

MAX_ROWWISE = 2 * BLOCK_SIZE
"""Largest number of rows that are orthonormalised one by one: two blocks, each done twice, need as many iterations."""

MAX_COLUMNWISE = 96
"""Largest number of rows for which a factor is computed column by column, which preserves its sparsity."""

ROUNDING_MARGIN = 10
"""A number larger than this multiple of the rounding error of 0 counts as nonzero."""


def inverse_cholesky(S: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Return L⁻¹, where S = L Lᵀ.

    The result is NaN if a pivot is zero up to rounding, so that S is not positive definite.
    """
    return _inverse_factor(S, S.shape[0] * jnp.finfo(S.dtype).eps * jnp.diagonal(S))


def surely_definite(
    S: Float[Array, "n n"], L_inverse: Float[Array, "n n"], rounding: Float[Array, " n"] | None = None
) -> Bool[Array, ""]:
    """Whether S = L Lᵀ is positive definite by more than the rounding error of its diagonal.

    ``rounding`` (n,) is this error, n eps S_ii by default. It is compared with 1 / S⁻¹_ii, the Schur complement of
    S_ii with respect to the other rows, which has the unit of S_ii.
    """
    rounding = S.shape[0] * jnp.finfo(S.dtype).eps * jnp.diagonal(S) if rounding is None else rounding
    return jnp.all(ROUNDING_MARGIN * rounding * jnp.sum(L_inverse**2, axis=0) < 1)  # False for NaN


def _inverse_factor(S, smallest):
    """Invert the Cholesky factor by recursive halving, down to ``BLOCK_SIZE`` rows."""
    n = S.shape[0]
    if n <= BLOCK_SIZE:
        return _eliminate(S, smallest)[1]
    h = n // 2
    first = _inverse_factor(S[:h, :h], smallest[:h])
    across = first @ S[:h, h:]
    second = _inverse_factor(S[h:, h:] - across.T @ across, smallest[h:])
    corner = -(second @ across.T) @ first
    return jnp.block([[first, jnp.zeros((h, n - h), S.dtype)], [corner, second]])


def _eliminate(S, smallest):
    """Return Lᵀ and L⁻¹: elimination transforms [S | I] into [Lᵀ | L⁻¹]."""
    n = S.shape[0]
    if n == 0:
        return S, S
    index = jnp.arange(n)

    def eliminate(j, X):
        row, column = X[j], X[:, j]
        scale = jax.lax.rsqrt(jnp.where(row[j] > smallest[j], row[j], jnp.nan))
        row = row * scale
        below = jnp.where(index > j, column * scale, 0)
        return (X - below[:, None] * row).at[j].set(row)

    X = jax.lax.fori_loop(0, n, eliminate, jnp.concatenate([S, jnp.eye(n, dtype=S.dtype)], axis=1))
    return X[:, :n], X[:, n:]


class Triangle(NamedTuple):
    """Lower triangular matrix C + S⁻¹: C (m, m) is strictly lower triangular, S is diagonal with entries ``scale``
    (m,).

    A row with ``scale`` 0 is inactive: it is left out of the solutions.
    """

    C: Float[Array, "m m"]
    scale: Float[Array, " m"]

    def solve(self, rows: Float[Array, " m"]) -> Float[Array, " m"]:
        """Solve (C + S⁻¹) y = rows for y. Inactive entries of y are zero."""
        if rows.size == 0:
            return rows

        def entry(i, y):
            return y.at[i].set(self.scale[i] * (rows[i] - self.C[i] @ y))

        return jax.lax.fori_loop(0, rows.size, entry, jnp.zeros_like(rows))

    def solve_transposed(self, y: Float[Array, " m"]) -> Float[Array, " m"]:
        """Solve (C + S⁻¹)ᵀ λ = y for λ. Inactive entries of λ are zero."""
        if y.size == 0:
            return y

        def entry(k, x):
            i = y.size - 1 - k
            return x.at[i].set(self.scale[i] * (y[i] - self.C[:, i] @ x))

        return jax.lax.fori_loop(0, y.size, entry, jnp.zeros_like(y))


def cholesky(S: Float[Array, "m m"]) -> Triangle:
    """Return L, where S = L Lᵀ; NaN if a pivot is zero up to rounding. L can be sparse where L⁻¹ is dense."""
    m = S.shape[0]
    smallest = m * jnp.finfo(S.dtype).eps * jnp.diagonal(S)
    if 0 < m <= MAX_COLUMNWISE:
        return _column_by_column(S, smallest)
    C, scale = jnp.zeros((m, m), S.dtype), jnp.zeros(m, S.dtype)
    for start in range(0, m, BLOCK_SIZE):
        stop = min(start + BLOCK_SIZE, m)
        done = C[start:stop, :start]
        rest = S[start:, start:stop] - C[start:, :start] @ done.T
        L_transposed, L_inverse = _eliminate(rest[: stop - start], smallest[start:stop])
        C = C.at[start:stop, start:stop].set(jnp.tril(L_transposed.T, -1))
        C = C.at[stop:, start:stop].set(rest[stop - start :] @ L_inverse.T)
        scale = scale.at[start:stop].set(jnp.diagonal(L_inverse))
    return Triangle(C, scale)


class Basis(NamedTuple):
    """Orthonormal basis V (m, n) of the row space of a matrix B = (C + S⁻¹) V, with ``triangle`` = C + S⁻¹.

    A row of B that is a combination of the rows before it has ``scale`` 0, a zero row in V, and equals the row of C V.
    """

    V: Float[Array, "m n"]
    triangle: Triangle


def _column_by_column(S, smallest):
    """Cholesky factorisation by columns. It uses no product with an inverse, so that only true fill-in is nonzero."""
    index = jnp.arange(S.shape[0])

    def eliminate(j, state):
        rest, C, scale = state
        inverse = jax.lax.rsqrt(jnp.where(rest[j, j] > smallest[j], rest[j, j], jnp.nan))
        below = jnp.where(index > j, rest[:, j] * inverse, 0)
        return rest - below[:, None] * below, C.at[:, j].set(below), scale.at[j].set(inverse)

    start = S, jnp.zeros_like(S), jnp.zeros_like(smallest)
    return Triangle(*jax.lax.fori_loop(0, S.shape[0], eliminate, start)[1:])


def orthonormal_rows(
    B: Float[Array, "m n"], tolerance: Float[Array, ""] | float, allowed: Bool[Array, " m"] | None = None
) -> Basis:
    """Orthonormalise the rows of B by Gram–Schmidt with reorthogonalisation.

    A row whose remainder is no longer than ``tolerance`` is a combination of the rows before it. ``allowed`` is the
    mask of rows that may enter the basis, all rows by default.
    """
    m, n = B.shape
    allowed = jnp.ones(m, bool) if allowed is None else allowed
    if m == 0:
        return Basis(B, Triangle(jnp.zeros((0, 0), B.dtype), jnp.zeros(0, B.dtype)))
    if m > MAX_ROWWISE:
        return _block_by_block(B, tolerance, allowed)

    def add_row(i, basis):
        V, (C, scale) = basis
        components = V @ B[i]
        remainder = B[i] - components @ V
        correction = V @ remainder  # left by rounding; "twice is enough" (Kahan, in Parlett 1980, §6.9)
        remainder = remainder - correction @ V
        square = jnp.sum(remainder**2)
        independent = (square > tolerance**2) & allowed[i]
        length = jnp.where(independent, jax.lax.rsqrt(jnp.where(independent, square, 1)), 0)
        triangle = Triangle(C.at[i].set(components + correction), scale.at[i].set(length))
        return Basis(V.at[i].set(length * remainder), triangle)

    start = Basis(jnp.zeros((m, n), B.dtype), Triangle(jnp.zeros((m, m), B.dtype), jnp.zeros(m, B.dtype)))
    return jax.lax.fori_loop(0, m, add_row, start)


def _block_by_block(B, tolerance, allowed):
    """Block version of ``orthonormal_rows``. Each block of ``BLOCK_SIZE`` rows is orthogonalised against the blocks
    before it, then orthonormalised row by row; both steps are done twice."""
    m, n = B.shape
    V, C, scale = jnp.zeros((0, n), B.dtype), jnp.zeros((m, m), B.dtype), []
    for start in range(0, m, BLOCK_SIZE):
        rows = B[start : start + BLOCK_SIZE]
        stop = start + rows.shape[0]
        components = rows @ V.T
        first = orthonormal_rows(rows - components @ V, tolerance, allowed[start:stop])
        correction = first.V @ V.T
        second = orthonormal_rows(first.V - correction @ V, 0.0, first.triangle.scale > 0)
        # rows = components V + R₁ V₁ and V₁ = correction V + R₂ V₂
        R1, R2 = _as_matrix(first.triangle), _as_matrix(second.triangle)
        R = R1 @ R2
        C = C.at[start:stop, :start].set(components + R1 @ correction).at[start:stop, start:stop].set(jnp.tril(R, -1))
        length = jnp.diagonal(R)
        scale.append(jnp.where(length > 0, 1 / jnp.where(length > 0, length, 1), 0))
        V = jnp.concatenate([V, second.V])
    return Basis(V, Triangle(C, jnp.concatenate(scale)))


def _as_matrix(triangle):
    """Return C + S⁻¹ as one matrix, with a zero on the diagonal for an inactive row."""
    active = triangle.scale > 0
    return triangle.C + jnp.diag(jnp.where(active, 1 / jnp.where(active, triangle.scale, 1), 0))
