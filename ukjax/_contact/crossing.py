"""Search along a step for the first gap that closes, and for the first contact that opens or friction force that
slips."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

ITERATIONS = 12
"""Iterations that locate the zero of a gap."""

BISECTIONS = 30
"""Bisections that locate the minimum of a gap between two points."""


class Crossing(NamedTuple):
    """Result of the search: whether a shorter step is needed, and the fraction of the step at which it should end."""

    found: Bool[Array, ""]
    fraction: Float[Array, ""]


class GapCrossing(NamedTuple):
    """A ``Crossing``, and whether an open gap before it had a minimum that is zero within ``grazing``."""

    found: Bool[Array, ""]
    fraction: Float[Array, ""]
    grazes: Bool[Array, ""]


class _Search(NamedTuple):
    cell: Int[Array, ""]
    x0: Float[Array, ""]
    x1: Float[Array, ""]
    gap: Float[Array, " gaps"]
    slope: Float[Array, " gaps"]
    is_below: Bool[Array, ""]
    may_dip: Bool[Array, ""]
    grazes: Bool[Array, ""]
    row: Int[Array, ""]


def first_crossing(
    gaps_at: Callable[[Array], Array],
    is_open: Bool[Array, " gaps"],
    rounding: Float[Array, " gaps"],
    grazing: Float[Array, " gaps"],
    cells: Int[Array, ""],
) -> GapCrossing:
    """The first fraction of a step at which an open gap becomes negative by more than its ``rounding``.

    The gaps and their slopes are evaluated at the ends of ``cells`` equal cells. A gap that is negative at a point, or
    whose slopes show a minimum between two points that may be negative, ends the search. If that minimum is not
    negative, the step should end behind it, since later cells were not examined. Nothing here has derivatives.
    """
    value_and_slope = lambda x: jax.lax.stop_gradient(jax.jvp(gaps_at, (x,), (jnp.ones_like(x),)))
    dtype = rounding.dtype

    def is_running(state):
        return (state.cell < cells) & ~state.is_below & ~state.may_dip

    def next_cell(state):
        x0, x1 = state.x1, (state.cell + 1).astype(dtype) / cells
        gap, slope = value_and_slope(x1)
        below = is_open & (gap < -rounding)
        # The intersection of the tangents at both ends is a lower bound of a minimum between them.
        turns = is_open & (state.slope < 0) & (slope > 0)
        bend = jnp.where(turns, state.slope - slope, 1)
        bound = state.gap + state.slope * (gap - state.gap - slope * (x1 - x0)) / bend
        dips = turns & (bound < -rounding)
        row = jnp.where(jnp.any(dips), jnp.argmax(dips), jnp.argmax(below)).astype(jnp.int32)
        lowest = _lowest(state.gap, state.slope, gap, slope, x1 - x0)
        touches = is_open & (state.slope < 0) & (slope >= 0) & (state.gap - lowest > rounding)
        grazes = state.grazes | jnp.any(touches & (jnp.abs(lowest) <= grazing))
        return _Search(state.cell + 1, x0, x1, gap, slope, jnp.any(below), jnp.any(dips), grazes, row)

    zero, false = jnp.zeros((), dtype), jnp.asarray(False)
    count = jnp.zeros((), jnp.int32)
    gap, slope = value_and_slope(zero)
    start = _Search(count, zero, zero, gap, slope, false, false, false, count)
    last = jax.lax.while_loop(is_running, next_cell, start)

    def locate():
        value = lambda x: value_and_slope(x)[0][last.row]
        slope = lambda x: value_and_slope(x)[1][last.row]
        x_high = jnp.where(last.may_dip, _minimum(slope, last.x0, last.x1), last.x1)
        negative = value(x_high) < -rounding[last.row]
        return jnp.where(negative, _root(value, last.x0, x_high), last.x1)

    found = last.is_below | last.may_dip
    fraction = jax.lax.cond(found, locate, lambda: jnp.ones((), dtype))
    return GapCrossing(last.is_below | last.may_dip & (fraction < 1), fraction, last.grazes)


def _lowest(gap0, slope0, gap1, slope1, width):
    """The minimum of a gap between two points, by their cubic polynomial where linear slopes vanish."""
    bend = slope1 - slope0
    x = jnp.clip(-slope0 / jnp.where(bend > 0, bend, 1), 0, 1)
    rise = x**2 * (3 - 2 * x)
    of_slopes = x * (1 - x) ** 2 * slope0 - x**2 * (1 - x) * slope1
    return gap0 + (gap1 - gap0) * rise + width * of_slopes


class _Release(NamedTuple):
    cell: Int[Array, ""]
    x0: Float[Array, ""]
    x1: Float[Array, ""]
    before: Float[Array, " events"]
    after: Float[Array, " events"]
    found: Bool[Array, ""]


def first_release(
    values_at: Callable[[Array], Array],
    acts: Bool[Array, " events"],
    rounding: Float[Array, " events"],
    at_start: Float[Array, " events"],
    at_end: Float[Array, " events"],
    cells: Int[Array, ""],
) -> Crossing:
    """The first fraction of a step at which a value that ``acts`` becomes negative by more than its ``rounding``.

    The values are evaluated at the ends of ``cells`` equal cells, and are linear between them. Those at the start and
    at the end of the step are known.
    """
    is_lost = lambda values: acts & (values < -rounding)

    def is_running(state):
        return (state.cell < cells - 1) & ~state.found

    def next_cell(state):
        x1 = (state.cell + 1).astype(rounding.dtype) / cells
        after = values_at(x1)
        return _Release(state.cell + 1, state.x1, x1, state.after, after, jnp.any(is_lost(after)))

    zero, count, false = jnp.zeros((), rounding.dtype), jnp.zeros((), jnp.int32), jnp.asarray(False)
    last = jax.lax.while_loop(is_running, next_cell, _Release(count, zero, zero, at_start, at_start, false))
    end = _Release(last.cell, last.x1, jnp.ones_like(zero), last.after, at_end, jnp.any(is_lost(at_end)))
    last = jax.tree.map(lambda x, y: jnp.where(last.found, x, y), last, end)
    drop = last.before - last.after
    share = jnp.where(last.before > rounding, last.before / jnp.where(drop > 0, drop, 1), 0.5)
    share = jnp.min(jnp.where(is_lost(last.after), jnp.clip(share, 0, 1), 1), initial=1)
    return Crossing(last.found, last.x0 + (last.x1 - last.x0) * share)


def _minimum(slope, low, high):
    """The place of the minimum between two points, by bisection of the slope."""

    def halve(bracket, _):
        low, high = bracket
        middle = (low + high) / 2
        falls = slope(middle) < 0
        return (jnp.where(falls, middle, low), jnp.where(falls, high, middle)), None

    return jnp.mean(jnp.stack(jax.lax.scan(halve, (low, high), length=BISECTIONS)[0]))


def _root(value, low, high):
    """The last zero between ``low`` and ``high``, where the value is negative at ``high``.

    Regula falsi with the Illinois modification, begun by bisection at the point before which the value is positive.
    """

    def narrow(state, _):
        a, b, at_a, at_b = state
        good = at_a > 0
        x = jnp.where(good, a + (b - a) * at_a / jnp.where(good, at_a - at_b, 1), (a + b) / 2)
        at_x = value(x)
        is_low = at_x > 0
        new_a, new_b = jnp.where(is_low, x, a), jnp.where(is_low, b, x)
        new_at_a = jnp.where(is_low, at_x, jnp.where(good, at_a / 2, at_a))
        return (new_a, new_b, new_at_a, jnp.where(is_low, at_b / 2, at_x)), None

    start = low, high, value(low), value(high)
    (a, b, at_a, at_b), _ = jax.lax.scan(narrow, start, length=ITERATIONS)
    good = at_a > 0
    return jnp.where(good, a + (b - a) * at_a / jnp.where(good, at_a - at_b, 1), b)
