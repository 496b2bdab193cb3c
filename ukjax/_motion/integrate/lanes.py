"""Adaptive steps for a batch whose members need different numbers of steps.

If all members waited for the slowest one, most of the work would be wasted. So the members pass through a fixed number
of lanes: each iteration is one step in every lane, with the step size of its member, and when a member has ended, its
lane takes the next member. Steps end on the samples, so that nothing is interpolated.
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
from ..result import RUNNING, classify, finite, reached_times
from ..stepper.error_control import control_error, next_step_size, perturbed_start
from ..stepper.limits import lane_count
from ..stepper.model_batch import ModelBatch
from ..stepper.runge_kutta import step
from ..stepper.scaling import Scale
from ..stepper.single_loop import single_loop_step
from ..stepper.singular_turn import turned
from .alone import past_singular_poses
from .base import AbstractBatchIntegrator


class Lanes(eqx.Module):
    """State of each lane.

    Attributes
    ----------
    member
        Index of the member; the number of members if the lane is empty.
    t
        Time since the start [s].
    h, longest
        Next step size and longest step allowed [s], see ``next_step_size``.
    sample
        Index of the next sample.
    steps
        Number of steps, including the first one of length zero.
    q, v
        State.
    scale
        Characteristic scales of the member.
    numbers
        Numbers of the member's model, see ``InitialState``.
    inconsistent
        Whether constraints contradicted each other so far.
    """

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
    """Results of all members, and one more row to which the results of empty lanes are written.

    Attributes
    ----------
    q, v
        State at the samples.
    steps
        Number of steps.
    result
        Code for how the motion ended.
    end
        The last time since the start [s], q and v.
    """

    q: Float[Array, "rows samples nq"]
    v: Float[Array, "rows samples n"]
    steps: Int[Array, " rows"]
    result: Int[Array, " rows"]
    end: Float[Array, "rows 1+nq+n"]


class LaneBatch(AbstractBatchIntegrator):
    """Integrator for batches: each member takes its own adaptive steps, in parallel lanes."""

    checks_every_step: ClassVar[bool] = True

    @property
    def program(self):
        return _solve

    def run(self, problem: Problem, start: InitialState, plan: Plan) -> Solution:
        return past_singular_poses(solve_batch(_solve, problem, start, plan), problem, start, plan)


@jit_batch
def _solve(start, problem):
    ts = problem.ts
    record = _through_lanes(problem, start)
    since, q, v = jnp.split(record.end, np.array([1, 1 + start.q.shape[1]]), axis=1)
    last = ts[0] + since[:, 0], q, v
    t = reached_times(ts, record.q, record.v)
    displaced = start.displaced(jnp, record.q[:, 0], record.v[:, 0])
    return Solution(t, record.q, record.v, record.result, record.steps, last, displaced)


def _through_lanes(problem: Problem, start: InitialState) -> Record:
    """Integrate all members."""
    t0, times = problem.ts[0], problem.ts - problem.ts[0]
    members, n = start.q.shape
    lanes = lane_count(members)
    least = SMALLEST_STEP * times[-1]
    no_member = members  # index of the additional row of the record
    tableau = problem.tableau
    assert tableau is not None, "lanes need an explicit solver"

    take_step = single_loop_step if problem.current_method.is_sparse else step

    def perturbed_of(_, trial, q, v, scale):
        return perturbed_start(trial, q, v, scale)

    def control_of(_, q, v, stepped, scale, h, trial):
        return control_error(q, v, stepped, tableau, problem.tolerance(scale), scale, h, trial)

    def turned_of(_, *step):
        return turned(*step)

    def attempt_steps(numbers, t, h, q, v, scale, trial):
        models, method = ModelBatch(problem.model_of, numbers), problem.current_method
        q_at, v_at = models(perturbed_of, trial, q, v, scale)
        stepped = take_step(models, t0 + t, h, q_at, v_at, method, tableau, problem.projection, scale)
        has_turned = models(turned_of, stepped.independence, h, v, stepped.v, scale)
        return (stepped, models(control_of, q, v, stepped, scale, h, trial)), stepped.beyond(method), has_turned

    def initial_of(member):
        """The start of a member. The first step, of length zero, projects it onto the constraints."""
        index = jnp.minimum(member, members - 1)
        return jax.tree.map(lambda x: x[index].T, start)

    def is_any_running(carry):
        lanes, _, _ = carry
        return jnp.any(lanes.member < no_member)

    def iterate(carry):
        lanes, waiting, record = carry
        target = times[jnp.minimum(lanes.sample, times.size - 1)]
        trial = lanes.longest == 0
        h = jnp.where(trial, lanes.h, jnp.minimum(lanes.h, target - lanes.t))
        at = lanes.t, h, lanes.q, lanes.v, lanes.scale, trial
        (stepped, control), beyond, has_turned = attempt_steps(lanes.numbers, *at)
        started = lanes.steps > 0
        accepted = control.good & ~trial | ~started
        off, singular = stepped.off & accepted, has_turned & accepted & started
        inconsistent = lanes.inconsistent | (stepped.inconsistent & accepted)
        landed = accepted & (h >= target - lanes.t)
        q, v = jnp.where(accepted, stepped.q, lanes.q), jnp.where(accepted, stepped.v, lanes.v)
        t = jnp.where(landed, target, jnp.where(accepted, lanes.t + h, lanes.t))
        following, longest = next_step_size(
            h, lanes.h, lanes.longest, control, started, accepted, landed, least, times[-1]
        )
        steps = lanes.steps + 1
        fine = control.fine(following, least) | trial
        # A state off the constraints at the first time was off in the input. This is not a failure of the method.
        beyond = beyond & (accepted | ~fine) & (started | stepped.needs_fallback)
        is_finite = finite(q, v, axis=0) & fine
        sample = lanes.sample + landed
        occupied = lanes.member < no_member
        finished = occupied & is_finite & ~beyond & ~off & ~singular & (sample >= times.size)
        stuck = following < least
        result = classify(
            finished=finished,
            needs_fallback=beyond,
            singular=singular,
            jumped=stuck & stepped.jumped,
            off=off,
            not_finite=~is_finite,
            stuck=stuck,
            exhausted=steps > problem.max_steps,
            inconsistent=inconsistent,
        )
        failed = occupied & ~finished & (result != RUNNING)
        record = _write(record, jnp.where(landed & occupied & ~failed, lanes.member, no_member), lanes.sample, q, v)
        ended = failed | finished
        ended_member = jnp.where(ended, lanes.member, no_member)
        state_before, state_now = (
            jnp.concatenate([t[None], q, v]) for t, q, v in ((lanes.t, lanes.q, lanes.v), (t, q, v))
        )
        end = jnp.where(is_finite, state_now, state_before)
        record = eqx.tree_at(
            lambda r: (r.steps, r.result, r.end),
            record,
            (
                record.steps.at[ended_member].set(steps - 1),
                record.result.at[ended_member].set(result),
                record.end.at[ended_member].set(end.T),
            ),
        )
        lanes = Lanes(
            lanes.member, t, following, longest, sample, steps, q, v, lanes.scale, lanes.numbers, inconsistent
        )
        lanes, waiting = jax.lax.cond(
            jnp.any(ended), lambda: _refill(lanes, waiting, ended, initial_of, no_member), lambda: (lanes, waiting)
        )
        return lanes, waiting, record

    first_members = jnp.arange(lanes)
    zero = jnp.zeros(lanes, start.q.dtype)
    count = jnp.zeros(lanes, np.int32)
    record = Record(
        q=jnp.full((members + 1, times.size, n), jnp.nan, start.q.dtype),
        v=jnp.full((members + 1, times.size, start.v.shape[1]), jnp.nan, start.q.dtype),
        steps=jnp.zeros(members + 1, np.int32),
        result=jnp.zeros(members + 1, np.int32),
        end=jnp.zeros((members + 1, 1 + n + start.v.shape[1]), start.q.dtype),
    )
    initial = initial_of(first_members)
    all_false = jnp.zeros(lanes, bool)
    step_state = zero, zero, zero + jnp.inf, count, count
    initial_lanes = Lanes(first_members, *step_state, initial.q, initial.v, initial.scale, initial.numbers, all_false)
    _, _, record = jax.lax.while_loop(is_any_running, iterate, (initial_lanes, jnp.asarray(lanes), record))
    return jax.tree.map(lambda x: x[:-1], record)


def _write(record, member, sample, q, v):
    """Write q and v of each lane into the record."""
    index = jnp.minimum(sample, record.q.shape[1] - 1)
    put = lambda into, x: into.at[member, index].set(x.T)
    return eqx.tree_at(lambda r: (r.q, r.v), record, (put(record.q, q), put(record.v, v)))


def _refill(lanes, waiting, ended, initial_of, no_member):
    """Assign the waiting members, in their order, to the lanes whose members have ended."""
    following = jnp.minimum(waiting + jnp.cumsum(ended) - 1, no_member)
    member = jnp.where(ended, following, lanes.member)
    initial = initial_of(member)
    restart = lambda x, value: jnp.where(ended, value, x)
    return (
        Lanes(
            member,
            restart(lanes.t, 0),
            restart(lanes.h, 0),
            restart(lanes.longest, jnp.inf),
            restart(lanes.sample, 0),
            restart(lanes.steps, 0),
            restart(lanes.q, initial.q),
            restart(lanes.v, initial.v),
            jax.tree.map(restart, lanes.scale, initial.scale),
            jax.tree.map(restart, lanes.numbers, initial.numbers),
            lanes.inconsistent & ~ended,
        ),
        waiting + jnp.sum(ended),
    )
