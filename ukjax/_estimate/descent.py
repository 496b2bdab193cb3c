"""Stochastic gradient descent on batches of experiments."""

from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .loss import LOSS_DERIVATIVES
from .problem import Problem

if TYPE_CHECKING:
    import optax


def descend(
    problem: Problem, optimiser: "optax.GradientTransformation", batch: int, loss: str, steps: int
) -> Float[np.ndarray, " unknowns"]:
    """The unknowns after ``steps`` steps of ``optimiser``.

    Each uses the gradient ∂/∂x Σ ρ(r²)/2, divided by the number of residuals, of ``batch`` experiments drawn at random.
    """
    unknowns = jnp.asarray(problem.first())
    state = optimiser.init(unknowns)
    rng = np.random.default_rng(0)
    for _ in range(steps):
        chosen = rng.choice(len(problem.experiments), size=min(batch, len(problem.experiments)), replace=False)
        r, gradient = problem.gradient(
            np.asarray(unknowns), set(chosen.tolist()), lambda r: LOSS_DERIVATIVES[loss](r**2) * r
        )
        change, state = optimiser.update(jnp.asarray(gradient / len(r)), state, unknowns)
        unknowns = unknowns + jnp.asarray(change)
        problem.report(np.asarray(unknowns), r)
    return np.asarray(unknowns)
