"""``following_cost``: the default cost of ``tune``, the deviation of a motion from its task."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._check import as_number
from .._motion.trajectory.trajectory import Trajectory
from .._system import AbstractSystem

BEYOND = 1e3
"""Cost of an actuator at twice its limit."""


def following_cost(effort: float = 0.0) -> Callable[[Trajectory], Array]:
    """The default cost of ``tune``:  mean |error|² + ``effort`` · mean |force|², over the samples of one motion.

    The error is ``task_error(t, q, v)`` of the system if it defines that, else the residual of the task of its control;
    for a system without control, the residual of its constraints. The force is the control u, or the constraint force
    of a system without control. A control with limits adds  1000 · mean Σ max(0, |u| / limit − 1)².

    Parameters
    ----------
    effort : float, optional
        Weight of the force, at least 0 and finite, in units of error² per force². Default: 0.

    Returns
    -------
    callable
        ``cost(motion) -> float`` for the ``Trajectory`` of one motion.

    Raises
    ------
    InputError
        If ``effort`` is negative or not finite.
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
    """The error that ``following_cost`` measures, shape (samples, k), with a leading axis for a batch of motions."""
    if isinstance(motion.model, AbstractSystem):
        flatten = lambda x: x.reshape(-1, x.shape[-1])
        states = motion.t.reshape(-1), flatten(motion.q), flatten(motion.v)
        error = jax.vmap(motion.model.task_error)(*states)
        if error is not None:
            return error.reshape(*motion.t.shape, -1)
    return motion.residual if motion.task_residual is None else motion.task_residual
