"""Lagrange's multipliers: the method of most multibody programs."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .base import AbstractMethod, DenseFactorisation
from .kernels import SURE, inverse_cholesky, orthonormal_rows, surely_definite
from .scales import coordinate_scale, row_length


class KKT(AbstractMethod):
    """[M Aᵀ; A 0]⁻¹ = [W K; Kᵀ ·], solved whole by LAPACK's LU, in unit masses and rows of unit length.

    For rows of full rank only; M may be semidefinite if rank [M; A] = n. NaN where a row adds to those before it no
    more than √(10 (n + m) eps) of its length (2e-7 for twenty in float64, 5e-3 in float32): the matrix has the square
    of that for a pivot, and LU rarely meets one of exactly 0. For comparison with codes that use multipliers.
    Cost: about 2 (n + m)³.
    """

    finds_rank: ClassVar[bool] = False

    def keeping(self, kept: Bool[Array, " m"]) -> "KKT":
        return self

    def factorise(self, M: Float[Array, "n n"], A: Float[Array, "m n"]) -> DenseFactorisation:
        m, n = A.shape
        coordinate = coordinate_scale(M)
        length = row_length(A, coordinate)
        row = 1 / jnp.where(length > 0, length, 1)
        M_unit, A_unit = coordinate[:, None] * M * coordinate, row[:, None] * A * coordinate
        inverse = jnp.linalg.inv(jnp.block([[M_unit, A_unit.T], [A_unit, jnp.zeros((m, m), M.dtype)]]))
        inverse = jnp.where(_regular(M_unit, A_unit), inverse, jnp.nan)
        return DenseFactorisation(
            root=semidefinite_root(coordinate[:, None] * inverse[:n, :n] * coordinate),
            gain=coordinate[:, None] * inverse[:n, n:] * row,
            reachable=jnp.eye(m, dtype=A.dtype),
            kept=jnp.ones(m, bool),
            rank=jnp.asarray(m),
        )


def _regular(M, A):
    """Whether the rows of A are independent, and M positive definite where they leave a motion free."""
    m, n = A.shape
    if m > n:
        return jnp.asarray(False)
    least = (SURE * (n + m) * float(jnp.finfo(A.dtype).eps)) ** 0.5
    independent = orthonormal_rows(A, least).triangle.scale > 0
    together = M + A.T @ A
    return jnp.all(independent) & surely_definite(together, inverse_cholesky(together))


def semidefinite_root(W: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """F with F Fᵀ = W, for W symmetric positive semidefinite up to rounding."""
    size, axes = jnp.linalg.eigh((W + W.T) / 2)
    return axes * jnp.sqrt(jnp.maximum(size, 0))
