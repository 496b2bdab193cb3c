"""Method of Udwadia and Phohomsiri for singular mass matrices."""

from dataclasses import replace
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .base import AbstractMethod, DenseFactorisation, check_rank_rule
from .kernels import orthonormal_rows
from .kkt import semidefinite_root
from .scales import row_scale
from .svd import reachable


class UdwadiaPhohomsiri(AbstractMethod):
    """q̈ = [(I − A⁺A) M; A]⁺ [Q; b], Proc. R. Soc. A 462 (2006) 2097, by LAPACK's SVD.

    Accepts redundant and inconsistent rows and a semidefinite M with rank [M; A] = n. The units of the coordinates must
    be comparable: a mass below ``rtol`` (default √eps) of the largest counts as zero, and so does such a combination of
    the rows, which are scaled to unit length.
    Cost: three singular value decompositions, about 30 (n + m) n².

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

    def with_active_rows(self, kept: Bool[Array, " m"]) -> "UdwadiaPhohomsiri":
        return replace(self, kept=kept)

    def factorise(self, M: Float[Array, "n n"], A: Float[Array, "m n"]) -> DenseFactorisation:
        n, eps = M.shape[0], jnp.finfo(M.dtype).eps
        rtol = jnp.sqrt(eps) if self.rtol is None else self.rtol
        row = row_scale(A, jnp.ones(n, A.dtype), self.least)
        row = row if self.kept is None else jnp.where(self.kept, row, 0)
        A = row[:, None] * A
        U, s, Vt = jnp.linalg.svd(A, full_matrices=False)
        kept = s > rtol * jnp.max(s, initial=0)
        V, U = jnp.where(kept[:, None], Vt, 0), jnp.where(kept, U, 0)
        P = reachable(U, kept, row)
        free = jnp.eye(n, dtype=M.dtype) - V.T @ V
        # Scale both blocks to the same size: they are solved together but have no common unit.
        unit = jnp.max(s, initial=0) / jnp.max(jnp.abs(M))
        unit = jnp.where((unit > 0) & jnp.isfinite(unit), unit, 1)
        inverse = jnp.linalg.pinv(jnp.concatenate([unit * free @ M, A]), rtol=n * eps)
        return DenseFactorisation(
            root=semidefinite_root(unit * inverse[:, :n] @ free),
            gain=(inverse[:, n:] * row) @ P,
            reachable=P,
            kept=orthonormal_rows(A, rtol).triangle.scale > 0,
            rank=jnp.sum(kept),
        )
