"""Step size controller that ends a motion on an event. No accepted step crosses the event."""

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
"""Units in the last place by which two equal times, or the value of an event and zero, may differ."""

MAX_FIRST_STEPS_BEFORE = 1e4
"""Largest assumed duration of a motion that ended in a start on its event, in units of the first step size. The start
has the rounding error of such a motion."""

MAX_TRIES = 8
"""Steps towards a crossing, after which the remaining interval is bisected."""

MIN_CELLS_OF_STEP, MIN_CELLS_OF_MOTION = 4 * POINTS, 64 * POINTS
"""Smallest numbers of cells in which the event is evaluated: in an adaptive step, and in the whole time."""

MAX_DIP = 0.1
"""Largest minimum of an event within a step that is examined, relative to the change of the event in that step."""


class EventControllerState(NamedTuple):
    """State of the controller.

    Attributes
    ----------
    inner
        State of the wrapped controller.
    began, length
        Start and length of the step that the wrapped controller requested [s].
    goal
        End of that step, or, if ``tries`` > 0, the first time known to be beyond the event [s].
    tries
        Number of steps towards the crossing.
    side
        Side of zero, 1 or −1, from which a crossing counts; 0 if no crossing counts yet.
    away
        Whether the motion has been clearly away from zero.
    zero
        Rounding error of the event's value: smaller values count as zero.
    nan
        Whether the event's value is NaN.
    """

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
    """Result of the search for the event along a step.

    Attributes
    ----------
    beyond
        Whether the step ends beyond the event.
    dips
        Whether the event has a minimum within the step, near enough to zero that it may cross it.
    at_event
        Whether the step ends on the event.
    started_on_event
        Whether the motion started on the event and did not leave it.
    away, side
        The fields of ``EventControllerState`` after the step.
    to_crossing
        End of a shorter step towards the crossing, if ``beyond`` [s].
    to_dip
        End of a shorter step to the minimum, if ``dips`` [s].
    onward
        End of the next step otherwise [s].
    end
        The event's value at the end of the step, positive on ``side``.
    """

    beyond: Bool[Array, ""]
    dips: Bool[Array, ""]
    at_event: Bool[Array, ""]
    started_on_event: Bool[Array, ""]
    away: Bool[Array, ""]
    side: Float[Array, ""]
    to_crossing: Float[Array, ""]
    to_dip: Float[Array, ""]
    onward: Float[Array, ""]
    end: Float[Array, ""]


class EventController(dfx.AbstractAdaptiveStepSizeController):
    """Wrap another controller, and end the motion on an event.

    A step that ends beyond the event, or that may cross it, is rejected, and a shorter one is taken, until a step ends
    within rounding of the crossing, on the near side of zero. So the last state is the result of a step, on the
    constraints, and is not interpolated. A start whose event value is zero up to rounding is on the event, which then
    counts only after the motion has been away from it. If the state or the event becomes NaN, the motion ends.

    Attributes
    ----------
    controller
        The wrapped controller. Its time is the time since ``start``.
    event
        The event.
    kinematic_map
        Kinematic map of the model, or None.
    n
        Number of coordinates.
    start
        First time [s].
    span
        Duration of the motion [s].
    even
        Whether steps are fixed.
    rtol, atol, norm
        Tolerances and norm for implicit solvers.
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
        return eqx.tree_at(lambda controller: controller.controller, self, self.controller.wrap(direction))

    def init(self, terms, t0, t1, y0, dt0, args, func, error_order):
        goal, inner = self.controller.init(terms, t0, t1, y0, dt0, args, func, error_order)
        y, slope, time, first, wanted = jax.lax.stop_gradient((y0, func(terms, t0, y0, args), t0, goal, inner.wanted))
        (q, v), rates, time = self._apart(y), self._apart(slope), jnp.asarray(time)
        at_start = jax.lax.stop_gradient(self._at_start(self.start + time, q, v, rates, wanted))
        tries = jnp.zeros((), jnp.int32)
        return goal, EventControllerState(inner, time, first - time, first, tries, *at_start, jnp.asarray(False))

    def _apart(self, y):
        """Split y into q and v."""
        return jnp.split(y, [self.n])

    def _at_start(self, t, q, v, rates, first):
        """The state's ``side``, ``away`` and ``zero`` at the start, for the step size ``first``."""
        value, gradient = jax.value_and_grad(self.event, argnums=(0, 1, 2))(t, q, v)
        dot = lambda xs, ys: sum(jnp.sum(x * y) for x, y in zip(xs, ys, strict=True))
        rates = jnp.ones_like(t), *rates
        absolute = lambda *xs: jax.tree.map(jnp.abs, xs)
        time_before = jnp.minimum(self.span, MAX_FIRST_STEPS_BEFORE * first)
        (t, q, v), (_, speed, v_rate) = absolute(t, q, v), absolute(*rates)
        q_acceleration = v_rate if self.kinematic_map is None else speeds(self.kinematic_map, q, v_rate)
        rounding = ROUNDING * jnp.finfo(value.dtype).eps
        zero = rounding * dot(
            absolute(*gradient),
            (t + time_before, q + time_before * speed + first**2 * q_acceleration, v + first * v_rate),
        )
        away, direction = jnp.abs(value) > zero, self.event.counted
        if direction:  # beyond the event no crossing counts until the motion is back
            side = jnp.where(away & (value * direction > 0), 0, -direction)
        else:
            slope = dot(gradient, rates)
            at_rest = jnp.abs(slope) <= rounding * dot(absolute(*gradient), absolute(*rates))
            side = jnp.where(away, jnp.sign(value), jnp.where(at_rest, 0, jnp.sign(slope)))
        return side.astype(value.dtype), away, jnp.asarray(zero)

    def adapt_step_size(self, t0, t1, y0, y1_candidate, args, y_error, error_order, controller_state):
        old: EventControllerState = controller_state
        good, _, following_end, jump, inner, result = self.controller.adapt_step_size(
            t0, t1, y0, y1_candidate, args, y_error, error_order, old.inner
        )
        good = jnp.asarray(good)
        y0, y1, *times = jax.lax.stop_gradient((y0, y1_candidate, t0, t1, following_end))
        begin, end, following_end = map(jnp.asarray, times)
        (q0, v0), (q1, v1) = self._apart(y0), self._apart(y1)
        check = self._check(Step(begin, q0, v0, end, q1, v1, self.kinematic_map), old)
        is_state_finite = jnp.all(jnp.isfinite(y1))
        event_nan = good & is_state_finite & jnp.isnan(check.end)
        is_nan = good & (event_nan | ~is_state_finite)
        beyond, dips, ended = (
            good & check.beyond,
            good & check.dips,
            is_nan | good & (check.at_event | check.started_on_event),
        )
        accepted = good & ~beyond & ~dips & ~check.started_on_event
        step_done = accepted & (end >= old.goal)
        keeps_result = ~good | step_done & (old.began == begin)

        def pick(refused, after_step, to_crossing, to_dip, onward):
            within_step = jnp.where(beyond, to_crossing, jnp.where(dips, to_dip, onward))
            return jnp.where(good, jnp.where(step_done, after_step, within_step), refused)

        state = EventControllerState(
            inner=jax.tree.map(lambda x, y: jnp.where(~good | step_done, x, y), inner, old.inner),
            began=pick(begin, end, old.began, old.began, old.began),
            length=pick(following_end - begin, following_end - end, old.length, old.length, old.length),
            goal=pick(following_end, following_end, end, old.goal, old.goal),
            tries=pick(0, 0, old.tries + 1, old.tries, old.tries),
            side=jnp.where(accepted, check.side, old.side),
            away=jnp.where(accepted, check.away, old.away),
            zero=old.zero,
            nan=event_nan,
        )
        result = dfx.RESULTS.where(keeps_result, result, dfx.RESULTS.successful)
        result = dfx.RESULTS.where(ended, dfx.RESULTS.event_occurred, result)
        next_end = pick(following_end, following_end, check.to_crossing, check.to_dip, check.onward)
        return accepted, jnp.where(accepted, t1, t0), next_end, jump, state, result

    def _check(self, step: Step, state: EventControllerState) -> CrossingCheck:
        """Search for the event along a step."""
        h, dtype, direction = step.t1 - step.t0, step.q0.dtype, self.event.counted
        is_armed, is_sought, bisect = state.side != 0, state.tries > 0, state.tries >= MAX_TRIES
        # The value is positive on the side from which a crossing counts, or will count later.
        side = jnp.where(is_armed, state.side, direction or 1)
        value_at = lambda t, q, v: side * self.event(self.start + t, q, v)
        value_along, constants = jax.closure_convert(lambda share: value_at(*step.at(share)), jnp.zeros((), dtype))
        constants = jax.lax.stop_gradient(constants)  # the search has no derivative
        value = lambda share: value_along(share, *constants)
        start, end = value(jnp.zeros((), dtype)), value(jnp.ones((), dtype))
        cells = self._cells(h)
        found = search(value, cells, state.away, state.zero)
        away = state.away | is_armed & found.above
        beyond = is_armed & (end < jnp.where(away, 0, -state.zero))
        to_crossing = step.t0 + h * jnp.where(bisect, 0.5, found.crossing(value))
        dips = (found.least < jnp.minimum(start, end) - state.zero) & (
            found.least < MAX_DIP * (found.most - found.least)
        )
        dips = ~beyond & dips & (is_armed | bool(direction)) & (h > state.length * SOONEST / cells)

        # Estimated time until the crossing, from the slope of the event's value at the end of the step.
        rates = jnp.ones_like(h), rate(self.kinematic_map, step.q1, step.v1), (step.v1 - step.v0) / h
        slope = jax.lax.stop_gradient(jax.jvp(value_at, (step.t1, step.q1, step.v1), rates)[1])
        remaining = jnp.where(slope < 0, -jnp.maximum(end, 0) / jnp.where(slope < 0, slope, 1), jnp.inf)
        onward = jnp.where(bisect, (step.t1 + state.goal) / 2, step.t1 + 2 * remaining)

        t_rounding = ROUNDING * jnp.finfo(dtype).eps * jnp.where(away, step.t1, state.length)
        is_near = is_sought & ((remaining <= t_rounding) | (state.goal - step.t1 <= t_rounding)) | (end == 0)
        first = step.t0 + jnp.maximum(h * SOONEST / cells, t_rounding / 2)
        becomes_armed = ~is_armed & ((-end if direction else jnp.abs(end)) > state.zero)
        return CrossingCheck(
            beyond=beyond,
            dips=dips,
            at_event=~beyond & ~dips & is_armed & away & (end >= 0) & is_near,
            # The step is as short as possible, or the motion was on the event all the time until it is beyond.
            started_on_event=beyond & (h <= 2 * t_rounding) | ~beyond & is_sought & ~away,
            away=away | becomes_armed,
            side=jnp.where(becomes_armed, side * jnp.sign(end), state.side),
            to_crossing=jnp.clip(
                to_crossing - t_rounding / 2, first, jnp.maximum(step.t1 - t_rounding, step.t0 + h / 2)
            ),
            to_dip=step.t0 + h * found.where,
            onward=jnp.where(is_sought, jnp.minimum(onward + t_rounding, state.goal), state.goal),
            end=end,
        )

    def _cells(self, h):
        """Number of cells in which the event is evaluated along a step of h."""
        of_motion = POINTS * jnp.ceil(MIN_CELLS_OF_MOTION / POINTS * h / self.span)
        return jnp.clip(of_motion, POINTS if self.even else MIN_CELLS_OF_STEP, MIN_CELLS_OF_MOTION).astype(jnp.int32)
