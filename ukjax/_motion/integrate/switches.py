"""Times at which forces jump: a step ends just before each, and another begins just after it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..._check import as_array, check_finite, is_concrete, without_derivatives
from ..._precision import Numbers
from ..problem import Solution

SIDE = 8
"""Half the width of the gap around a switch, in units of the last place of the largest time: rounding then takes no
stage of a step across the switch."""


def check_switches(switches: Numbers, solver: Any) -> Array:
    """One row of finite times, and a solver that evaluates forces within its steps only, or ``ValueError``."""
    times = as_array("switches", switches, "times")
    if times.ndim != 1:
        raise ValueError(f"switches must be times in one row, shape (switches,), got shape {times.shape}")
    check_finite("switches", times)
    tableau = getattr(solver, "tableau", None)
    latest = max(
        (float(np.max(part.c, initial=0)) for part in getattr(tableau, "tableaus", [tableau]) if part), default=0
    )
    if latest > 1:
        raise ValueError(
            f"switches need a solver that evaluates forces within each step only, and {type(solver).__name__} does so "
            f"{latest:.3g} times its length after the start of a step: take another, such as diffrax.KenCarp5()"
        )
    return times


class Stops(NamedTuple):
    """The ``times`` at which steps have to end, and the ``places`` of the samples among them."""

    times: Float[Array, " stops"]
    places: Int[Array | np.ndarray, " samples"]


def stops_of(ts: Float[Array, "*batch samples"], switches: Float[Array, " switches"]) -> Stops:
    """The samples ``ts`` and, for each of the ``switches`` that lie between them, a time before it and one after it.

    Every loop over time ends a step at each sample, and so at each switch. Derivatives by ts and by switches pass
    through.
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
    """The two ends of the gap around each switch."""
    switches = switches.astype(ts.dtype)
    largest = jnp.maximum(jnp.max(jnp.abs(ts)), jnp.max(jnp.abs(switches), initial=0))
    half = jax.lax.stop_gradient(SIDE * jnp.finfo(ts.dtype).eps * largest)
    return jnp.concatenate([switches - half, switches + half])


def _stops_of_same_number(ts, gaps):
    """Stops whose number does not depend on values: what lies outside is moved to the nearest end."""
    times = jnp.clip(jnp.concatenate([ts, gaps]), ts[0], ts[-1])
    order = jnp.argsort(jax.lax.stop_gradient(times), stable=True)
    return Stops(times[order], jnp.argsort(order)[: ts.size])


def at_samples(samples: Solution, stops: Stops) -> Solution:
    """``samples`` at all stops without those that are no samples of the user's. The instant of an event, which follows
    all stops, stays."""
    places, count = stops.places, stops.times.shape[-1]
    xp = np if isinstance(places, np.ndarray) else jnp
    more = xp.broadcast_to(xp.arange(count, samples.t.shape[-1]), (*places.shape[:-1], samples.t.shape[-1] - count))
    places = xp.concatenate([places, more], axis=-1)
    if places.ndim == 2:
        t, q, v = jax.vmap(lambda tree, at: jax.tree.map(lambda x: x[at], tree))(samples[:3], places)
    else:
        t, q, v = samples.t[..., places], samples.q[..., places, :], samples.v[..., places, :]
    return samples._replace(t=t, q=q, v=v)
