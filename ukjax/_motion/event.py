"""Events of a motion, and the search for the zero crossing of one that ends it along a step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._check import call, check_flag, check_function, repr_of
from .._errors import InputError
from .._kinematic_map import KinematicMap, rate
from .._names import did_you_mean
from .._precision import as_float

DIRECTIONS = {"falling": -1, "rising": 1, None: 0}
"""Sign of the slope of the event's value for each direction, 0 for both."""


class Event(eqx.Module):
    """An event at the zero crossings of ``function(t, q, v)``: ``simulate(..., event=Event(...))``.

    The function describes a surface, such as a floor or a wall, for example by the distance to it in any unit. By
    default the motion ends at a crossing. With a ``reset`` it continues from another state, such as the state after an
    impact. With ``ends=False`` it is not changed. A plain function given as ``event`` is the same as
    ``Event(function)``.

    Parameters
    ----------
    function
        Function of t (), q (nq,) and v (n,) that returns one number. If it is an ``equinox.Module``, its parameters
        are leaves: they can be differentiated and swept.
    direction
        ``"falling"`` counts only crossings from above zero to below, ``"rising"`` only those from below to above,
        None both.
    reset
        Function of t, q and v at the crossing that returns the state after it: v (n,), or (q, v). The motion continues
        from there. The velocities are projected onto the constraints, as by ``project``; q must satisfy them.
    ends
        Whether the motion ends at the crossing. None: it ends unless there is a ``reset``.
    name
        Name of the event in ``Trajectory.events``. None: "event 0", with its position in ``event``.

    Raises
    ------
    InputError
        If ``function`` or ``reset`` is not a function, for another direction or name, or if the motion should end at an
        event with a ``reset``.
    """

    function: Callable
    direction: str | None = eqx.field(static=True, default=None)
    reset: Callable | None = eqx.field(kw_only=True, default=None)
    ends: bool | None = eqx.field(static=True, kw_only=True, default=None)
    name: str | None = eqx.field(static=True, kw_only=True, default=None)

    def __check_init__(self):
        check_function("event", self.function, "t, q, v")
        if not isinstance(self.direction, str | None) or self.direction not in DIRECTIONS:
            raise InputError(f"direction must be 'falling', 'rising' or None for both, got {self.direction!r}")
        if self.reset is not None:
            check_function("reset", self.reset, "t, q, v")
        if self.ends is not None:
            check_flag("ends", self.ends)
        if self.ends and self.reset is not None:
            raise InputError("ends=True is not possible with a reset, after which the motion continues: leave one out")
        if not isinstance(self.name, str | None) or self.name == "":
            raise InputError(f"name must be a text or None, got {repr_of(self.name)}")

    def __call__(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Any:
        """The value of the function at t, q, v."""
        return self.function(t, q, v)

    @property
    def counted(self) -> int:
        """Sign of the crossings that count: −1 for falling, 1 for rising, 0 for both."""
        return DIRECTIONS[self.direction]

    @property
    def is_end(self) -> bool:
        """Whether the motion ends at the crossing."""
        return self.reset is None if self.ends is None else self.ends

    def after(
        self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]
    ) -> tuple[Float[Array, " nq"], Float[Array, " n"]]:
        """q and v after the ``reset``. Raises ``InputError`` unless it returns v (n,), or q (nq,) and v (n,)."""
        if self.reset is None:
            return q, v
        value = call("reset", self.reset, t, q, v)
        new = value if isinstance(value, tuple | list) and len(value) == 2 else (q, value)
        shapes = tuple(getattr(x, "shape", None) for x in new)
        if shapes != (q.shape, v.shape):
            raise InputError(
                f"reset must return v of shape {v.shape}, or q and v of shapes {q.shape} and {v.shape}, "
                f"got {repr_of(value)}"
            )
        return as_float(new[0], q).astype(q.dtype), as_float(new[1], v).astype(v.dtype)


def as_events(event: Any) -> tuple[Event, ...]:
    """Convert the argument ``event`` of ``simulate`` to events, () for None, or raise ``InputError``."""
    if event is None:
        return ()
    events = tuple(event) if isinstance(event, list | tuple) else (event,)
    if not events:
        raise InputError("event must be an event or several, got none: leave it out")
    events = tuple(each if isinstance(each, Event) else Event(each) for each in events)
    names = names_of(events)
    if len(set(names)) < len(names):
        raise InputError(f"event must have a different name for each event, got {', '.join(map(repr, names))}")
    return events


def names_of(events: tuple[Event, ...]) -> tuple[str, ...]:
    """The names of the events."""
    return tuple(f"event {i}" if each.name is None else each.name for i, each in enumerate(events))


def check_event(event: Event, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> None:
    """Raise ``InputError`` unless the event returns one number, and its reset a state. Called during tracing."""
    value = jax.eval_shape(lambda t, q, v: _number_of(event, t, q, v), t, q, v)
    if value.ndim != 0 or not jnp.issubdtype(value.dtype, jnp.floating):
        raise InputError(
            f"event must return one number that crosses zero, got shape {value.shape} of {value.dtype}; "
            "write q[0] rather than q[0] > 0"
        )
    jax.eval_shape(event.after, t, q, v)


def _number_of(event, t, q, v):
    value = call("event", event, t, q, v)
    if not isinstance(value, jax.Array | np.ndarray | np.generic | float | int):
        raise InputError(f"event must return one number that crosses zero, got {repr_of(value)}")
    return jnp.asarray(value)


MAX_EVENTS = 256
"""Largest number of instants per motion whose time and state are stored."""


class EventHistory(eqx.Module):
    """Events during a motion, with a leading batch axis for a batch.

    Time and state of the first 256 instants are stored. ``counts`` has all of them, and ``missing`` those that are not
    stored.

    Attributes
    ----------
    t
        Instants of the events in their order [s], NaN after the last one (256,).
    q, v
        State at these instants, before a reset (256, nq) and (256, n).
    met
        The events that happened at each instant (256, events).
    counts
        How often each event happened (events,).
    names
        Names of the events.
    """

    t: Float[Array, "*batch stored"]
    q: Float[Array, "*batch stored nq"]
    v: Float[Array, "*batch stored n"]
    met: Bool[Array, "*batch stored events"]
    counts: Int[Array, "*batch events"]
    names: tuple[str, ...] = eqx.field(static=True)

    @property
    def missing(self) -> Int[Array, "*batch events"]:
        """How often each event happened after the last stored instant (events,)."""
        return self.counts - jnp.sum(self.met & jnp.isfinite(self.t)[..., None], axis=-2)

    def times(self, name: str) -> Float[Array, "*batch stored"]:
        """The instants of one event.

        Parameters
        ----------
        name
            Name of the event.

        Returns
        -------
        Array
            Its instants in their order [s], NaN after the last one, shape (256,) or (batch, 256). Instants are not
            stored if ``missing`` is above 0 for this event.

        Raises
        ------
        InputError
            If there is no event of this name.
        """
        if name not in self.names:
            raise InputError(f"there is no event {name!r}{did_you_mean(name, self.names)}")
        return jnp.sort(jnp.where(self.met[..., self.names.index(name)], self.t, jnp.nan), axis=-1)

    def __repr__(self) -> str:
        try:
            counts = np.asarray(self.counts)
            lost = int(np.sum(np.asarray(self.missing)))
        except Exception:
            return object.__repr__(self)
        totals = counts.reshape(-1, len(self.names)).sum(axis=0)
        text = ", ".join(f"{name}: {count}" for name, count in zip(self.names, totals, strict=True))
        return f"EventHistory({text}{f'; the last {lost} are counted only, and not stored' if lost else ''})"


def empty_history(events: tuple[Event, ...], q: Float[Array, "*batch nq"], v: Float[Array, "*batch n"]) -> EventHistory:
    """The history of motions in which none of the events happened, with the batch axes of q and v."""
    stored = lambda *size: jnp.full((*q.shape[:-1], MAX_EVENTS, *size), jnp.nan, q.dtype)
    return EventHistory(
        t=stored(),
        q=stored(q.shape[-1]),
        v=stored(v.shape[-1]),
        met=jnp.zeros((*q.shape[:-1], MAX_EVENTS, len(events)), bool),
        counts=jnp.zeros((*q.shape[:-1], len(events)), int),
        names=names_of(events),
    )


ROUNDINGS_OF_BEND = 64
"""Deviation from linear velocities that counts as rounding, in roundings of q."""


class Step(NamedTuple):
    """A step from (t0, q0, v0) to (t1, q1, v1), with cubic interpolation.

    The interpolation is accurate enough to find crossings inside the step and to aim at them. Each crossing is then
    verified by an integration step to that time.
    """

    t0: Float[Array, ""]
    q0: Float[Array, " nq"]
    v0: Float[Array, " n"]
    t1: Float[Array, ""]
    q1: Float[Array, " nq"]
    v1: Float[Array, " n"]
    kinematic_map: KinematicMap | None = None

    def at(self, x: Float[Array, ""]) -> tuple[Array, Array, Array]:
        """t, q and v at the fraction x of the step."""
        h = self.t1 - self.t0
        q_change = self.q1 - self.q0
        r0, r1 = rate(self.kinematic_map, self.q0, self.v0), rate(self.kinematic_map, self.q1, self.v1)
        q = self.q0 + x * (h * r0 + x * (3 * q_change - h * (2 * r0 + r1 + x * (-r0 - r1))))
        q = q - 2 * x**3 * q_change
        if self.kinematic_map is not None:  # q does not determine v̇: v is linear
            return self.t0 + x * h, jnp.where(x < 1, q, self.q1), self.v0 + x * (self.v1 - self.v0)
        bend = q_change - h * (self.v0 + self.v1) / 2
        # In a short step the curvature is rounding of q. Divided by h, it would appear as a change of v that does not
        # exist.
        rounding = ROUNDINGS_OF_BEND * jnp.finfo(q.dtype).eps * jnp.maximum(jnp.abs(self.q0), jnp.abs(self.q1))
        bend = jnp.where(jnp.abs(bend) <= rounding, 0, bend)
        v = self.v0 + x * (self.v1 - self.v0) + 6 * x * (1 - x) * bend / h
        return self.t0 + x * h, jnp.where(x < 1, q, self.q1), jnp.where(x < 1, v, self.v1)


POINTS = 16
"""Points of a step at which the event is evaluated together."""

NEAR_START = 2.0 ** np.linspace(-20, -1, POINTS)
"""Points in the first cell: a motion that has just left the surface may return within a small part of a step."""

SOONEST = float(NEAR_START[0])
"""The first point, as a fraction of the first cell."""

REFINED = 3
"""Number of evaluations to locate a minimum between two points."""


class Search(NamedTuple):
    """Values of an event along a step.

    Attributes
    ----------
    above
        Whether a value was clearly above zero.
    below
        Whether a value was below ``level``.
    level
        Threshold: 0, or minus the rounding error if no value was above zero before.
    low, high
        Fractions of the step between which the value first falls below the level.
    at_low, at_high
        Values at these fractions.
    least, where
        Smallest value before the end of the step, and the fraction of the step where it occurs.
    most
        Largest value.
    """

    above: Bool[Array, ""]
    below: Bool[Array, ""]
    level: Float[Array, ""]
    low: Float[Array, ""]
    high: Float[Array, ""]
    at_low: Float[Array, ""]
    at_high: Float[Array, ""]
    least: Float[Array, ""]
    where: Float[Array, ""]
    most: Float[Array, ""]

    def crossing(self, value: Callable[[Array], Array]) -> Float[Array, ""]:
        """The fraction of the step at which ``value`` first falls below the level."""
        fractions = jnp.asarray(np.arange(1, POINTS + 1) / POINTS, self.low.dtype)

        def narrow(bracket, _):
            low, high, at_low, at_high = bracket
            points = (low + (high - low) * fractions).at[-1].set(high)
            values = jax.vmap(value)(points).at[-1].set(at_high)
            k = jnp.argmax(values < self.level)
            left_of = lambda x, first: jnp.where(k > 0, x[jnp.maximum(k - 1, 0)], first)
            return (left_of(points, low), points[k], left_of(values, at_low), values[k]), None

        bracket = self.low, self.high, self.at_low, self.at_high
        (low, high, at_low, at_high), _ = jax.lax.scan(narrow, bracket, length=2)
        above, drop = at_low - self.level, at_low - at_high
        return low + (high - low) * jnp.clip(above / jnp.where(drop > 0, drop, 1), 0, 1)


def search(
    value: Callable[[Array], Array], cells: Int[Array, ""], above: Bool[Array, ""], zero: Float[Array, ""]
) -> Search:
    """Evaluate an event's ``value(fraction)`` and its slope along a step, until it is first below zero.

    The points are the ends of ``cells`` equal cells, a multiple of ``POINTS``, and more points in the first cell. Where
    the slope changes from negative to positive between two points, the minimum between them is located. A value within
    the rounding error ``zero`` of 0 counts as below only after one that was ``above``.
    """
    value_and_slope = lambda x: jax.jvp(value, (x,), (jnp.ones_like(x),))
    dtype = zero.dtype
    first_points, numbers = jnp.asarray(NEAR_START, dtype), jnp.asarray(np.arange(1, POINTS + 1), dtype)

    def is_running(state):
        block, _, result = state
        return (block * POINTS <= cells) & ~result.below

    def next_block(state):
        block, last, result = state
        x = jnp.where(block == 0, first_points, (block - 1) * POINTS + numbers) / cells
        g, slope = jax.vmap(value_and_slope)(x)
        x0, g0, slope0 = (jnp.append(first, xs[:-1]) for first, xs in zip(last, (x, g, slope), strict=True))
        above = result.above | (jax.lax.cummax(jnp.where(jnp.isnan(g), -jnp.inf, g)) > zero)
        level = jnp.where(above, 0, -zero)
        is_below = g < level
        k = jnp.argmax(is_below)
        # The intersection of the tangents at both ends of a cell is a lower bound of the minimum between them.
        has_minimum = (slope0 < 0) & (slope > 0)
        slope_change = jnp.where(has_minimum, slope0 - slope, 1)
        bound = jnp.where(has_minimum, g0 + slope0 * (g - g0 - slope * (x - x0)) / slope_change, jnp.inf)
        j = jnp.argmin(bound)
        least, where = _minimum((x0[j], g0[j], slope0[j]), (x[j], g[j], slope[j]), value_and_slope)
        inner_values = jnp.where(jnp.isnan(g) | (x >= 1), jnp.inf, g)
        i = jnp.argmin(inner_values)
        candidates = jnp.stack([result.least, inner_values[i], jnp.where(has_minimum[j], least, jnp.inf)])
        lowest = jnp.argmin(candidates)
        result = Search(
            above=jnp.where(is_below[k], above[k], above[-1]),
            below=is_below[k],
            level=level[k],
            low=x0[k],
            high=x[k],
            at_low=g0[k],
            at_high=g[k],
            least=candidates[lowest],
            where=jnp.stack([result.where, x[i], where])[lowest],
            most=jnp.fmax(result.most, jnp.nanmax(g)),
        )
        return block + 1, (x[-1], g[-1], slope[-1]), result

    zeros = jnp.zeros((), dtype)
    start = zeros, *value_and_slope(zeros)
    false, infinity = jnp.asarray(False), zeros + jnp.inf
    empty = Search(above, false, zeros, zeros, zeros, zeros, zeros, least=infinity, where=zeros, most=start[1])
    return jax.lax.while_loop(is_running, next_block, (jnp.asarray(0, cells.dtype), start, empty))[2]


def _minimum(left, right, value_and_slope):
    """Value and place of the minimum of a function that falls at the left and rises at the right point.

    Each point is (x, value, slope). The minimum is located by cubics (Nocedal & Wright, Numerical Optimization, 3.59).
    """

    def narrow(state, _):
        (a, at_a, fall), (b, at_b, rise), least, where = state
        d1 = fall + rise - 3 * (at_a - at_b) / jnp.where(a < b, a - b, 1)
        d2 = jnp.sqrt(jnp.maximum(d1**2 - fall * rise, 0))
        bend = rise - fall + 2 * d2
        x = b - (b - a) * jnp.clip((rise + d2 - d1) / jnp.where(bend > 0, bend, 1), 0, 1)
        g, slope = value_and_slope(x)
        new = x, g, slope
        select = lambda at, old: tuple(jnp.where(at, *pair) for pair in zip(new, old, strict=True))
        state = select(slope < 0, (a, at_a, fall)), select(slope >= 0, (b, at_b, rise))
        return (*state, jnp.where(g < least, g, least), jnp.where(g < least, x, where)), None

    start = left, right, jnp.full_like(left[1], jnp.inf), left[0]
    (*_, least, where), _ = jax.lax.scan(narrow, start, length=REFINED)
    return least, where


def on_surface(
    event: Callable[[Array, Array, Array], Array],
    kinematic_map: KinematicMap | None,
    acceleration: Callable[[Array, Array, Array], Array],
    t: Float[Array, ""],
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
    met: Bool[Array, ""],
) -> tuple[Float[Array, ""], Float[Array, " nq"], Float[Array, " n"]]:
    """(t, q, v) unchanged, but with first and second derivatives of the event time, if the event is ``met``.

    The added delay is zero, but has the derivatives of the root. It consists of two Newton iterations, along the motion
    by the midpoint rule.
    """
    q_dot, v_dot = rate(kinematic_map, q, v), acceleration(t, q, v)
    slope = jax.jvp(event, (t, q, v), (jnp.ones_like(t), q_dot, v_dot))[1]
    met = met & (slope != 0)
    slope = jnp.where(met, slope, 1)

    def newton_step(*state):
        value = event(*state)
        return -jnp.where(met, value - jax.lax.stop_gradient(value), 0) / slope

    delay = newton_step(t, q, v)
    q_half, v_half = q + delay / 2 * q_dot, v + delay / 2 * v_dot
    t, q, v = (
        t + delay,
        q + delay * rate(kinematic_map, q_half, v_half),
        v + delay * acceleration(t + delay / 2, q_half, v_half),
    )
    delay = newton_step(t, q, v)  # its first derivative is zero, too
    return t + delay, q + delay * q_dot, v + delay * v_dot
