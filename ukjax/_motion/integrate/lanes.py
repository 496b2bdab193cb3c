"""Adaptive steps for a batch of members that need different numbers of them.

A batch in which every member waits for the slowest does most of its work for nothing. Here members pass through a
fixed number of lanes: each iteration is one step of every lane, as long as its member needs it, and a lane whose member
has reached the end takes the next one. Steps end on the samples, so that nothing is interpolated.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..._run.compile import jit_batch
from ..fallback.policy import solve_batch
from ..plan import Plan
from ..problem import SMALLEST_STEP, InitialState, Problem, Solution
from ..result import RUNNING, classify, finite
from ..stepper.error_control import control_error, next_step_size, perturbed_start
from ..stepper.limits import lane_count
from ..stepper.model_batch import ModelBatch
from ..stepper.runge_kutta import step
from ..stepper.scaling import Scale
from ..stepper.single_loop import single_loop_step
from .base import AbstractBatchIntegrator


class Lanes(eqx.Module):
    """What each lane is at: its ``member`` (that after the last where there is none), the time since the start, the
    step it would take next and the ``longest`` allowed (see ``next_step_size``), the sample it is heading for, its state,
    the scale of it all, its model's numbers, and whether constraints were ``inconsistent`` so far."""

    member: Int[Array, " lanes"]
    t: Float[Array, " lanes"]
    h: Float[Array, " lanes"]
    longest: Float[Array, " lanes"]
    sample: Int[Array, " lanes"]
    steps: Int[Array, " lanes"]
    q: Float[Array, "nq lanes"]
    v: Float[Array, "n lanes"]
    scale: Scale
    numbers: Float[Array, "p lanes"] | None
    inconsistent: Bool[Array, " lanes"]


class Record(eqx.Module):
    """What has been reached, at the ``end`` t since the start, q and v; one row more than there are members, for what
    is of no use."""

    q: Float[Array, "rows samples nq"]
    v: Float[Array, "rows samples n"]
    steps: Int[Array, " rows"]
    result: Int[Array, " rows"]
    end: Float[Array, "rows 1+nq+n"]


class LaneBatch(AbstractBatchIntegrator):
    """Every member with as many adaptive steps as it needs."""

    checks_every_step: ClassVar[bool] = True

    @property
    def program(self):
        return _solve

    def run(self, problem: Problem, start: InitialState, plan: Plan) -> Solution:
        return solve_batch(_solve, problem, start, plan)


@jit_batch
def _solve(start, problem):
    ts = problem.ts
    record = _through_lanes(problem, start)
    since, q, v = jnp.split(record.end, np.array([1, 1 + start.q.shape[1]]), axis=1)
    last = ts[0] + since[:, 0], q, v
    t = jnp.broadcast_to(ts, record.q.shape[:-1])
    displaced = start.displaced(jnp, record.q[:, 0], record.v[:, 0])
    return Solution(t, record.q, record.v, record.result, record.steps, last, displaced)


def _through_lanes(problem: Problem, start: InitialState) -> Record:
    t0, times = problem.ts[0], problem.ts - problem.ts[0]
    members, n = start.q.shape
    lanes = lane_count(members)
    least = SMALLEST_STEP * times[-1]
    none = members  # the row of the record for nobody
    tableau = problem.tableau
    assert tableau is not None, "only explicit steps are done here"

    take = single_loop_step if problem.by.is_sparse else step

    def disturbed_of(_, trial, q, v, scale):
        return perturbed_start(trial, q, v, scale)

    def judge_of(_, q, v, stepped, scale, h, trial):
        return control_error(q, v, stepped, tableau, problem.tolerance(scale), scale, h, trial)

    def attempt_each(numbers, t, h, q, v, scale, trial):
        each, method = ModelBatch(problem.model_of, numbers), problem.by
        q_at, v_at = each(disturbed_of, trial, q, v, scale)
        stepped = take(each, t0 + t, h, q_at, v_at, method, tableau, problem.projection, scale)
        return (stepped, each(judge_of, q, v, stepped, scale, h, trial)), stepped.beyond(method)

    def enter(member):
        """The start of a member, from where a step of length zero leads onto the constraints."""
        at = jnp.minimum(member, members - 1)
        return jax.tree.map(lambda x: x[at].T, start)

    def go_on(carry):
        lanes, _, _ = carry
        return jnp.any(lanes.member < none)

    def iterate(carry):
        lanes, waiting, record = carry
        target = times[jnp.minimum(lanes.sample, times.size - 1)]
        trial = lanes.longest == 0
        h = jnp.where(trial, lanes.h, jnp.minimum(lanes.h, target - lanes.t))
        at = lanes.t, h, lanes.q, lanes.v, lanes.scale, trial
        (stepped, judged), beyond = attempt_each(lanes.numbers, *at)
        started = lanes.steps > 0
        accepted = judged.good & ~trial | ~started
        off = stepped.off & accepted
        inconsistent = lanes.inconsistent | (stepped.inconsistent & accepted)
        landed = accepted & (h >= target - lanes.t)
        q, v = jnp.where(accepted, stepped.q, lanes.q), jnp.where(accepted, stepped.v, lanes.v)
        t = jnp.where(landed, target, jnp.where(accepted, lanes.t + h, lanes.t))
        following, longest = next_step_size(
            h, lanes.h, lanes.longest, judged, started, accepted, landed, least, times[-1]
        )
        steps = lanes.steps + 1
        fine = judged.fine(following, least) | trial
        # Off its constraints before any time has passed, a motion started so: nothing of the method's doing.
        beyond = beyond & (accepted | ~fine) & (started | stepped.needs_fallback)
        sound = finite(q, v, axis=0) & fine
        sample = lanes.sample + landed
        here = lanes.member < none
        through = here & sound & ~beyond & ~off & (sample >= times.size)
        stuck = following < least
        result = classify(
            finished=through,
            needs_fallback=beyond,
            jumped=stuck & stepped.jumped,
            off=off,
            not_finite=~sound,
            stuck=stuck,
            exhausted=steps > problem.max_steps,
            inconsistent=inconsistent,
        )
        lost = here & ~through & (result != RUNNING)
        record = _write(record, jnp.where(landed & here & ~lost, lanes.member, none), lanes.sample, q, v)
        leaving = lost | through
        who = jnp.where(leaving, lanes.member, none)
        before, now = (jnp.concatenate([t[None], q, v]) for t, q, v in ((lanes.t, lanes.q, lanes.v), (t, q, v)))
        end = jnp.where(sound, now, before)
        record = eqx.tree_at(
            lambda r: (r.steps, r.result, r.end),
            record,
            (record.steps.at[who].set(steps - 1), record.result.at[who].set(result), record.end.at[who].set(end.T)),
        )
        lanes = Lanes(
            lanes.member, t, following, longest, sample, steps, q, v, lanes.scale, lanes.numbers, inconsistent
        )
        lanes, waiting = jax.lax.cond(
            jnp.any(leaving), lambda: _refill(lanes, waiting, leaving, enter, none), lambda: (lanes, waiting)
        )
        return lanes, waiting, record

    first = jnp.arange(lanes)
    zero = jnp.zeros(lanes, start.q.dtype)
    count = jnp.zeros(lanes, np.int32)
    record = Record(
        q=jnp.full((members + 1, times.size, n), jnp.nan, start.q.dtype),
        v=jnp.full((members + 1, times.size, start.v.shape[1]), jnp.nan, start.q.dtype),
        steps=jnp.zeros(members + 1, np.int32),
        result=jnp.zeros(members + 1, np.int32),
        end=jnp.zeros((members + 1, 1 + n + start.v.shape[1]), start.q.dtype),
    )
    begun = enter(first)
    none_yet = jnp.zeros(lanes, bool)
    of_steps = zero, zero, zero + jnp.inf, count, count
    at_first = Lanes(first, *of_steps, begun.q, begun.v, begun.scale, begun.numbers, none_yet)
    _, _, record = jax.lax.while_loop(go_on, iterate, (at_first, jnp.asarray(lanes), record))
    return jax.tree.map(lambda x: x[:-1], record)


def _write(record, member, sample, q, v):
    place = jnp.minimum(sample, record.q.shape[1] - 1)
    put = lambda into, x: into.at[member, place].set(x.T)
    return eqx.tree_at(lambda r: (r.q, r.v), record, (put(record.q, q), put(record.v, v)))


def _refill(lanes, waiting, leaving, enter, none):
    """Lanes that are left take the members that wait, in their order."""
    following = jnp.minimum(waiting + jnp.cumsum(leaving) - 1, none)
    member = jnp.where(leaving, following, lanes.member)
    begun = enter(member)
    restart = lambda x, value: jnp.where(leaving, value, x)
    return (
        Lanes(
            member,
            restart(lanes.t, 0),
            restart(lanes.h, 0),
            restart(lanes.longest, jnp.inf),
            restart(lanes.sample, 0),
            restart(lanes.steps, 0),
            restart(lanes.q, begun.q),
            restart(lanes.v, begun.v),
            jax.tree.map(restart, lanes.scale, begun.scale),
            jax.tree.map(restart, lanes.numbers, begun.numbers),
            lanes.inconsistent & ~leaving,
        ),
        waiting + jnp.sum(leaving),
    )
