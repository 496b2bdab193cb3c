"""Switching times, at which forces are discontinuous.

A step ends just before each switching time, and another step begins just after it.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..._check import as_array, check_finite
from ..._errors import InputError
from ..._jaxpr.tracing import is_concrete, without_derivatives
from ..._precision import Numbers
from ..problem import Solution

HALF_GAP_ULPS = 8
"""Half the width of the gap around a switching time, in units in the last place of the largest time. Rounding then
moves no stage of a step across the switching time."""


def check_switches(switches: Numbers, solver: Any) -> Array:
    """Convert ``switches`` to an array, or raise ``InputError``.

    The times must be finite, in one dimension, and the solver must evaluate forces only within its steps.
    """
    times = as_array("switches", switches, "times")
    if times.ndim != 1:
        raise InputError(f"switches must be times in one row, shape (switches,), got shape {times.shape}")
    check_finite("switches", times)
    tableau = getattr(solver, "tableau", None)
    latest = 0.0 if tableau is None else float(np.max(tableau.c, initial=0))
    if latest > 1:
        raise InputError(
            f"switches need a solver that evaluates forces only within each step, but {type(solver).__name__} "
            f"evaluates them up to {latest:.3g} step lengths after its start: use another solver, such as "
            "ukjax.Radau()"
        )
    return times


class Stops(NamedTuple):
    """Times at which steps end.

    Attributes
    ----------
    times
        The samples and both ends of the gap around each switching time [s].
    places
        Indices of the samples in ``times``.
    """

    times: Float[Array, " stops"]
    places: Int[Array | np.ndarray, " samples"]


def stops_of(ts: Float[Array, "*batch samples"], switches: Float[Array, " switches"]) -> Stops:
    """Merge the samples ``ts`` with a time before and a time after each switching time that lies between them.

    Every integrator ends a step at each of these times. They are differentiable with respect to ts and switches.
    """
    if ts.ndim == 2:
        return jax.vmap(_stops_of_same_number, in_axes=(0, None))(ts, _gaps(ts, switches))
    gaps = _gaps(ts, switches)
    if not is_concrete(without_derivatives((ts, gaps))):
        return _stops_of_same_number(ts, gaps)
    samples, others = map(np.asarray, without_derivatives((ts, gaps)))
    others = np.flatnonzero((others > samples[0]) & (others < samples[-1]) & ~np.isin(others, samples))
    chosen = np.append(np.arange(samples.size), samples.size + others)
    times = jnp.concatenate([ts, gaps])
    chosen = chosen[np.argsort(np.asarray(without_derivatives(times))[chosen], kind="stable")]
    return Stops(times[chosen], np.flatnonzero(chosen < samples.size))


def _gaps(ts, switches):
    """Both ends of the gap around each switching time."""
    switches = switches.astype(ts.dtype)
    largest = jnp.maximum(jnp.max(jnp.abs(ts)), jnp.max(jnp.abs(switches), initial=0))
    half = jax.lax.stop_gradient(HALF_GAP_ULPS * jnp.finfo(ts.dtype).eps * largest)
    return jnp.concatenate([switches - half, switches + half])


def _stops_of_same_number(ts, gaps):
    """Stops whose number does not depend on values. Times outside of ts are moved to its nearest end."""
    times = jnp.clip(jnp.concatenate([ts, gaps]), ts[0], ts[-1])
    order = jnp.argsort(jax.lax.stop_gradient(times), stable=True)
    return Stops(times[order], jnp.argsort(order)[: ts.size])


def at_samples(solution: Solution, stops: Stops) -> Solution:
    """Select the user's samples from a solution at all stops.

    The time of an event, which follows all stops, remains.
    """
    places, count = stops.places, stops.times.shape[-1]
    xp = np if isinstance(places, np.ndarray) else jnp
    after_stops = xp.broadcast_to(
        xp.arange(count, solution.t.shape[-1]), (*places.shape[:-1], solution.t.shape[-1] - count)
    )
    places = xp.concatenate([places, after_stops], axis=-1)
    if places.ndim == 2:
        t, q, v = jax.vmap(lambda tree, indices: jax.tree.map(lambda x: x[indices], tree))(solution[:3], places)
    else:
        t, q, v = solution.t[..., places], solution.q[..., places, :], solution.v[..., places, :]
    held = None if solution.held is None else solution.held[..., places, :]
    contacts = None if solution.contacts is None else _contacts_at(solution.contacts, places, solution.t.ndim - 1)
    return solution._replace(t=t, q=q, v=v, held=held, contacts=contacts)


def _contacts_at(contacts, places, axis):
    """The contacts with the modes of the samples at ``places``."""
    if places.ndim == 2:
        return jax.vmap(lambda contacts, places: _contacts_at(contacts, places, 0))(contacts, places)
    modes = {name: jnp.take(mode, places, axis) for name, mode in contacts.mode._asdict().items()}
    return replace(contacts, **modes)
