"""The small factorisations under every constrained motion, without LAPACK.

A call into LAPACK per matrix is what makes a batch of small systems slow, and repeated batches of such calls can
deadlock on a machine with two cores. These loops are plain array arithmetic, of known length, which
become part of a kernel (see ``ukjax._kernel``).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

BLOCK = 16
"""Rows that are done one by one. Above that products of blocks do most of the work."""

SPARSE = 96
"""Up to so many rows a factor that may be sparse is made column by column."""

SURE = 10
"""So many times what rounding may make of 0 is surely something."""


def inverse_cholesky(S: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """L⁻¹, where S = L Lᵀ.

    A pivot that rounding cannot tell from zero makes the result NaN: S is then not positive definite.
    """
    return _inverse_factor(S, S.shape[0] * jnp.finfo(S.dtype).eps * jnp.diagonal(S))


def surely_definite(
    S: Float[Array, "n n"], L_inverse: Float[Array, "n n"], rounding: Float[Array, " n"] | None = None
) -> Bool[Array, ""]:
    """Whether S = L Lᵀ is positive definite by more than rounding, which may have moved it by ``rounding`` (n,), n eps
    S_ii if not given. 1 / S⁻¹_ii is the part of S_ii that the other rows do not imply, whatever its unit."""
    rounding = S.shape[0] * jnp.finfo(S.dtype).eps * jnp.diagonal(S) if rounding is None else rounding
    return jnp.all(SURE * rounding * jnp.sum(L_inverse**2, axis=0) < 1)  # false where it is NaN


def _inverse_factor(S, smallest):
    """By halves down to ``BLOCK`` rows."""
    n = S.shape[0]
    if n <= BLOCK:
        return _eliminate(S, smallest)[1]
    h = n // 2
    first = _inverse_factor(S[:h, :h], smallest[:h])
    across = first @ S[:h, h:]
    second = _inverse_factor(S[h:, h:] - across.T @ across, smallest[h:])
    corner = -(second @ across.T) @ first
    return jnp.block([[first, jnp.zeros((h, n - h), S.dtype)], [corner, second]])


def _eliminate(S, smallest):
    """Lᵀ and L⁻¹: elimination on [S | I] ends as [Lᵀ | L⁻¹]."""
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
    """A lower triangular matrix C + S⁻¹, C (m, m) strictly so, S diagonal with the entries ``scale`` (m,).

    Where ``scale`` is 0 there is no such row: it has no part in the solutions.
    """

    C: Float[Array, "m m"]
    scale: Float[Array, " m"]

    def solve(self, rows: Float[Array, " m"]) -> Float[Array, " m"]:
        """y with (C + S⁻¹) y = rows, on the rows that count."""
        if rows.size == 0:
            return rows

        def entry(i, y):
            return y.at[i].set(self.scale[i] * (rows[i] - self.C[i] @ y))

        return jax.lax.fori_loop(0, rows.size, entry, jnp.zeros_like(rows))

    def solve_transposed(self, y: Float[Array, " m"]) -> Float[Array, " m"]:
        """λ with (C + S⁻¹)ᵀ λ = y, zero on the rows that do not count."""
        if y.size == 0:
            return y

        def entry(k, x):
            i = y.size - 1 - k
            return x.at[i].set(self.scale[i] * (y[i] - self.C[:, i] @ x))

        return jax.lax.fori_loop(0, y.size, entry, jnp.zeros_like(y))


def cholesky(S: Float[Array, "m m"]) -> Triangle:
    """L, where S = L Lᵀ. Where S is sparse so is L, which L⁻¹ need not be. NaN as ``inverse_cholesky`` is."""
    m = S.shape[0]
    smallest = m * jnp.finfo(S.dtype).eps * jnp.diagonal(S)
    if 0 < m <= SPARSE:
        return _column_by_column(S, smallest)
    C, scale = jnp.zeros((m, m), S.dtype), jnp.zeros(m, S.dtype)
    for start in range(0, m, BLOCK):
        stop = min(start + BLOCK, m)
        done = C[start:stop, :start]
        rest = S[start:, start:stop] - C[start:, :start] @ done.T
        L_transposed, L_inverse = _eliminate(rest[: stop - start], smallest[start:stop])
        C = C.at[start:stop, start:stop].set(jnp.tril(L_transposed.T, -1))
        C = C.at[stop:, start:stop].set(rest[stop - start :] @ L_inverse.T)
        scale = scale.at[start:stop].set(jnp.diagonal(L_inverse))
    return Triangle(C, scale)


class Basis(NamedTuple):
    """An orthonormal basis V (m, n) of the row space of a matrix B = (C + S⁻¹) V.

    The ``triangle`` says how. Its ``scale`` is 0 for a row that is a combination of those before it, to which V has
    nothing but zeros to add; that row of B is C V.
    """

    V: Float[Array, "m n"]
    triangle: Triangle


def _column_by_column(S, smallest):
    """No product with an inverse, so that a zero stays one wherever there is nothing to fill it."""
    index = jnp.arange(S.shape[0])

    def eliminate(j, state):
        rest, C, scale = state
        inverse = jax.lax.rsqrt(jnp.where(rest[j, j] > smallest[j], rest[j, j], jnp.nan))
        below = jnp.where(index > j, rest[:, j] * inverse, 0)
        return rest - below[:, None] * below, C.at[:, j].set(below), scale.at[j].set(inverse)

    start = S, jnp.zeros_like(S), jnp.zeros_like(smallest)
    return Triangle(*jax.lax.fori_loop(0, S.shape[0], eliminate, start)[1:])


def orthonormal_rows(
    B: Float[Array, "m n"], tolerance: Float[Array, ""] | float, most: Bool[Array, " m"] | None = None
) -> Basis:
    """The basis of B's rows that Gram–Schmidt gives, row after row, each orthogonalised twice.

    A row of which no more than ``tolerance`` remains is a combination of those before it. ``most`` says which rows may
    count.
    """
    m, n = B.shape
    most = jnp.ones(m, bool) if most is None else most
    if m == 0:
        return Basis(B, Triangle(jnp.zeros((0, 0), B.dtype), jnp.zeros(0, B.dtype)))
    if m > BLOCK:
        return _block_by_block(B, tolerance, most)

    def take(i, basis):
        V, (C, scale) = basis
        along = V @ B[i]
        remainder = B[i] - along @ V
        again = V @ remainder  # rounding left this much of V in it; "twice is enough" (Kahan, in Parlett 1980, §6.9)
        remainder = remainder - again @ V
        square = jnp.sum(remainder**2)
        new = (square > tolerance**2) & most[i]
        length = jnp.where(new, jax.lax.rsqrt(jnp.where(new, square, 1)), 0)
        triangle = Triangle(C.at[i].set(along + again), scale.at[i].set(length))
        return Basis(V.at[i].set(length * remainder), triangle)

    start = Basis(jnp.zeros((m, n), B.dtype), Triangle(jnp.zeros((m, m), B.dtype), jnp.zeros(m, B.dtype)))
    return jax.lax.fori_loop(0, m, take, start)


def _block_by_block(B, tolerance, most):
    """The same, ``BLOCK`` rows at a time: each block is freed from those before it, made orthonormal row by row, and
    both once more."""
    m, n = B.shape
    V, C, scale = jnp.zeros((0, n), B.dtype), jnp.zeros((m, m), B.dtype), []
    for start in range(0, m, BLOCK):
        rows = B[start : start + BLOCK]
        stop = start + rows.shape[0]
        along = rows @ V.T
        first = orthonormal_rows(rows - along @ V, tolerance, most[start:stop])
        again = first.V @ V.T
        second = orthonormal_rows(first.V - again @ V, 0.0, first.triangle.scale > 0)
        # rows = along V + R₁ V₁ and V₁ = again V + R₂ V₂
        R1, R2 = _in_full(first.triangle), _in_full(second.triangle)
        R = R1 @ R2
        C = C.at[start:stop, :start].set(along + R1 @ again).at[start:stop, start:stop].set(jnp.tril(R, -1))
        length = jnp.diagonal(R)
        scale.append(jnp.where(length > 0, 1 / jnp.where(length > 0, length, 1), 0))
        V = jnp.concatenate([V, second.V])
    return Basis(V, Triangle(C, jnp.concatenate(scale)))


def _in_full(triangle):
    """C + S⁻¹, zero on the diagonal where a row did not count."""
    counts = triangle.scale > 0
    return triangle.C + jnp.diag(jnp.where(counts, 1 / jnp.where(counts, triangle.scale, 1), 0))
