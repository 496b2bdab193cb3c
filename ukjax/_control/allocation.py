"""Control allocation: the solution of least norm of the servo equation G u = b̄.

The motion is an affine function of u, q̈ = a + W B u, where a is the acceleration with the actuators off. The task
A q̈ = b requires

    G u = b̄,      G = A W B,      b̄ = b − A a,

and W satisfies every structural constraint for all u. Of all solutions, the one nearest to s in the norm
(u − s)ᵀ N (u − s) solves the equation of a constrained motion, with N for M, N s for Q and G for A:

    u = s + N^(-1/2) (G N^(-1/2))⁺ (b̄ − G s),

which for N = I is u = G⁺ b̄ + (I − G⁺G) s. Liu et al. 2015, eq. 35, have A M⁻¹ B in the place of G. Without the
projector in W = M⁻¹N_h, the motors change the constraint forces of the joints, and neither task nor joints are
satisfied.
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
"""Tolerance for the unreachable part of a task, relative to the terms of the task."""

FEASIBLE_ROUNDINGS = 64
"""An unreachable part is set to zero below this many roundings of the terms from which it is computed."""


def passive_mobility(model: Callable[..., Terms], t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Mobility:
    """Return the mobility of a system, or of a function (t, q, v) -> ``Terms``, with its actuators off."""
    return mobility(getattr(model, "passive", model)(t, q, v))


def allocate(
    motion: Mobility,
    A: Float[Array, "m n"],
    b: Float[Array, " m"],
    B: Float[Array, "n p"],
    N: Float[Array, "p p"],
    s: Float[Array, " p"],
) -> Command:
    """Solve A (a + W B u) = b for the u (p,) nearest to s in the norm of N.

    If there is no solution, u minimises the residual in the least-squares sense.
    """
    G = A @ (motion.matrix @ B)
    wanted = b - A @ motion.acceleration

    constants = jax.lax.stop_gradient((G, A, B, N, motion.scale))
    factorisation = _factorise(*constants)
    u = solve(N, G, N @ s, wanted, factorisation)
    missing = wanted - G @ u
    terms = jnp.abs(b) + jnp.abs(A) @ jnp.abs(motion.acceleration) + jnp.abs(G) @ jnp.abs(u)
    negligible = jnp.abs(missing) <= FEASIBLE_ROUNDINGS * jnp.finfo(missing.dtype).eps * terms
    return Command(u=u, rank=factorisation.rank, unreachable=jnp.where(negligible, 0, missing), wanted=wanted)


def shortfall(command: Command, labels: list[str], terms: np.ndarray) -> str:
    """Describe the unreachable part of a task in words; empty if it is negligible. All values must be concrete.

    ``labels`` are the names of the task rows, ``terms`` (m,) the magnitudes of the terms that add up to ``wanted``.
    """
    missing, wanted = np.asarray(command.unreachable), np.asarray(command.wanted)
    size = float(np.linalg.norm(missing))
    if not np.isfinite(size) and np.all(np.isfinite(wanted)):
        return (
            "the actuator forces it requires are not finite there: check B, secondary, and whether weight is positive"
        )
    if not np.isfinite(size):
        return f"the motion with the actuators off is not finite there (rows {', '.join(map(repr, labels))})"
    if np.all(np.abs(missing) <= UNREACHED * terms):
        return ""
    shares = [(share, label) for share, label in zip(missing / size, labels, strict=True) if abs(share) > 1e-3]
    direction = " ".join(f"{share:+.3g} {label!r}" for share, label in shares)
    return (
        f"of the {np.linalg.norm(wanted):.3g} it asks of the actuators, {size:.3g} is out of their reach, along "
        f"{direction}; they move {int(command.rank)} of its {missing.size} rows independently. Drop that part of the "
        "task, add an actuator that moves it, or stay away from the pose where the actuators lose it"
    )


def _factorise(G, A, B, N, scale) -> Orthonormalised:
    F = inverse_cholesky(N).T
    # The rank is decided relative to the largest effect of the actuators on the unconstrained system. Otherwise a row
    # of G that the structural constraints have reduced to rounding errors would be scaled up and counted as reachable.
    largest_column = jnp.max(jnp.sqrt(jnp.sum((scale[:, None] * (B @ F)) ** 2, axis=0)), initial=0)
    row_scales = row_scale(A, scale) / jnp.where(largest_column > 0, largest_column, 1)
    return orthonormalise(G, F, row_scales, jnp.sqrt(jnp.finfo(G.dtype).eps))
