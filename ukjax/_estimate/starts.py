"""Functions that turn the numbers z of a start into (q0, v0)."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._check import call
from .._functions import two_arrays
from .._motion.stepper.drift_correction import MethodPerLevel, correct_drift, same_at_every_level
from .._motion.stepper.scaling import scale_of
from .._parameters import Observed, Parameters
from .._solve import AbstractMethod
from .._system import AbstractSystem, split_state
from .._with_states import with_initial_states
from .experiment import Experiment

START_TOLERANCE = 1e-9  # largest residual of a start that is on the constraints


def start_state(
    observed: Observed, parameters: Parameters, experiments: Sequence[Experiment], known: bool, state: Callable | None
) -> Callable:
    """Choose the function ``(model, z, t, method) -> (q0, v0, needs_fallback)``.

    It is the user's ``state`` if given, else ``projected_state``. If the starts are not estimated (``known``), satisfy
    the constraints, and no parameter changes the constraints there, it is ``unprojected_state``, which compiles faster.
    """
    if state is not None:
        return UserState(state)
    model = observed.model
    if not known or not isinstance(model, AbstractSystem):
        return projected_state

    @jax.jit
    @jax.vmap
    def residuals(z, t):
        def residual(x):
            q, v = split_state(model, z)
            changed, v = with_initial_states(parameters.put(observed, x).model, q, v)
            residual_at_x = jnp.concatenate([changed.position_residual(t, q), changed.velocity_residual(t, q, v)])
            return residual_at_x, residual_at_x

        return jax.jacfwd(residual, has_aux=True)(jnp.zeros(len(parameters.names)))

    z = np.stack([np.atleast_2d(experiment.start)[0] for experiment in experiments])
    slope, residual_at_start = residuals(z, np.stack([experiment.t[0] for experiment in experiments]))
    return (
        unprojected_state
        if not np.any(slope) and np.all(np.abs(residual_at_start) < START_TOLERANCE)
        else projected_state
    )


class UserState(eqx.Module):
    """The user's ``state(model, z, t)`` -> (q0, v0)."""

    state: Callable

    def __call__(
        self, model: Any, z: Array, t: Array, method: AbstractMethod | MethodPerLevel
    ) -> tuple[Array, Array, Any]:
        q, v = two_arrays("state", "(q0, v0)", call("state", self.state, model, z, t))
        return q, with_initial_states(model, q, v)[1], False


def unprojected_state(
    model: Any, z: Array, t: Array, method: AbstractMethod | MethodPerLevel
) -> tuple[Array, Array, Any]:
    """(q0, v0) = z, without projection."""
    q, v = split_state(model, z)
    return q, with_initial_states(model, q, v)[1], False


def projected_state(
    model: Any, z: Array, t: Array, method: AbstractMethod | MethodPerLevel
) -> tuple[Array, Array, Any]:
    """(q0, v0) = z, projected onto the constraints, which noise in z may violate slightly."""
    q, v = split_state(model, z)
    model, v = with_initial_states(model, q, v)
    if not isinstance(model, AbstractSystem):
        return q, v, False
    levels = method if isinstance(method, MethodPerLevel) else same_at_every_level(method)
    corrected = correct_drift(model, t, q, v, levels, scale_of(model, t, q, v, driven=False))
    return corrected.q, corrected.v, corrected.needs_fallback
