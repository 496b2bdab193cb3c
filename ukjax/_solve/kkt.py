"""Lagrange's multipliers: the method of most multibody programs."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .base import AbstractMethod, Response


class KKT(AbstractMethod):
    """[M Aᵀ; A 0]⁻¹ = [W K; Kᵀ ·], solved whole by LAPACK's LU.

    For rows of full rank only; M may be semidefinite if rank [M; A] = n. Redundant rows make the matrix singular,
    and the result NaN, infinite or meaningless. For comparison with codes that use multipliers.
    Cost: about 2 (n + m)³.
    """

    finds_rank: ClassVar[bool] = False

    def keeping(self, kept: Bool[Array, " m"]) -> "KKT":
        return self

    def respond(self, M: Float[Array, "n n"], A: Float[Array, "m n"]) -> Response:
        m, n = A.shape
        inverse = jnp.linalg.inv(jnp.block([[M, A.T], [A, jnp.zeros((m, m), M.dtype)]]))
        return Response(
            root=semidefinite_root(inverse[:n, :n]),
            gain=inverse[:n, n:],
            reachable=jnp.eye(m, dtype=A.dtype),
            kept=jnp.ones(m, bool),
            rank=jnp.asarray(m),
        )


def semidefinite_root(W: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """F with F Fᵀ = W, for W symmetric positive semidefinite up to rounding."""
    size, axes = jnp.linalg.eigh((W + W.T) / 2)
    return axes * jnp.sqrt(jnp.maximum(size, 0))
