"""Lagrange multipliers by a dense KKT matrix, the method of most multibody programs."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .base import AbstractMethod, DenseFactorisation
from .kernels import ROUNDING_MARGIN, inverse_cholesky, orthonormal_rows, surely_definite
from .scales import coordinate_scale, row_length


class KKT(AbstractMethod):
    """[M Aᵀ; A 0]⁻¹ = [W K; Kᵀ ·] by LAPACK's LU, in coordinates of unit mass and with rows of unit length.

    Requires rows of full rank. M may be semidefinite if rank [M; A] = n. The result is NaN if the component of a row
    orthogonal to the rows before it is at most √(10 (n + m) eps) of the row (for n + m = 20, 2e-7 in float64, 5e-3 in
    float32): the pivot of the matrix is the square of this ratio, and LU rarely finds a pivot of exactly 0. Use it for
    comparison with codes that use multipliers.
    Cost: about 2 (n + m)³.
    """

    finds_rank: ClassVar[bool] = False

    def with_active_rows(self, kept: Bool[Array, " m"]) -> "KKT":
        return self

    def factorise(self, M: Float[Array, "n n"], A: Float[Array, "m n"]) -> DenseFactorisation:
        m, n = A.shape
        coordinate = coordinate_scale(M)
        length = row_length(A, coordinate)
        row = 1 / jnp.where(length > 0, length, 1)
        M_unit, A_unit = coordinate[:, None] * M * coordinate, row[:, None] * A * coordinate
        inverse = jnp.linalg.inv(jnp.block([[M_unit, A_unit.T], [A_unit, jnp.zeros((m, m), M.dtype)]]))
        inverse = jnp.where(_is_regular(M_unit, A_unit), inverse, jnp.nan)
        return DenseFactorisation(
            root=semidefinite_root(coordinate[:, None] * inverse[:n, :n] * coordinate),
            gain=coordinate[:, None] * inverse[:n, n:] * row,
            reachable=jnp.eye(m, dtype=A.dtype),
            kept=jnp.ones(m, bool),
            rank=jnp.asarray(m),
        )


def _is_regular(M, A):
    """Whether the rows of A are independent and M is positive definite on the null space of A."""
    m, n = A.shape
    if m > n:
        return jnp.asarray(False)
    least = (ROUNDING_MARGIN * (n + m) * float(jnp.finfo(A.dtype).eps)) ** 0.5
    independent = orthonormal_rows(A, least).triangle.scale > 0
    augmented = M + A.T @ A
    return jnp.all(independent) & surely_definite(augmented, inverse_cholesky(augmented))


def semidefinite_root(W: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Return F with F Fᵀ = W, for W symmetric and positive semidefinite up to rounding."""
    size, axes = jnp.linalg.eigh((W + W.T) / 2)
    return axes * jnp.sqrt(jnp.maximum(size, 0))
