"""Where a motion is to end before its time: an event, and what a step says about it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._check import call, check_function, repr_of
from .._kinematic_map import KinematicMap, rate

DIRECTIONS = {"falling": -1, "rising": 1, None: 0}


class Event(eqx.Module):
    """Ends a motion where ``function(t, q, v)``, one number, crosses zero: ``simulate(..., event=Event(...))``.

    ``direction="falling"`` counts crossings from above zero to below it only, ``"rising"`` only those from below, None
    both. A plain function given as ``event`` is the same with None. The function is that of a surface, a floor or a
    wall, say its distance in whatever unit; parameters in it are leaves if it is an ``equinox.Module``.

    Raises ``ValueError`` for another direction, or what is no function.
    """

    function: Callable
    direction: str | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        check_function("event", self.function, "t, q, v")
        if not isinstance(self.direction, str | None) or self.direction not in DIRECTIONS:
            raise ValueError(f"direction must be 'falling', 'rising' or None for both, got {self.direction!r}")

    def __call__(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Any:
        return self.function(t, q, v)

    @property
    def counted(self) -> int:
        """−1 for falling, 1 for rising, 0 for both."""
        return DIRECTIONS[self.direction]


def as_event(event: Any) -> Event | None:
    """What a user gives as ``event``, or ``ValueError``."""
    return event if event is None or isinstance(event, Event) else Event(event)


def check_event(event: Event, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> None:
    """An event is one number, or ``ValueError``: asked while a program is traced."""
    value = jax.eval_shape(lambda t, q, v: _number_of(event, t, q, v), t, q, v)
    if value.ndim != 0 or not jnp.issubdtype(value.dtype, jnp.floating):
        raise ValueError(
            f"event must return one number that crosses zero, got shape {value.shape} of {value.dtype}; "
            "write q[0] rather than q[0] > 0"
        )


def _number_of(event, t, q, v):
    value = call("event", event, t, q, v)
    if not isinstance(value, jax.Array | np.ndarray | np.generic | float | int):
        raise ValueError(f"event must return one number that crosses zero, got {repr_of(value)}")
    return jnp.asarray(value)


class Step(NamedTuple):
    """A step from (t0, q0, v0) to (t1, q1, v1), and the cubic between: good enough to look for crossings that its end
    does not show, and to aim at them. What it promises is always tried by a true step."""

    t0: Float[Array, ""]
    q0: Float[Array, " nq"]
    v0: Float[Array, " n"]
    t1: Float[Array, ""]
    q1: Float[Array, " nq"]
    v1: Float[Array, " n"]
    kinematic_map: KinematicMap | None = None

    def at(self, x: Float[Array, ""]) -> tuple[Array, Array, Array]:
        """t, q and v at the share x of the step."""
        h = self.t1 - self.t0
        jump = self.q1 - self.q0
        r0, r1 = rate(self.kinematic_map, self.q0, self.v0), rate(self.kinematic_map, self.q1, self.v1)
        q = self.q0 + x * (h * r0 + x * (3 * jump - h * (2 * r0 + r1 + x * (-r0 - r1))))
        q = q - 2 * x**3 * jump
        if self.kinematic_map is not None:  # of v too little is known for more than a line
            return self.t0 + x * h, jnp.where(x < 1, q, self.q1), self.v0 + x * (self.v1 - self.v0)
        slope = 6 * x * (1 - x) * jump / h
        v = slope + (1 - x) * (1 - 3 * x) * self.v0 + x * (3 * x - 2) * self.v1
        return self.t0 + x * h, jnp.where(x < 1, q, self.q1), jnp.where(x < 1, v, self.v1)


POINTS = 16
"""Points of a step at which the event is evaluated together."""

NEAR_START = 2.0 ** np.linspace(-20, -1, POINTS)
"""Points in the first cell: a motion that has just left the surface may come back within a small part of a step."""

SOONEST = float(NEAR_START[0])
"""The first point, as a share of the first cell."""

REFINED = 3
"""Evaluations that locate a minimum between two points."""


class Search(NamedTuple):
    """What the values of an event along a step show.

    Whether one was clearly ``above`` zero; whether one was ``below`` the ``level``, first between the shares ``low``
    and ``high`` of the step, where values are ``at_low`` and ``at_high``; the ``least`` value before the end of the
    step, and the share ``where`` it is; and the ``most``.
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
        """The share of the step at which ``value`` first falls below the level."""
        shares = jnp.asarray(np.arange(1, POINTS + 1) / POINTS, self.low.dtype)

        def narrowed(bracket, _):
            low, high, at_low, at_high = bracket
            inside = (low + (high - low) * shares).at[-1].set(high)
            values = jax.vmap(value)(inside).at[-1].set(at_high)
            k = jnp.argmax(values < self.level)
            before = lambda x, first: jnp.where(k > 0, x[jnp.maximum(k - 1, 0)], first)
            return (before(inside, low), inside[k], before(values, at_low), values[k]), None

        bracket = self.low, self.high, self.at_low, self.at_high
        (low, high, at_low, at_high), _ = jax.lax.scan(narrowed, bracket, length=2)
        above, fall = at_low - self.level, at_low - at_high
        return low + (high - low) * jnp.clip(above / jnp.where(fall > 0, fall, 1), 0, 1)


def search(
    value: Callable[[Array], Array], cells: Int[Array, ""], above: Bool[Array, ""], zero: Float[Array, ""]
) -> Search:
    """Evaluate an event's ``value(share)`` and its slope along a step, until it is first below zero.

    Points are the ends of as many equal ``cells``, a multiple of ``POINTS``, and more in the first of them. Where the
    slope changes from negative to positive between two points, the minimum between them is located. A value that is
    ``zero`` but for rounding counts as below only after one that was ``above``.
    """
    both = lambda x: jax.jvp(value, (x,), (jnp.ones_like(x),))
    dtype = zero.dtype
    near, evenly = jnp.asarray(NEAR_START, dtype), jnp.asarray(np.arange(1, POINTS + 1), dtype)

    def go_on(state):
        block, _, found = state
        return (block * POINTS <= cells) & ~found.below

    def further(state):
        block, last, found = state
        x = jnp.where(block == 0, near, (block - 1) * POINTS + evenly) / cells
        g, slope = jax.vmap(both)(x)
        x0, g0, slope0 = (jnp.append(first, xs[:-1]) for first, xs in zip(last, (x, g, slope), strict=True))
        above = found.above | (jax.lax.cummax(jnp.where(jnp.isnan(g), -jnp.inf, g)) > zero)
        level = jnp.where(above, 0, -zero)
        fell = g < level
        k = jnp.argmax(fell)
        # Where the tangents at both ends of a cell meet is below the minimum between them.
        turns = (slope0 < 0) & (slope > 0)
        bend = jnp.where(turns, slope0 - slope, 1)
        bound = jnp.where(turns, g0 + slope0 * (g - g0 - slope * (x - x0)) / bend, jnp.inf)
        j = jnp.argmin(bound)
        least, where = _minimum((x0[j], g0[j], slope0[j]), (x[j], g[j], slope[j]), both)
        inside = jnp.where(jnp.isnan(g) | (x >= 1), jnp.inf, g)
        i = jnp.argmin(inside)
        leasts = jnp.stack([found.least, inside[i], jnp.where(turns[j], least, jnp.inf)])
        lowest = jnp.argmin(leasts)
        found = Search(
            above=jnp.where(fell[k], above[k], above[-1]),
            below=fell[k],
            level=level[k],
            low=x0[k],
            high=x[k],
            at_low=g0[k],
            at_high=g[k],
            least=leasts[lowest],
            where=jnp.stack([found.where, x[i], where])[lowest],
            most=jnp.fmax(found.most, jnp.nanmax(g)),
        )
        return block + 1, (x[-1], g[-1], slope[-1]), found

    zeros = jnp.zeros((), dtype)
    start = zeros, *both(zeros)
    none, infinite = jnp.asarray(False), zeros + jnp.inf
    nothing = Search(above, none, zeros, zeros, zeros, zeros, zeros, least=infinite, where=zeros, most=start[1])
    return jax.lax.while_loop(go_on, further, (jnp.asarray(0, cells.dtype), start, nothing))[2]


def _minimum(left, right, both):
    """The minimum of a function that falls at the left and rises at the right point, (x, value, slope) of each: its
    value and its place, from cubics (Nocedal & Wright, Numerical Optimization, 3.59)."""

    def narrowed(state, _):
        (a, at_a, fall), (b, at_b, rise), least, where = state
        d1 = fall + rise - 3 * (at_a - at_b) / jnp.where(a < b, a - b, 1)
        d2 = jnp.sqrt(jnp.maximum(d1**2 - fall * rise, 0))
        bend = rise - fall + 2 * d2
        x = b - (b - a) * jnp.clip((rise + d2 - d1) / jnp.where(bend > 0, bend, 1), 0, 1)
        g, slope = both(x)
        new = x, g, slope
        pick = lambda at, old: tuple(jnp.where(at, *pair) for pair in zip(new, old, strict=True))
        state = pick(slope < 0, (a, at_a, fall)), pick(slope >= 0, (b, at_b, rise))
        return (*state, jnp.where(g < least, g, least), jnp.where(g < least, x, where)), None

    start = left, right, jnp.full_like(left[1], jnp.inf), left[0]
    (*_, least, where), _ = jax.lax.scan(narrowed, start, length=REFINED)
    return least, where


def on_surface(
    event: Event,
    kinematic_map: KinematicMap | None,
    acceleration: Callable[[Array, Array, Array], Array],
    t: Float[Array, ""],
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
    met: Bool[Array, ""],
) -> tuple[Float[Array, ""], Float[Array, " nq"], Float[Array, " n"]]:
    """(t, q, v) as it is, and with the derivatives, first and second, of the instant at which the event is met.

    To (t, q, v) a ``wait`` is added that is zero and has the derivatives of the root: two steps of Newton's method,
    along the motion as the midpoint rule has it.
    """
    q_dot, v_dot = rate(kinematic_map, q, v), acceleration(t, q, v)
    slope = jax.jvp(event, (t, q, v), (jnp.ones_like(t), q_dot, v_dot))[1]
    met = met & (slope != 0)
    slope = jnp.where(met, slope, 1)

    def more(*state):
        height = event(*state)
        return -jnp.where(met, height - jax.lax.stop_gradient(height), 0) / slope

    wait = more(t, q, v)
    q_half, v_half = q + wait / 2 * q_dot, v + wait / 2 * v_dot
    t, q, v = (
        t + wait,
        q + wait * rate(kinematic_map, q_half, v_half),
        v + wait * acceleration(t + wait / 2, q_half, v_half),
    )
    wait = more(t, q, v)  # zero in its first derivative, too
    return t + wait, q + wait * q_dot, v + wait * v_dot
