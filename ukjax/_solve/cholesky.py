"""The fastest method, for rows that are known to be independent."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .base import AbstractMethod, DenseFactorisation
from .kernels import inverse_cholesky, surely_definite
from .scales import coordinate_scale


class Cholesky(AbstractMethod):
    """K = W Aᵀ (A W Aᵀ)⁻¹ with W = M⁻¹, by two Cholesky factorisations, without LAPACK.

    For M positive definite and rows of full rank only: NaN otherwise, since a redundant row makes A W Aᵀ singular.
    That matrix has the squared condition number of B: expect half the digits in float32, and NaN, too, where what a row
    adds to the others is some √(10 m eps) of its size (1.5e-7 for ten rows in float64, 3e-3 in float32), so little that
    rounding might have made it.
    Cost: about n³/3 + m n² + m² n + m³/3 multiplications.
    """

    finds_rank: ClassVar[bool] = False

    def keeping(self, kept: Bool[Array, " m"]) -> "Cholesky":
        return self

    def factorise(self, M: Float[Array, "n n"], A: Float[Array, "m n"]) -> DenseFactorisation:
        m = A.shape[0]
        F = inverse_cholesky(M).T
        B = A @ F
        S = B @ B.T
        Z = inverse_cholesky(S)
        sure = surely_definite(M, F.T) & surely_definite(S, Z, _rounding(A, F, S, coordinate_scale(M)))
        F = jnp.where(sure & (m <= A.shape[1]), F, jnp.nan)
        V = Z @ B  # orthonormal, since Z (B Bᵀ) Zᵀ = I
        return DenseFactorisation(
            root=F - (F @ V.T) @ V,
            gain=(F @ V.T) @ Z,
            reachable=jnp.eye(m, dtype=A.dtype),
            kept=jnp.ones(m, bool),
            rank=jnp.asarray(m),
        )


def _rounding(A, F, S, coordinate):
    """What rounding may make of the diagonal of S = B Bᵀ, B = A F: m eps of it, and what the rounding of B leaves of a
    dependent row, the square of n eps |A_i| |F|, in unit masses."""
    m, n = A.shape
    eps = jnp.finfo(S.dtype).eps
    spread = jnp.sum((A * coordinate) ** 2, axis=1) * jnp.sum((F / coordinate[:, None]) ** 2)
    return m * eps * jnp.diagonal(S) + (n * eps) ** 2 * spread
