"""The equation for systems with singular mass matrices, as Udwadia and Phohomsiri wrote it."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .base import AbstractMethod, Response, check_rank_rule
from .kernels import orthonormal_rows
from .kkt import semidefinite_root
from .scales import row_scale


class UdwadiaPhohomsiri(AbstractMethod):
    """q̈ = [(I − A⁺A) M; A]⁺ [Q; b], Proc. R. Soc. A 462 (2006) 2097, by LAPACK's singular values.

    Takes redundant and inconsistent rows and a semidefinite M with rank [M; A] = n. Needs coordinates and rows of
    comparable units: a row or mass below ``rtol`` of the largest is taken for zero (default √eps).
    Cost: two singular value decompositions, about 25 (n + m) n².
    """

    rtol: float | None = None
    kept: Bool[Array, " m"] | None = None
    finds_rank: ClassVar[bool] = True

    def __check_init__(self):
        check_rank_rule(self.rtol, self.kept)

    def keeping(self, kept: Bool[Array, " m"]) -> "UdwadiaPhohomsiri":
        return UdwadiaPhohomsiri(self.rtol, kept)

    def respond(self, M: Float[Array, "n n"], A: Float[Array, "m n"]) -> Response:
        n, eps = M.shape[0], jnp.finfo(M.dtype).eps
        rtol = jnp.sqrt(eps) if self.rtol is None else self.rtol
        A = A if self.kept is None else jnp.where(self.kept[:, None], A, 0)
        U, s, Vt = jnp.linalg.svd(A, full_matrices=False)
        kept = s > rtol * jnp.max(s, initial=0)
        V, U = jnp.where(kept[:, None], Vt, 0), jnp.where(kept, U, 0)
        free = jnp.eye(n, dtype=M.dtype) - V.T @ V
        # Both blocks to the same size first: they are solved together, in no common unit.
        unit = jnp.max(s, initial=0) / jnp.max(jnp.abs(M))
        unit = jnp.where((unit > 0) & jnp.isfinite(unit), unit, 1)
        inverse = jnp.linalg.pinv(jnp.concatenate([unit * free @ M, A]), rtol=n * eps)
        return Response(
            root=semidefinite_root(unit * inverse[:, :n] @ free),
            gain=inverse[:, n:],
            reachable=U @ U.T,
            kept=orthonormal_rows(row_scale(A, jnp.ones(n, A.dtype))[:, None] * A, rtol).triangle.scale > 0,
            rank=jnp.sum(kept),
        )
