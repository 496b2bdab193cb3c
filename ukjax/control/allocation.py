"""Which u moves the task: the servo equation G u = b̄, least in norm.

With (a, W) the motion with the actuators off as an affine map, q̈ = a + W B u, the task A q̈ = b asks for

    G u = b̄,      G = A W B,      b̄ = b − A a,

and W keeps every constraint of the structure whatever u is. Among all u that do, the one nearest to s in the norm
(u − s)ᵀ N (u − s) solves the same equation as a constrained motion does, with N for M, N s for Q and G for A:

    u = s + N^(-1/2) (G N^(-1/2))⁺ (b̄ − G s),

which for N = I is u = G⁺ b̄ + (I − G⁺G) s (Liu et al. 2015, eq. 35, where A M⁻¹ B stands for G: without the projector
in W = M⁻¹N_h the motors and the constraint forces they cause in the joints disturb each other, and neither holds).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._equation import Mobility
from .._solve import Response, inverse_cholesky, pseudoinverse, row_scale, solve
from .base import Command


def allocate(
    motion: Mobility,
    A: Float[Array, "m n"],
    b: Float[Array, " m"],
    B: Float[Array, "n p"],
    N: Float[Array, "p p"],
    s: Float[Array, " p"],
) -> Command:
    """u (p,) with A (a + W B u) = b, nearest to s in the norm of N; least squares where there is none."""
    G = A @ (motion.matrix @ B)
    wanted = b - A @ motion.acceleration

    fixed = jax.lax.stop_gradient((G, A, B, N, motion.scale))
    response = _respond(*fixed)
    u = solve(N, G, N @ s, wanted, response)
    return Command(u=u, rank=response.rank, unreachable=wanted - G @ u, wanted=wanted)


def _respond(G, A, B, N, scale) -> Response:
    F = inverse_cholesky(N).T
    # Ranks are decided against what the actuators could do were nothing in their way: a row of G that the structure
    # has reduced to rounding must not be scaled up and taken for one that can be moved.
    strength = jnp.max(jnp.sqrt(jnp.sum((scale[:, None] * (B @ F)) ** 2, axis=0)), initial=0)
    row = row_scale(A, scale) / jnp.where(strength > 0, strength, 1)
    V, G_plus, P = pseudoinverse(G @ F, row, jnp.sqrt(jnp.finfo(G.dtype).eps))
    return Response(factor=F - (F @ V.T) @ V, gain=F @ G_plus, reachable=P, rank=jnp.sum(jnp.any(V != 0, axis=1)))
