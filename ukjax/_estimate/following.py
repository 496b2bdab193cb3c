"""How well a motion follows what it is to follow: the standard cost of tuning."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._check import as_number
from .._motion.trajectory.trajectory import Trajectory
from .._system import AbstractSystem

BEYOND = 1e3
"""What an actuator costs that is driven to twice its limit, in the standard cost."""


def following_cost(effort: float = 0.0) -> Callable[[Trajectory], Array]:
    """The standard cost of one motion: mean |error|² + ``effort`` mean |force|², over the samples.

    The error is the system's own ``task_error(t, q, v)`` (k,) if it has one, that of its control's task, or that of the
    constraints of a system without control, as they are written; the force is u, or the constraint force. Where the
    control has limits, what goes beyond them costs as well.
    """
    weight = as_number("effort", effort, least=0, below=float("inf"))

    def cost(motion: Trajectory) -> Array:
        error = following_error(motion)
        force = motion.constraint_force if motion.control is None else motion.control
        total = jnp.mean(jnp.sum(error**2, axis=-1)) + weight * jnp.mean(jnp.sum(force**2, axis=-1))
        limits = getattr(getattr(motion.model, "control", None), "limits", None)
        if limits is not None and motion.control is not None:
            total += BEYOND * jnp.mean(jnp.sum(jnp.maximum(0, jnp.abs(motion.control) / limits - 1) ** 2, axis=-1))
        return total

    return cost


def following_error(motion: Trajectory) -> Array:
    """What the motion, or each of a batch, is to bring to zero, (samples, k): see ``following_cost``."""
    if isinstance(motion.model, AbstractSystem):
        flat = lambda x: x.reshape(-1, x.shape[-1])
        states = motion.t.reshape(-1), flat(motion.q), flat(motion.v)
        error = jax.vmap(motion.model.task_error)(*states)
        if error is not None:
            return error.reshape(*motion.t.shape, -1)
    return motion.residual if motion.task_residual is None else motion.task_residual
