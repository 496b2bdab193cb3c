"""Steps that end on an event: a controller that lets no step lead beyond it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array, Bool, Float, Int

from ..._kinematic_map import KinematicMap, rate, speeds
from ..event import POINTS, SOONEST, Event, Step, search
from .end_on_times import EndOnTimes

ROUNDING = 4
"""Units of the last place within which two instants, or an event's value and zero, are the same."""

LOOK_BACK = 1e4
"""First steps: so long, at the most, was the motion that led to a start on its event, whose rounding the start has."""

PATIENCE = 8
"""Attempts at an instant after which the interval that is left is halved."""

CELLS, CELLS_OF_MOTION = 4 * POINTS, 64 * POINTS
"""Cells in which the event is looked for, at least: of an adaptive step, and of the whole time."""

DIP = 0.1
"""How near to zero an event comes within a step for it to be tried, as a share of how much it changes there."""


class EventControllerState(NamedTuple):
    """The ``inner`` controller's state; from where and how far it lets the motion go, ``began`` and ``length``; the
    ``goal``, which is where that leads, or the first instant known to be beyond the event once that has been tried for
    ``tries`` times; the ``side`` of zero, 1 or −1, from which a crossing counts, or 0 where none counts as yet; whether
    the motion has been clearly ``away`` from zero; the size of a value that is ``zero`` but for rounding."""

    inner: Any
    began: Float[Array, ""]
    length: Float[Array, ""]
    goal: Float[Array, ""]
    tries: Int[Array, ""]
    side: Float[Array, ""]
    away: Bool[Array, ""]
    zero: Float[Array, ""]
    nan: Bool[Array, ""]


class CrossingCheck(NamedTuple):
    """What a step shows: that it leads ``beyond`` the event, or ``dips`` on the way so that it may; that it ends
    ``here``, on the event, or that the event is where it ``started``; whether the motion has been ``away`` then, and
    ``side`` of which it is. And where to end it in place of that: for the first two, and to go on from its end. And
    the event's value at its ``end``."""

    beyond: Bool[Array, ""]
    dips: Bool[Array, ""]
    here: Bool[Array, ""]
    started: Bool[Array, ""]
    away: Bool[Array, ""]
    side: Float[Array, ""]
    aim: Float[Array, ""]
    dip: Float[Array, ""]
    on: Float[Array, ""]
    end: Float[Array, ""]


class EventController(dfx.AbstractAdaptiveStepSizeController):
    """Another controller's steps up to an event, in the time since the ``start``.

    A step that leads beyond it, or that seems to on the way, is not taken, but a shorter one: until one ends within
    rounding of the instant, on the near side of zero. So the state there is that of a true step, on its constraints,
    and no interpolation's. A start that is zero but for rounding is on the event, which counts only once the motion has
    been away. A motion or an event that becomes NaN ends at once. ``kinematic_map`` is the model's, ``n`` is the
    number of its coordinates, ``span`` the whole time, ``even`` says that steps are fixed; the tolerances are those of
    implicit solvers.
    """

    controller: EndOnTimes
    event: Event
    kinematic_map: KinematicMap | None
    n: int = eqx.field(static=True)
    start: Array
    span: Array
    even: bool = eqx.field(static=True)
    rtol: Array
    atol: Array
    norm: Callable = optx.rms_norm

    def wrap(self, direction):
        return eqx.tree_at(lambda watch: watch.controller, self, self.controller.wrap(direction))

    def init(self, terms, t0, t1, y0, dt0, args, func, error_order):
        goal, inner = self.controller.init(terms, t0, t1, y0, dt0, args, func, error_order)
        y, slope, time, first, wanted = jax.lax.stop_gradient((y0, func(terms, t0, y0, args), t0, goal, inner.wanted))
        (q, v), moving, time = self._apart(y), self._apart(slope), jnp.asarray(time)
        at_start = jax.lax.stop_gradient(self._at_start(self.start + time, q, v, moving, wanted))
        tries = jnp.zeros((), jnp.int32)
        return goal, EventControllerState(inner, time, first - time, first, tries, *at_start, jnp.asarray(False))

    def _apart(self, y):
        """q and v."""
        return jnp.split(y, [self.n])

    def _at_start(self, t, q, v, moving, first):
        """Side, away and zero, where the motion has a first step so long."""
        value, by = jax.value_and_grad(self.event, argnums=(0, 1, 2))(t, q, v)
        dot = lambda xs, ys: sum(jnp.sum(x * y) for x, y in zip(xs, ys, strict=True))
        moving = jnp.ones_like(t), *moving
        size = lambda *xs: jax.tree.map(jnp.abs, xs)
        back = jnp.minimum(self.span, LOOK_BACK * first)
        (t, q, v), (_, speed, gain) = size(t, q, v), size(*moving)
        rise = gain if self.kinematic_map is None else speeds(self.kinematic_map, q, gain)
        unit = ROUNDING * jnp.finfo(value.dtype).eps
        zero = unit * dot(size(*by), (t + back, q + back * speed + first**2 * rise, v + first * gain))
        away, counted = jnp.abs(value) > zero, self.event.counted
        if counted:  # beyond the event nothing counts before the motion has come back
            side = jnp.where(away & (value * counted > 0), 0, -counted)
        else:
            slope = dot(by, moving)
            still = jnp.abs(slope) <= unit * dot(size(*by), size(*moving))
            side = jnp.where(away, jnp.sign(value), jnp.where(still, 0, jnp.sign(slope)))
        return side.astype(value.dtype), away, jnp.asarray(zero)

    def adapt_step_size(self, t0, t1, y0, y1_candidate, args, y_error, error_order, controller_state):
        was: EventControllerState = controller_state
        good, _, then, jump, inner, result = self.controller.adapt_step_size(
            t0, t1, y0, y1_candidate, args, y_error, error_order, was.inner
        )
        good = jnp.asarray(good)
        y0, y1, *times = jax.lax.stop_gradient((y0, y1_candidate, t0, t1, then))
        begin, end, then = map(jnp.asarray, times)
        (q0, v0), (q1, v1) = self._apart(y0), self._apart(y1)
        seen = self._look(Step(begin, q0, v0, end, q1, v1, self.kinematic_map), was)
        moving = jnp.all(jnp.isfinite(y1))
        nan = good & moving & jnp.isnan(seen.end)
        lost = good & (nan | ~moving)
        beyond, dips, ended = good & seen.beyond, good & seen.dips, lost | good & (seen.here | seen.started)
        accepted = good & ~beyond & ~dips & ~seen.started
        whole = accepted & (end >= was.goal)
        in_one = ~good | whole & (was.began == begin)

        def pick(refused, whole_step, to_aim, to_dip, piece):
            of_piece = jnp.where(beyond, to_aim, jnp.where(dips, to_dip, piece))
            return jnp.where(good, jnp.where(whole, whole_step, of_piece), refused)

        state = EventControllerState(
            inner=jax.tree.map(lambda x, y: jnp.where(~good | whole, x, y), inner, was.inner),
            began=pick(begin, end, was.began, was.began, was.began),
            length=pick(then - begin, then - end, was.length, was.length, was.length),
            goal=pick(then, then, end, was.goal, was.goal),
            tries=pick(0, 0, was.tries + 1, was.tries, was.tries),
            side=jnp.where(accepted, seen.side, was.side),
            away=jnp.where(accepted, seen.away, was.away),
            zero=was.zero,
            nan=nan,
        )
        result = dfx.RESULTS.where(in_one, result, dfx.RESULTS.successful)
        result = dfx.RESULTS.where(ended, dfx.RESULTS.event_occurred, result)
        following = pick(then, then, seen.aim, seen.dip, seen.on)
        return accepted, jnp.where(accepted, t1, t0), following, jump, state, result

    def _look(self, step: Step, was: EventControllerState) -> CrossingCheck:
        h, dtype, counted = step.t1 - step.t0, step.q0.dtype, self.event.counted
        armed, sought, halve = was.side != 0, was.tries > 0, was.tries >= PATIENCE
        # Positive on the side from which a crossing counts; before one does, on that from where it will have to come.
        side = jnp.where(armed, was.side, counted or 1)
        value_at = lambda t, q, v: side * self.event(self.start + t, q, v)
        along, taken = jax.closure_convert(lambda share: value_at(*step.at(share)), jnp.zeros((), dtype))
        taken = jax.lax.stop_gradient(taken)  # nothing of this has a derivative
        value = lambda share: along(share, *taken)
        before, end = value(jnp.zeros((), dtype)), value(jnp.ones((), dtype))
        cells = self._cells(h)
        found = search(value, cells, was.away, was.zero)
        away = was.away | armed & found.above
        beyond = armed & (end < jnp.where(away, 0, -was.zero))
        aim = step.t0 + h * jnp.where(halve, 0.5, found.crossing(value))
        dips = (found.least < jnp.minimum(before, end) - was.zero) & (found.least < DIP * (found.most - found.least))
        dips = ~beyond & dips & (armed | bool(counted)) & (h > was.length * SOONEST / cells)

        # How long it still takes, from how fast the event's value falls where the step ends.
        rates = jnp.ones_like(h), rate(self.kinematic_map, step.q1, step.v1), (step.v1 - step.v0) / h
        slope = jax.lax.stop_gradient(jax.jvp(value_at, (step.t1, step.q1, step.v1), rates)[1])
        left = jnp.where(slope < 0, -jnp.maximum(end, 0) / jnp.where(slope < 0, slope, 1), jnp.inf)
        on = jnp.where(halve, (step.t1 + was.goal) / 2, step.t1 + 2 * left)

        unit = ROUNDING * jnp.finfo(dtype).eps * jnp.where(away, step.t1, was.length)
        near = sought & ((left <= unit) | (was.goal - step.t1 <= unit)) | (end == 0)
        first = step.t0 + jnp.maximum(h * SOONEST / cells, unit / 2)
        arms = ~armed & ((-end if counted else jnp.abs(end)) > was.zero)
        return CrossingCheck(
            beyond=beyond,
            dips=dips,
            here=~beyond & ~dips & armed & away & (end >= 0) & near,
            # As near as one gets; or there all the time, and not away before it is beyond.
            started=beyond & (h <= 2 * unit) | ~beyond & sought & ~away,
            away=away | arms,
            side=jnp.where(arms, side * jnp.sign(end), was.side),
            aim=jnp.clip(aim - unit / 2, first, jnp.maximum(step.t1 - unit, step.t0 + h / 2)),
            dip=step.t0 + h * found.where,
            on=jnp.where(sought, jnp.minimum(on + unit, was.goal), was.goal),
            end=end,
        )

    def _cells(self, h):
        """In how many cells the event is looked for along a step."""
        of_motion = POINTS * jnp.ceil(CELLS_OF_MOTION / POINTS * h / self.span)
        return jnp.clip(of_motion, POINTS if self.even else CELLS, CELLS_OF_MOTION).astype(jnp.int32)
