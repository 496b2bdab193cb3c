"""The fastest method, for rows that are known to be independent."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .base import AbstractMethod, Response
from .kernels import inverse_cholesky


class Cholesky(AbstractMethod):
    """K = W Aᵀ (A W Aᵀ)⁻¹ with W = M⁻¹, by two Cholesky factorisations, without LAPACK.

    For M positive definite and rows of full rank only: NaN otherwise, since a redundant row makes A W Aᵀ singular.
    That matrix has the squared condition number of B: expect half the digits in float32.
    Cost: about n³/3 + m n² + m² n + m³/3 multiplications.
    """

    finds_rank: ClassVar[bool] = False

    def keeping(self, kept: Bool[Array, " m"]) -> "Cholesky":
        return self

    def respond(self, M: Float[Array, "n n"], A: Float[Array, "m n"]) -> Response:
        m = A.shape[0]
        F = inverse_cholesky(M).T
        B = A @ F
        Z = inverse_cholesky(B @ B.T)
        V = Z @ B  # orthonormal, since Z (B Bᵀ) Zᵀ = I
        return Response(
            root=F - (F @ V.T) @ V,
            gain=(F @ V.T) @ Z,
            reachable=jnp.eye(m, dtype=A.dtype),
            kept=jnp.ones(m, bool),
            rank=jnp.asarray(m),
        )
