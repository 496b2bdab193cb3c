"""Reference method: the formula as printed by Udwadia and Kalaba, with a pseudoinverse by SVD."""

from dataclasses import replace
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .base import AbstractMethod, DenseFactorisation, check_rank_rule
from .kernels import orthonormal_rows
from .scales import coordinate_scale, row_scale


class SVD(AbstractMethod):
    """K = M^(-1/2) (A M^(-1/2))⁺ by LAPACK's SVD: slow, and the most reliable method to determine the rank.

    Accepts the same systems as ``Orthogonal``, with two differences: a *combination* of rows is redundant if its
    singular value is below ``rtol`` of the largest (default √eps), and the masses of coordinates may differ by a factor
    of at most 1/eps. Use it to check results, not for batches.
    Cost: one eigenvalue and two singular value decompositions, about 20 (n + m)³.

    Parameters
    ----------
    rtol
        Tolerance of the rank, between 0 and 1. Default: √eps.
    kept
        (m,) mask of the rows that may be independent. Default: all rows.
    least
        As in ``Orthogonal``.
    """

    rtol: float | None = None
    kept: Bool[Array, " m"] | None = None
    least: float | None = None
    finds_rank: ClassVar[bool] = True

    def __check_init__(self):
        check_rank_rule(self.rtol, self.kept)

    def with_active_rows(self, kept: Bool[Array, " m"]) -> "SVD":
        return replace(self, kept=kept)

    def factorise(self, M: Float[Array, "n n"], A: Float[Array, "m n"]) -> DenseFactorisation:
        rtol = jnp.sqrt(jnp.finfo(M.dtype).eps) if self.rtol is None else self.rtol
        coordinate = coordinate_scale(M)
        row = row_scale(A, coordinate, self.least)
        row = row if self.kept is None else jnp.where(self.kept, row, 0)
        A_unit = row[:, None] * A * coordinate
        mass, axes = jnp.linalg.eigh(coordinate[:, None] * M * coordinate + A_unit.T @ A_unit)
        F = coordinate[:, None] * (axes / jnp.sqrt(jnp.where(mass > mass.size * jnp.finfo(M.dtype).eps, mass, jnp.nan)))
        B = A_unit @ (F / coordinate[:, None])
        U, s, Vt = jnp.linalg.svd(B, full_matrices=False)
        kept = s > rtol * jnp.max(s, initial=0)
        V = jnp.where(kept[:, None], Vt, 0)
        B_plus = V.T @ (jnp.where(kept, 1 / jnp.where(kept, s, 1), 0)[:, None] * U.T)
        P = reachable(U, kept, row)
        return DenseFactorisation(
            root=F - (F @ V.T) @ V,
            gain=F @ (B_plus * row) @ P,
            reachable=P,
            kept=orthonormal_rows(B, rtol).triangle.scale > 0,
            rank=jnp.sum(kept),
        )


def reachable(U: Float[Array, "m k"], kept: Bool[Array, " k"], row: Float[Array, " m"]) -> Float[Array, "m m"]:
    """Return P = A A⁺, where the columns ``kept`` of U span the range of diag(row) A.

    P refers to the original units of the rows, because least squares depends on these units. P = I if the rows are
    independent.
    """
    unscale = jnp.where(row > 0, 1 / jnp.where(row > 0, row, 1), 0)
    basis, _, _ = jnp.linalg.svd(jnp.where(kept, unscale[:, None] * U, 0), full_matrices=False)
    basis = jnp.where(jnp.arange(kept.size) < jnp.sum(kept), basis, 0)
    return jnp.where(jnp.sum(kept) == row.size, jnp.eye(row.size, dtype=U.dtype), basis @ basis.T)
