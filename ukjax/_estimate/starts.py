"""How a motion starts: where it was seen to, on the constraints."""

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
from .experiment import Experiment

START_TOLERANCE = 1e-9  # residuals of a start that counts as being on the constraints


def start_state(
    observed: Observed, parameters: Parameters, experiments: Sequence[Experiment], known: bool, state: Callable | None
) -> Callable:
    """How z becomes (q0, v0), and whether that is beyond what a method can do: by the user's ``state``, or else by
    ``near``, but as it is, which compiles sooner, where starts are ``known`` to be on the constraints and no parameter
    moves these."""
    if state is not None:
        return UserState(state)
    model = observed.model
    if not known or not isinstance(model, AbstractSystem):
        return projected_state

    @jax.jit
    @jax.vmap
    def missed(z, t):
        def of(x):
            q, v = split_state(model, z)
            this = parameters.put(observed, x).model
            found = jnp.concatenate([this.position_residual(t, q), this.velocity_residual(t, q, v)])
            return found, found

        return jax.jacfwd(of, has_aux=True)(jnp.zeros(len(parameters.names)))

    z = np.stack([np.atleast_2d(experiment.start)[0] for experiment in experiments])
    slope, off = missed(z, np.stack([experiment.t[0] for experiment in experiments]))
    return unprojected_state if not np.any(slope) and np.all(np.abs(off) < START_TOLERANCE) else projected_state


class UserState(eqx.Module):
    """The user's ``state(model, z, t)`` -> (q0, v0)."""

    state: Callable

    def __call__(
        self, model: Any, z: Array, t: Array, method: AbstractMethod | MethodPerLevel
    ) -> tuple[Array, Array, Any]:
        q, v = two_arrays("state", "(q0, v0)", call("state", self.state, model, z, t))
        return q, v, False


def unprojected_state(
    model: Any, z: Array, t: Array, method: AbstractMethod | MethodPerLevel
) -> tuple[Array, Array, Any]:
    """z = (q0, v0)."""
    return *split_state(model, z), False


def projected_state(
    model: Any, z: Array, t: Array, method: AbstractMethod | MethodPerLevel
) -> tuple[Array, Array, Any]:
    """z = (q0, v0), which noise may have moved off the constraints a little."""
    q, v = split_state(model, z)
    if not isinstance(model, AbstractSystem):
        return q, v, False
    levels = method if isinstance(method, MethodPerLevel) else same_at_every_level(method)
    found = correct_drift(model, t, q, v, levels, scale_of(model, t, q, v, driven=False))
    return found.q, found.v, found.needs_fallback
