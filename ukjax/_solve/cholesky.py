"""Cholesky method: the fastest one, for rows that are known to be independent."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .base import AbstractMethod, DenseFactorisation
from .kernels import inverse_cholesky, surely_definite
from .scales import coordinate_scale


class Cholesky(AbstractMethod):
    """K = W Aᵀ (A W Aᵀ)⁻¹ with W = M⁻¹, by two Cholesky factorisations, without LAPACK.

    Requires M positive definite and A of full row rank; returns NaN otherwise, because a redundant row makes A W Aᵀ
    singular. The condition number of that matrix is the square of that of B = A M^(-1/2): expect half the digits in
    float32. The result is also NaN if the part of a row that is independent of the other rows is smaller than about
    √(10 m eps) of the row (1.5e-7 for ten rows in float64, 3e-3 in float32), because rounding can cause it.
    Cost: about n³/3 + m n² + m² n + m³/3 multiplications.
    """

    finds_rank: ClassVar[bool] = False

    def with_active_rows(self, kept: Bool[Array, " m"]) -> "Cholesky":
        return self

    def factorise(self, M: Float[Array, "n n"], A: Float[Array, "m n"]) -> DenseFactorisation:
        m = A.shape[0]
        F = inverse_cholesky(M).T
        B = A @ F
        S = B @ B.T
        Z = inverse_cholesky(S)
        is_regular = surely_definite(M, F.T) & surely_definite(S, Z, _rounding(A, F, S, coordinate_scale(M)))
        F = jnp.where(is_regular & (m <= A.shape[1]), F, jnp.nan)
        V = Z @ B  # orthonormal, since Z (B Bᵀ) Zᵀ = I
        return DenseFactorisation(
            root=F - (F @ V.T) @ V,
            gain=(F @ V.T) @ Z,
            reachable=jnp.eye(m, dtype=A.dtype),
            kept=jnp.ones(m, bool),
            rank=jnp.asarray(m),
        )


def _rounding(A, F, S, coordinate):
    """Return a bound of the rounding error of the diagonal of S = B Bᵀ, B = A F: m eps S_ii, plus the square of
    n eps |A_i| |F| in unit masses, which is the remainder that rounding of B leaves of a dependent row."""
    m, n = A.shape
    eps = jnp.finfo(S.dtype).eps
    squared_sizes = jnp.sum((A * coordinate) ** 2, axis=1) * jnp.sum((F / coordinate[:, None]) ** 2)
    return m * eps * jnp.diagonal(S) + (n * eps) ** 2 * squared_sizes
