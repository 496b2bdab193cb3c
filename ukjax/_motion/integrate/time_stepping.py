"""Moreau–Jean time stepping with fixed steps whose numbers are known, for one motion or for a batch."""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Bool, Float, Int

from ..._contact.history import ContactHistory
from ..._contact.mode import ContactMode, all_open
from ..._contact.moreau_jean import MoreauJeanStep, moreau_jean_step, push_out
from ..._contact.rows import gaps
from ..._contact.transition import Setting
from ..._run.compile import jit_batch
from ..._system import Driven
from ..fallback.policy import solve_eagerly
from ..plan import Plan
from ..problem import InitialState, Problem, Solution
from ..result import classify, finite, reached_times
from ..stepper.contact_setting import compiled, pushed_off_task, setting_of
from ..stepper.drift_correction import MethodPerLevel, correct_drift, same_at_every_level
from ..stepper.scaling import Scale
from .base import AbstractBatchIntegrator
from .fixed_step import SAVED_NAME, save_step_starts, time_after
from .schedule import SampledInputs, nothing_sampled, scheduled_stops


class TimeStepping(AbstractBatchIntegrator):
    """Integrator by ``ukjax.MoreauJean``, see the module."""

    checks_every_step: ClassVar[bool] = True

    @property
    def program(self):
        return _solve

    def run(self, problem: Problem, start: InitialState, plan: Plan) -> Solution:
        return solve_eagerly(_solve, problem, start, plan) if plan.eager else _solve(start, problem)


class LoopState(NamedTuple):
    """State of the loop over time: q, v, the impulses of the last step, the contact mode, that of the first step, the
    failures, the numbers of steps and of changes of the mode so far, and the held inputs of sampled control."""

    q: Float[Array, " nq"]
    v: Float[Array, " n"]
    impulse: Float[Array, " rows"]
    mode: ContactMode
    first_mode: ContactMode
    off: Bool[Array, ""]
    off_task: Bool[Array, ""]
    not_finite: Bool[Array, ""]
    no_mode: Bool[Array, ""]
    needs_fallback: Bool[Array, ""]
    taken: Int[Array, ""]
    changes: Int[Array, ""]
    held: SampledInputs | None

    @property
    def stopped(self) -> Bool[Array, ""]:
        """Whether the motion has stopped."""
        return self.off | self.off_task | self.not_finite | self.no_mode


class CorrectedStep(NamedTuple):
    """A step, its end (q, v) after the projections; whether that is off the constraints, whether contacts push it off
    the task of its control, and whether the method was not applicable."""

    step: MoreauJeanStep
    q: Float[Array, " nq"]
    v: Float[Array, " n"]
    off: Bool[Array, ""]
    off_task: Bool[Array, ""]
    needs_fallback: Bool[Array, ""]


PROJECTIONS = 3
"""Newton iterations of the projection at the end of a step."""


def corrected_step(
    setting: Setting, t: Array, h: Array, q: Array, v: Array, guess: Array, levels: MethodPerLevel, scale: Scale
) -> CorrectedStep:
    """A step of Moreau and Jean, projected onto the constraints and onto g ≥ 0. ``guess``: see ``moreau_jean_step``.

    Both projections are repeated in one loop: gaps are pushed along the constraints to first order only.
    """
    taken = moreau_jean_step(setting, t, h, q, v, guess)

    def project(state, _):
        end, _, needs_fallback = state
        end = push_out(setting, t + h, end, taken.response, taken.pull)
        corrected = correct_drift(setting.system, t + h, end.q, end.v, levels, scale)
        end = end._replace(q=corrected.q, v=corrected.v)
        return (end, corrected.off, needs_fallback | corrected.needs_fallback), None

    state = taken.end, jnp.asarray(False), taken.response.needs_fallback
    (end, off, needs_fallback), _ = jax.lax.scan(project, state, length=PROJECTIONS)
    off_task = pushed_off_task(setting.system, taken.response, taken.impulse, t + h, end.q, end.v)
    return CorrectedStep(taken, end.q, end.v, off, off_task, needs_fallback)


@jit_batch
def _solve(start, problem):
    one = lambda start, ts, per_interval: _solve_one(problem, start, ts, per_interval)
    if start.q.ndim == 1:
        return one(start, problem.ts, problem.counts.per_interval)
    return jax.vmap(one, (0, None, None))(start, problem.ts, problem.counts.per_interval)


def _solve_one(problem, start, ts, per_interval):
    """The solution for one start. Only the loop is a kernel, which writes out operations on samples one by one."""
    method = problem.current_method
    schedule, stops = problem.schedule, scheduled_stops(problem.model_of(start.numbers), problem.schedule, ts)
    # The first interval has length zero: its only step projects the start, and applies impacts at the first time.
    begins = jax.tree.map(lambda x: jnp.concatenate([x[:1], x]), stops)
    counts = jnp.concatenate([jnp.ones_like(per_interval[:1]), per_interval])
    intervals = begins.at(slice(None, -1)), stops.time, counts
    loop = compiled(lambda *arguments: _loop(problem, *arguments), problem.model, start.q, start.v)
    last, (q, v, mode, u) = loop(start, intervals, stops.at(-1))
    if schedule is not None:
        u = jnp.concatenate([u[1:], jnp.where(last.stopped, jnp.nan, last.held.u)[None]])
        q, v, mode, u = jax.tree.map(lambda x: x[schedule.places], (q, v, mode, u))
    # No impulse acts in a step of length zero: the mode at the first sample is that of the step after it.
    mode = jax.tree.map(lambda of_first, modes: modes.at[0].set(of_first), last.first_mode, mode)
    result = classify(
        needs_fallback=method.has_fallback & last.needs_fallback,
        finished=~(last.stopped | (method.has_fallback & last.needs_fallback)),
        no_mode=last.no_mode,
        off=last.off,
        off_task=last.off_task,
        not_finite=last.not_finite,
    )
    none, zero = jnp.zeros((0,), q.dtype), jnp.zeros((), np.int32)
    contacts = ContactHistory(
        closed=mode.closed,
        sticking=mode.sticking,
        direction=mode.direction,
        impact_times=none,
        impulses=jnp.zeros((0, last.impulse.size), q.dtype),
        impacts=zero,
        changes=last.changes,
        grazing=jnp.asarray(False),
    )
    end = time_after(last.taken, stops.time, per_interval), last.q, last.v
    displaced = start.displaced(jnp, q[0], v[0])
    return Solution(reached_times(ts, q, v), q, v, result, last.taken - 1, end, displaced, contacts, held=u)


def _loop(problem, start, intervals, last_stop):
    """The state after the last interval, and q, v, the mode and the held inputs at the end of each."""
    t, system, scale = intervals[0].time[0], problem.model_of(start.numbers), start.scale
    method = problem.current_method
    levels = method if isinstance(method, MethodPerLevel) else same_at_every_level(method)
    setting = setting_of(system, method, t, start.q, start.v, scale)
    false, zero = jnp.asarray(False), jnp.zeros((), np.int32)

    none = all_open(setting.layout, start.q.dtype)
    inside = jnp.any(gaps(system.nonsmooth, t, start.q) < -setting.max_penetration)
    no_impulse = jnp.zeros(setting.layout.rows, start.q.dtype)
    schedule = problem.schedule
    nothing = None if schedule is None else nothing_sampled(system, schedule, t, start.q, start.v)
    failures = inside, false, false, false, false
    state = LoopState(start.q, start.v, no_impulse, none, none, *failures, zero, zero, nothing)
    after_stop = lambda state, stop: (
        state
        if state.held is None
        else state._replace(held=state.held.after(stop, system, stop.time, state.q, state.v))
    )

    def interval(state, part):
        begin, t1, count = part
        t0, h = begin.time, (t1 - begin.time) / count
        state = after_stop(state, begin)
        u = None if state.held is None else jnp.where(state.stopped, jnp.nan, state.held.u)
        driven = setting if state.held is None else setting._replace(system=Driven(system, state.held.u))

        def advance(state, i):
            after, q, v, off, off_task, fallback = corrected_step(
                driven, t0 + i * h, h, state.q, state.v, state.impulse, levels, scale
            )
            is_running = ~state.stopped
            not_finite = ~finite(q, v)
            taken = checkpoint_name(is_running & ~not_finite & after.solved, SAVED_NAME)
            choose = lambda new, old: jax.tree.map(lambda x, y: jnp.where(taken, x, y), new, old)
            changed = jnp.any(after.mode.closed != state.mode.closed)
            return LoopState(
                q=choose(q, state.q),
                v=choose(v, state.v),
                impulse=jax.lax.stop_gradient(choose(after.impulse, state.impulse)),
                mode=choose(after.mode, state.mode),
                first_mode=jax.tree.map(
                    lambda x, y: jnp.where(state.taken == 1, x, y), choose(after.mode, state.mode), state.first_mode
                ),
                off=state.off | off & taken,
                off_task=state.off_task | off_task & taken,
                not_finite=state.not_finite | not_finite & is_running,
                no_mode=state.no_mode | ~after.solved & ~not_finite & is_running,
                needs_fallback=state.needs_fallback | fallback & is_running,
                taken=state.taken + taken,
                changes=state.changes + (changed & taken),
                held=state.held,
            )

        def advance_if_needed(state, i):
            return jax.lax.cond(i < count, lambda: advance(state, i), lambda: state), None

        state, _ = jax.lax.scan(save_step_starts(advance_if_needed), state, jnp.arange(problem.counts.most))
        q, v = (jnp.where(state.stopped, jnp.nan, x) for x in (state.q, state.v))
        return state, (q, v, state.mode, u)

    last, at_ends = jax.lax.scan(interval, state, intervals)
    return after_stop(last, last_stop), at_ends
