"""The stops of sampled control, and the inputs that act from each of them.

The motion is cut at all its stops: samples, instants, and times at which inputs begin to act. Between two stops the
inputs are constant, so that nothing is interpolated.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..._control import AbstractControl, InputsAtInstant
from ..._errors import InputError
from ..._system import AbstractSystem, AbstractVariant
from ..problem import Schedule
from .fixed_step import step_counts

SAME_TIME = 1e-9
"""Times closer than this fraction of the period are one stop; so are times that differ by rounding."""

ROUNDING = 4
"""Largest rounding error of a time, relative to the distance of neighbouring numbers at the largest time."""

SHORTEST_PERIOD = 10
"""Shortest period, relative to the largest rounding error of a time."""

MAX_INSTANTS = 10_000_000
"""Largest number of instants of a motion."""


def schedule_of(times: np.ndarray, period: float, delay: float, dt: float | None, dtype: Any) -> Schedule:
    """The stops of a motion with samples at ``times`` (samples,), for steps that are not longer than ``dt``.

    ``dtype`` is the type of the times in the program.
    """
    largest = np.max(np.abs(times)) + delay
    rounding = ROUNDING * float(np.spacing(largest.astype(dtype)))
    if period < SHORTEST_PERIOD * rounding:
        raise InputError(
            f"ts are so large that {dtype} does not resolve the period, {period:g} s: times of {largest:.3g} s are "
            f"rounded by up to {rounding:.2g} s. Let ts begin at 0"
        )
    same, begin, end = max(SAME_TIME * period, rounding), times[0], times[-1]
    if (end - begin) / period > MAX_INSTANTS:
        count = f"{(end - begin) / period:.3g}"
        raise InputError(f"period must be longer: a period of {period:g} s gives {count} instants in {end - begin:g} s")
    first, last = np.floor((begin + same) / period) + 1, np.floor((end + same) / period)
    multiples = np.arange(first, last + 1)
    instants = np.append(begin, multiples * period)
    all_times = np.concatenate([times, instants, instants + delay])
    size, count = times.size, instants.size
    order = np.argsort(all_times, kind="stable")
    order = order[all_times[order] <= end + same]
    # Each stop is a group of times that differ by rounding. Its time is that of a sample, if there is one. Two samples
    # are two stops: both ends of the gap around a switching time are samples, and a step must end at each of them.
    groups, first_time = [], -np.inf
    for i in order:
        if all_times[i] - first_time > same or i < size and min(groups[-1]) < size:
            groups.append([])
            first_time = all_times[i]
        groups[-1].append(int(i))
    chosen = np.array([min(group) for group in groups])
    in_group = lambda low, high: np.array([sum(low <= i < high for i in group) for group in groups])
    instant, acting = in_group(size, size + count), in_group(size + count, size + 2 * count)
    places = np.zeros(size, int)
    for place, group in enumerate(groups):
        places[[i for i in group if i < size]] = place
    latest, acting = np.cumsum(instant) - 1, np.cumsum(acting) - 1
    stops = all_times[chosen]
    counts = np.ones(stops.size - 1, int) if dt is None else step_counts(stops, dt)
    arrays = multiples.astype(int), chosen, instant > 0, latest, acting, places, counts
    return Schedule(
        *jax.device_put(arrays), most=int(counts.max(initial=1)), memory=int(np.max(latest - acting, initial=0)) + 1
    )


class ScheduledStops(NamedTuple):
    """The stops of a motion, (stops,) each, or one of them.

    Attributes
    ----------
    time
        Time [s].
    instant
        Whether it is an instant.
    latest, acting
        See ``Schedule``.

    Without sampled control only the time is not None.
    """

    time: Float[Array, "*stops"]
    instant: Any = None
    latest: Any = None
    acting: Any = None

    def at(self, index: Any) -> "ScheduledStops":
        """The stops at an index or a slice."""
        return jax.tree.map(lambda x: x[index], self)


def scheduled_stops(model: Any, schedule: Schedule | None, ts: Float[Array, " samples"]) -> ScheduledStops:
    """The stops of a motion with samples at ``ts``: the samples only, without sampled control."""
    if schedule is None:
        return ScheduledStops(ts)
    sampling = model.control.sampling
    instants = jnp.concatenate([ts[:1], schedule.multiples * sampling.period])
    times = jnp.concatenate([ts, instants, instants + sampling.delay])[schedule.chosen]
    return ScheduledStops(times, schedule.instant, schedule.latest, schedule.acting)


class SampledInputs(NamedTuple):
    """The inputs of the latest instants, and the inputs ``u`` that act now.

    The inputs of instant k are in row k of the memory, modulo the number of rows.
    """

    memory: Float[Array, "instants p"]
    u: Float[Array, " p"]

    @property
    def instants(self) -> int:
        """Number of instants that are remembered."""
        return self.memory.shape[0]

    def acting_from(self, stop: ScheduledStops) -> Float[Array, " p"]:
        """The inputs that act from a stop, if they are in the memory; 0 until the first inputs act."""
        return jnp.where(stop.acting < 0, 0, self.memory[stop.acting % self.instants])

    def after(
        self, stop: ScheduledStops, model: Any, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]
    ) -> "SampledInputs":
        """The inputs after a stop with this state. At an instant the law is evaluated."""
        put = lambda: self.memory.at[stop.latest % self.instants].set(model.command(t, q, v).u)
        held = self._replace(memory=jax.lax.cond(stop.instant, put, lambda: self.memory))
        return held._replace(u=held.acting_from(stop))

    def system_at(self, stop: ScheduledStops, model: AbstractSystem) -> "AtInstant":
        """The system just after a stop. At an instant without delay, its inputs are those of the law at the state."""
        return AtInstant(model, self.acting_from(stop), stop.instant & (stop.acting == stop.latest))


def nothing_sampled(
    model: Any, schedule: Schedule, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]
) -> SampledInputs:
    """The held inputs before the first instant."""
    p = eqx.filter_eval_shape(model.command, t, q, v).u.size
    return SampledInputs(jnp.zeros((schedule.memory, p), q.dtype), jnp.zeros(p, q.dtype))


class AtInstant(AbstractVariant):
    """The system ``plant`` whose inputs are those of its law if ``evaluates``, otherwise ``u``."""

    plant: AbstractSystem
    u: Float[Array, " p"]
    evaluates: Bool[Array, ""]

    @property
    def control(self) -> AbstractControl | None:
        control = self.plant.control
        return None if control is None else InputsAtInstant(control, self.u, self.evaluates)
