"""Which u moves the task: the servo equation G u = b̄, least in norm.

With (a, W) the motion with the actuators off as an affine map, q̈ = a + W B u, the task A q̈ = b asks for

    G u = b̄,      G = A W B,      b̄ = b − A a,

and W keeps every constraint of the structure whatever u is. Among all u that do, the one nearest to s in the norm
(u − s)ᵀ N (u − s) solves the same equation as a constrained motion does, with N for M, N s for Q and G for A:

    u = s + N^(-1/2) (G N^(-1/2))⁺ (b̄ − G s),

which for N = I is u = G⁺ b̄ + (I − G⁺G) s (Liu et al. 2015, eq. 35, where A M⁻¹ B stands for G: without the projector
in W = M⁻¹N_h the motors and the constraint forces they cause in the joints disturb each other, and neither holds).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._equation import Mobility, mobility
from .._solve import Orthonormalised, inverse_cholesky, orthonormalise, row_scale, solve
from .._terms import Terms
from .base import Command

UNREACHED = 1e-6
"""What is missed of a task, beside the terms of what it asks, below which the actuators do what is asked of them."""

FEASIBLE = 64
"""Roundings, of the terms that it is computed from, that what is missed may be and yet be nothing."""


def undriven(model: Callable[..., Terms], t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Mobility:
    """The motion of ``model``, a system or a function (t, q, v) -> ``Terms``, with its actuators off."""
    return mobility(getattr(model, "passive", model)(t, q, v))


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
    missed = wanted - G @ u
    terms = jnp.abs(b) + jnp.abs(A) @ jnp.abs(motion.acceleration) + jnp.abs(G) @ jnp.abs(u)
    nothing = jnp.abs(missed) <= FEASIBLE * jnp.finfo(missed.dtype).eps * terms
    return Command(u=u, rank=response.rank, unreachable=jnp.where(nothing, 0, missed), wanted=wanted)


def shortfall(command: Command, labels: list[str], terms: np.ndarray) -> str:
    """What of its task a command misses, in words, with known numbers; empty if that is nothing. ``labels`` name the
    task's rows, ``terms`` (m,) are the sizes of what makes up ``wanted``."""
    missed, wanted = np.asarray(command.unreachable), np.asarray(command.wanted)
    size = float(np.linalg.norm(missed))
    if not np.isfinite(size) and np.all(np.isfinite(wanted)):
        return "what it asks of the actuators is not finite there: look at B, secondary, and whether weight is positive"
    if not np.isfinite(size):
        return f"the motion with the actuators off is not finite there (rows {', '.join(map(repr, labels))})"
    if np.all(np.abs(missed) <= UNREACHED * terms):
        return ""
    shares = [(share, label) for share, label in zip(missed / size, labels, strict=True) if abs(share) > 1e-3]
    direction = " ".join(f"{share:+.3g} {label!r}" for share, label in shares)
    return (
        f"of the {np.linalg.norm(wanted):.3g} it asks of the actuators, {size:.3g} is out of their reach, along "
        f"{direction}; they move {int(command.rank)} of its {missed.size} rows independently. Drop that part of the "
        "task, add an actuator that moves it, or stay away from the pose where the actuators lose it"
    )


def _respond(G, A, B, N, scale) -> Orthonormalised:
    F = inverse_cholesky(N).T
    # Ranks are decided against what the actuators could do were nothing in their way: a row of G that the structure
    # has reduced to rounding must not be scaled up and taken for one that can be moved.
    strength = jnp.max(jnp.sqrt(jnp.sum((scale[:, None] * (B @ F)) ** 2, axis=0)), initial=0)
    row = row_scale(A, scale) / jnp.where(strength > 0, strength, 1)
    return orthonormalise(G, F, row, jnp.sqrt(jnp.finfo(G.dtype).eps))
