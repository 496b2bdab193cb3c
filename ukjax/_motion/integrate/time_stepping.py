"""Moreau–Jean time stepping with fixed steps whose numbers are known, for one motion or for a batch."""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Bool, Float, Int

from ..._contact.history import ContactHistory
from ..._contact.mode import Mode, all_open
from ..._contact.moreau_jean import MoreauJeanStep, moreau_jean_step, project_gaps
from ..._contact.transition import Setting, transition
from ..._run.compile import jit_batch
from ..fallback.policy import solve_eagerly
from ..plan import Plan
from ..problem import InitialState, Problem, Solution
from ..result import classify, finite, reached_times
from ..stepper.contact_setting import compiled, setting_of
from ..stepper.drift_correction import MethodPerLevel, correct_drift, same_at_every_level
from ..stepper.scaling import Scale
from .base import AbstractBatchIntegrator
from .fixed_step import SAVED_NAME, save_step_starts


class TimeStepping(AbstractBatchIntegrator):
    """Integrator by ``ukjax.MoreauJean``, see the module."""

    checks_every_step: ClassVar[bool] = True

    @property
    def program(self):
        return _solve

    def run(self, problem: Problem, start: InitialState, plan: Plan) -> Solution:
        return solve_eagerly(_solve, problem, start, plan) if plan.eager else _solve(start, problem)


class LoopState(NamedTuple):
    """State of the loop over time: q, v, the contact mode, the failures and the numbers of steps and impacts so far."""

    q: Float[Array, " nq"]
    v: Float[Array, " n"]
    mode: Mode
    off: Bool[Array, ""]
    not_finite: Bool[Array, ""]
    no_mode: Bool[Array, ""]
    needs_fallback: Bool[Array, ""]
    taken: Int[Array, ""]
    changes: Int[Array, ""]

    @property
    def stopped(self) -> Bool[Array, ""]:
        """Whether the motion has stopped."""
        return self.off | self.not_finite | self.no_mode


class CorrectedStep(NamedTuple):
    """A step with its drift correction; whether its end is off the constraints, and whether the method was not
    applicable."""

    step: MoreauJeanStep
    off: Bool[Array, ""]
    needs_fallback: Bool[Array, ""]


def corrected_step(
    setting: Setting, t: Array, h: Array, q: Array, v: Array, levels: MethodPerLevel, scale: Scale
) -> CorrectedStep:
    """A step of Moreau and Jean, projected onto the constraints and onto g ≥ 0."""
    taken = moreau_jean_step(setting, t, h, q, v)
    q, v, off, needs_fallback = project(setting, t + h, taken.q, taken.v, levels, scale)
    return CorrectedStep(taken._replace(q=q, v=v), off, needs_fallback | taken.needs_fallback)


def project(setting, t, q, v, levels, scale):
    """q and v projected onto the constraints and onto g ≥ 0.

    Gaps are pushed along the constraints to first order, so the constraints are corrected again: a loop of two
    iterations, which is compiled once.
    """

    def correct(state, _):
        q, v, _, needs_fallback = state
        q = project_gaps(setting, t, q, v)
        q, v, off, fallback, _ = correct_drift(setting.system, t, q, v, levels, scale)
        return (q, v, off, needs_fallback | fallback), None

    false = jnp.asarray(False)
    return jax.lax.scan(correct, (q, v, false, false), length=2)[0]


@jit_batch
def _solve(start, problem):
    one = lambda start, ts, per_interval: _solve_one(problem, start, ts, per_interval)
    one = compiled(one, problem.model, start)
    if start.q.ndim == 1:
        return one(start, problem.ts, problem.counts.per_interval)
    return jax.vmap(one, (0, None, None))(start, problem.ts, problem.counts.per_interval)


def _solve_one(problem, start, ts, per_interval):
    system, scale = problem.model_of(start.numbers), start.scale
    method = problem.current_method
    levels = method if isinstance(method, MethodPerLevel) else same_at_every_level(method)
    setting = setting_of(system, method, ts[0], start.q, start.v, scale)
    false, zero = jnp.asarray(False), jnp.zeros((), np.int32)

    # The first sample is the start, projected onto the constraints.
    q0, v0, off, needs_fallback = project(setting, ts[0], start.q, start.v, levels, scale)
    no_release = jnp.zeros(setting.layout.gaps + setting.layout.groups, bool)
    at_start = transition(setting, ts[0], q0, v0, all_open(setting.layout, q0.dtype), no_release, derivatives=False)
    state = LoopState(q0, v0, at_start.mode, off, false, false, needs_fallback, zero, zero)

    def interval(state, ends_and_count):
        t0, t1, count = ends_and_count
        h = (t1 - t0) / count

        def advance(state, i):
            after, off, fallback = corrected_step(setting, t0 + i * h, h, state.q, state.v, levels, scale)
            is_running = ~state.stopped
            not_finite = ~finite(after.q, after.v)
            taken = checkpoint_name(is_running & ~not_finite & after.solved, SAVED_NAME)
            choose = lambda new, old: jax.tree.map(lambda x, y: jnp.where(taken, x, y), new, old)
            changed = jnp.any(after.mode.closed != state.mode.closed)
            return LoopState(
                q=choose(after.q, state.q),
                v=choose(after.v, state.v),
                mode=choose(after.mode, state.mode),
                off=state.off | off & taken,
                not_finite=state.not_finite | not_finite & is_running,
                no_mode=state.no_mode | ~after.solved & ~not_finite & is_running,
                needs_fallback=state.needs_fallback | fallback & is_running,
                taken=state.taken + taken,
                changes=state.changes + (changed & taken),
            )

        def advance_if_needed(state, i):
            return jax.lax.cond(i < count, lambda: advance(state, i), lambda: state), None

        state, _ = jax.lax.scan(save_step_starts(advance_if_needed), state, jnp.arange(problem.counts.most))
        q, v = (jnp.where(state.stopped, jnp.nan, x) for x in (state.q, state.v))
        return state, (q, v, state.mode)

    last, (q, v, mode) = jax.lax.scan(interval, state, (ts[:-1], ts[1:], per_interval))
    with_first = lambda x, xs: jnp.concatenate([x[None], xs])
    q, v, mode = jax.tree.map(with_first, (state.q, state.v, state.mode), (q, v, mode))
    result = classify(
        needs_fallback=method.has_fallback & last.needs_fallback,
        finished=~(last.stopped | (method.has_fallback & last.needs_fallback)),
        no_mode=last.no_mode,
        off=last.off,
        not_finite=last.not_finite,
    )
    none = jnp.zeros((0,), q.dtype)
    contacts = ContactHistory(
        closed=mode.closed,
        sticking=mode.sticking,
        direction=mode.direction,
        impact_times=none,
        impulses=jnp.zeros((0, setting.layout.rows), q.dtype),
        impacts=zero,
        changes=last.changes,
    )
    t = reached_times(ts, q, v)
    end = jnp.where(last.stopped, jnp.nanmax(t), ts[-1])
    displaced = start.displaced(jnp, q[0], v[0])
    return Solution(t, q, v, result, last.taken, (end, last.q, last.v), displaced, contacts)
