"""Integration options that are stored with a trajectory, to evaluate it between its samples."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._check import as_array, check_finite
from ..._errors import InputError
from ..._jaxpr.tracing import is_concrete
from ..._precision import Numbers
from ..._solve import AbstractMethod
from ..problem import Problem


class IntegrationOptions(eqx.Module):
    """The options with which ``simulate`` integrated a motion.

    Arrays have the batch axis of the trajectory.

    Parameters
    ----------
    rtol, atol
        Tolerances per step.
    dt
        Step size [s], None for adaptive steps.
    switches
        Times [s] at which the model is discontinuous.
    drift
        Drift correction.
    solver
        diffrax solver, None for the default.
    max_steps
        Largest number of steps.
    throw
        Whether failures raise an error.
    batch_axes
        Number of batch axes, 0 or 1, that share one model.
    simulate
        The function ``ukjax.simulate``.
    """

    rtol: Float[Array, "..."]
    atol: Float[Array, "..."] | None
    dt: Float[Array, "..."] | None
    switches: Float[Array, "..."] | None
    drift: str = eqx.field(static=True)
    solver: Any = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)
    throw: bool = eqx.field(static=True)
    batch_axes: int = eqx.field(static=True)
    simulate: Callable = eqx.field(static=True)

    @classmethod
    def of(
        cls,
        problem: Problem,
        batch: tuple[int, ...],
        switches: Array | None,
        drift: str,
        max_steps: int,
        throw: bool,
        simulate: Callable,
    ) -> "IntegrationOptions":
        """The options of ``problem``, for starts of the shape ``batch``.

        ``simulate`` is an argument, since the module that defines it imports this one.
        """
        return cls(
            rtol=_for_each(problem.rtol, batch),
            atol=_for_each(problem.atol, batch),
            dt=_for_each(problem.dt, batch),
            switches=_for_each(switches, batch),
            drift=drift,
            solver=problem.solver,
            max_steps=max_steps,
            throw=throw,
            batch_axes=len(batch),
            simulate=simulate,
        )

    def states(
        self,
        model: Any,
        method: AbstractMethod,
        t: Float[np.ndarray, " samples"],
        q: Array | np.ndarray,
        v: Array | np.ndarray,
        times: Float[np.ndarray, " k"],
    ) -> tuple[Array, Array]:
        """q and v at ``times``, each integrated from the last sample before it; at a sample, that sample.

        The samples ``t`` increase strictly, and the times lie within them. ``q`` and ``v`` have shape (samples, n), or
        (batch, samples, n).
        """
        rtol, atol, dt, switches = (
            x if x is None or not self.batch_axes else x[0] for x in (self.rtol, self.atol, self.dt, self.switches)
        )
        distinct, place = np.unique(times, return_inverse=True)
        before = np.searchsorted(t, distinct, side="right") - 1
        parts = []
        for k in np.unique(before):
            inside = distinct[before == k]
            part = q[..., k : k + 1, :], v[..., k : k + 1, :]
            after_sample = inside[inside > t[k]]
            if after_sample.size:
                motion = self.simulate(
                    model,
                    q[..., k, :],
                    v[..., k, :],
                    np.append(t[k], after_sample).astype(t.dtype),
                    drift=self.drift,
                    dt=None if dt is None else jnp.minimum(dt, after_sample[-1] - t[k]),
                    rtol=rtol,
                    atol=atol,
                    method=method,
                    solver=self.solver,
                    switches=switches,
                    max_steps=self.max_steps,
                    throw=self.throw,
                )
                # With the sample itself, if it is wanted too.
                wanted = slice(0 if after_sample.size < inside.size else 1, None)
                integrated = motion.q[..., 1:, :], motion.v[..., 1:, :]
                part = tuple(_joined([x, y])[..., wanted, :] for x, y in zip(part, integrated, strict=True))
            parts.append(part)
        of_q, of_v = (_joined([part[i] for part in parts])[..., place, :] for i in (0, 1))
        return jnp.asarray(of_q), jnp.asarray(of_v)


def check_times_within(t: Numbers, first: float, last: float, dtype: Any) -> Float[np.ndarray, " k"]:
    """``t`` as concrete times (k,) between ``first`` and ``last``, or raise ``InputError``.

    One number is one time.
    """
    array = as_array("t", t, "times")
    if not is_concrete(array):
        raise InputError(
            "t must be known times: under jit or vmap, and for derivatives with respect to t, give these times to "
            "ukjax.simulate, as ts"
        )
    times = np.asarray(array)
    if times.ndim > 1 or times.size == 0:
        raise InputError(f"t must be one time [s], or times of shape (k,), got shape {times.shape}")
    check_finite("t", times)
    times = np.atleast_1d(times).astype(dtype)
    outside = times[(times < first) | (times > last)]
    if outside.size:
        raise InputError(f"t must lie within the motion, {first:.9g} to {last:.9g} s, got {outside[0]:.9g}")
    return times


def _for_each(x, batch):
    """``x`` repeated along the batch axis, by NumPy if it is concrete: JAX would compile a program for it."""
    if x is None or not batch:
        return x
    shape = (*batch, *x.shape)
    return jax.device_put(np.broadcast_to(np.asarray(x), shape)) if is_concrete(x) else jnp.broadcast_to(x, shape)


def _joined(parts):
    return (
        np.concatenate([np.asarray(x) for x in parts], axis=-2)
        if is_concrete(parts)
        else jnp.concatenate(parts, axis=-2)
    )
