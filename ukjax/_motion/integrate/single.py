"""One motion, in explicit steps that end on its samples.

It is done in pieces of many steps, by a program in which the acceleration and the correction stand once. Between them
the host looks on: where something was unusual (rows that are redundant, a mass matrix that is singular), the motion
goes on from there by a method that can do it, and only then is that compiled. Steps are remembered, so that a
derivative is a short loop back over them.
"""

from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..._check import is_concrete, without_derivatives
from ..._kernel import per_member, without_kernels
from ..._run.compile import jit_fast_compile, usual_promotion
from ..fallback.cross_singular_pose import cross_singular_pose, step_to
from ..fallback.policy import (
    MOST,
    active_rows,
    in_words,
    initial_method_for_one,
    next_method,
    note_rows_left_out,
    with_tight_limits,
)
from ..fallback.singular_pose import has_understood_rows, step_from_singular_pose
from ..plan import Plan
from ..plan import choose as choose_plan
from ..problem import SMALLEST_STEP, InitialState, Problem, Solution
from ..result import AT_LAST_TIME, FINISHED, RUNNING, UNUSUAL, classify, finite, reached_last_time
from ..stepper.drift_correction import MethodPerLevel
from ..stepper.error_control import FIRST as FIRST_STEP
from ..stepper.error_control import control_error, next_step_size, perturbed_start
from ..stepper.limits import has_single_loop, is_kernel, is_single_kernel
from ..stepper.model_batch import SingleModel
from ..stepper.runge_kutta import step
from ..stepper.single_loop import single_loop_step
from .base import AbstractIntegrator

STEPS_PER_CALL = 1024
"""Steps after which the host looks on."""

MIN_SAMPLES = 16
"""Samples are filled up to this number times a power of two, so that another number of them is the same program."""


NO_DERIVATIVE = (
    "the derivative of a motion through a singular pose is not implemented where a sample, or a step of dt, lies on "
    "the pose or close to it, as after t = {t:g} s. Choose other samples, or another dt, or take differences of motions"
)


NO_SECOND_DERIVATIVE = (
    "adaptive steps can be differentiated once: for a derivative of a derivative say adjoint=diffrax.DirectAdjoint(), "
    "max_steps=256, or take fixed steps, dt=..."
)


class LoopState(NamedTuple):
    """Where a motion is: the time ``t`` since its start; the length ``h`` it would step next; the ``longest`` step that
    is allowed, 0 while that is being found (see ``next_step_size``); the ``sample`` it is heading for, and how many steps
    it has ``taken`` since the one before; q and v; the steps in all, without the first, which leads onto the
    constraints; what became of it; whether constraints were ``inconsistent`` so far."""

    t: Float[Array, ""]
    h: Float[Array, ""]
    longest: Float[Array, ""]
    sample: Int[Array, ""]
    taken: Int[Array, ""]
    q: Float[Array, " nq"]
    v: Float[Array, " n"]
    steps: Int[Array, ""]
    result: Int[Array, ""]
    inconsistent: Bool[Array, ""]


class StepHistory(NamedTuple):
    """Steps as they were taken, a row for each of ``count``: the ``state`` from which it led, (t, h, q, v) with the
    time since the start and the step's length; and where to, twice the sample it was heading for, and one more if it
    landed there."""

    state: Float[Array, "piece 2+nq+n"]
    where: Int[Array, " piece"]
    count: Int[Array, ""]


class SingleMotion(AbstractIntegrator):
    """One motion whose start is known: see the module."""

    checks_every_step: ClassVar[bool] = True

    def run(self, problem: Problem, start: InitialState, plan: Plan) -> Solution:
        how, scale = without_derivatives((problem, start.scale))
        if plan.eager:
            found = _run(how, scale, problem.model, problem.ts, start.q, start.v, plan, remember=False)[0]
            return _as_solution_numpy(problem.ts, *found, start)
        moving, fixed = eqx.partition((problem.model, problem.ts, start.q, start.v), eqx.is_inexact_array)

        @jax.custom_vjp
        def sampled(moving):
            return jax.device_put(_run(how, scale, *eqx.combine(moving, fixed), plan=plan, remember=False)[0])

        def forward(moving):
            if not is_concrete(moving):
                raise ValueError(NO_SECOND_DERIVATIVE)
            found, pieces = _run(how, scale, *eqx.combine(moving, fixed), plan=plan, remember=True)
            return jax.device_put(found), (moving, pieces)

        def backward(known, changes):
            moving, pieces = known
            return (_pull_back(how, scale, moving, fixed, pieces, changes[:2]),)

        sampled.defvjp(forward, backward)
        q, v, loop_state = sampled(moving)
        return as_solution(problem.ts, q, v, without_derivatives(loop_state), start)


def solve_one(problem: Problem, start: InitialState) -> Solution:
    """Integrate one motion whose values are known."""
    return SingleMotion().run(problem, start, choose_plan(problem, start))


def _as_solution_numpy(ts, q, v, loop_state, start):
    """By NumPy, which needs no compiling; and what JAX has made already is handed on, since each array that is made of
    NumPy's costs as much as a third of a step."""
    times, start = np.asarray(ts), jax.tree.map(np.asarray, start)
    reached = finite(q, v, xp=np)
    through = int(loop_state.result) in AT_LAST_TIME
    end = times[-1] if through else (times[0] + np.asarray(loop_state.t)).astype(times.dtype)
    t = ts if np.all(reached) else jax.device_put(np.where(reached, times, np.nan))
    displaced = np.asarray(start.displaced(np, q[0], v[0]))
    q, v, end = jax.device_put((q, v, end))
    return Solution(t, q, v, loop_state.result, loop_state.steps, (end, loop_state.q, loop_state.v), displaced)


@jax.jit
@usual_promotion()
def as_solution(
    ts: Float[Array, " samples"],
    q: Float[Array, "samples nq"],
    v: Float[Array, "samples n"],
    loop_state: LoopState,
    start: InitialState,
) -> Solution:
    """The same where q and v have derivatives, and with them the end of a motion that came to its last sample."""
    through = reached_last_time(loop_state.result)
    last = (
        jnp.where(through, ts[-1], ts[0] + loop_state.t),
        jnp.where(through, q[-1], loop_state.q),
        jnp.where(through, v[-1], loop_state.v),
    )
    t = jnp.where(finite(q, v), ts, jnp.nan)
    return Solution(t, q, v, loop_state.result, loop_state.steps, last, start.displaced(jnp, q[0], v[0]))


def _run(how, scale, model, ts, q0, v0, plan, remember):
    """q and v at the samples, and where the motion came to; and the steps, if they are to be remembered, piece by piece
    with their methods."""
    samples, dtype = ts.size, q0.dtype
    # By NumPy: JAX would compile it for every shape, and takes its time for every number.
    number: Any = lambda x: np.asarray(x, dtype)
    count: Any = lambda x: np.asarray(x, np.int32)
    not_yet: Any = np.asarray(False)
    more = MIN_SAMPLES * 2 ** max(0, int(np.ceil(np.log2(samples / MIN_SAMPLES)))) - samples
    times = np.asarray(ts)
    begin, ends = np.asarray(times[0]), number(np.append(times, np.full(more, times[-1])))
    between = None if how.counts is None else count(np.pad(how.counts.between, (1, more), constant_values=1))
    found = number(np.zeros((ends.size, q0.size + v0.size)))
    start = number(0), number(0), number(np.inf), count(0), count(0), q0, v0
    loop_state = LoopState(*start, count(-1), count(RUNNING), not_yet)
    tolerance = jax.tree.map(number, how.tolerance(jax.tree.map(np.asarray, scale), np))
    limits = count(samples), count(min(how.max_steps, 2**31 - 1))
    asked = how if model is how.model and ts is how.ts else replace(how, model=model, ts=ts)
    pieces, method, decided = [], initial_method_for_one(asked, scale.rows.size, begin, q0, v0), 0
    note_rows_left_out(plan, method, scale.rows.size)
    runtime_rows = not is_single_kernel(how.method, v0.size, scale.rows.size)
    watch, states, declined = not remember and has_understood_rows(asked), None, None
    while int(loop_state.result) == RUNNING:
        current = with_tight_limits(method) if watch else method
        task = model, ends, between, tolerance, limits, current, how.tableau, how.projection, scale
        loop_state, found, steps = _piece(task, loop_state, found)
        if int(steps.count):
            states = steps
        if remember and int(steps.count):
            pieces.append((method, steps))
        if int(loop_state.result) == UNUSUAL:
            t = begin + np.asarray(loop_state.t)
            passed = None
            if float(t) != declined and has_understood_rows(asked):
                if not remember:
                    passed = _past_singular_pose(asked, scale, t, loop_state, found, ends, between)
                passed = passed or _through_singular_pose(
                    asked, scale, method, loop_state, found, ends, between, states
                )
                declined = float(t)
            if passed is not None:
                if remember:
                    raise ValueError(NO_DERIVATIVE.format(t=float(t)))
                plan.note(f"t = {float(t):g} s: passed a singular pose")
                (loop_state, found), states = jax.device_put(passed), None
                continue
            loop_state = loop_state._replace(result=count(RUNNING))
            watched, watch = watch, False
            if watched and int(loop_state.steps) >= 0:  # no such pose: the same step again, with the usual limits
                continue
            another = next_method(asked, method, np.asarray(t), loop_state.q, loop_state.v, runtime_rows=runtime_rows)
            if watched and not isinstance(another, MethodPerLevel):  # within the usual limits nothing may be wrong
                continue
            decided += 1
            method = another if decided < MOST else how.method
            plan.note(f"t = {float(t):g} s: {in_words(method)}")
            watch = not remember and has_understood_rows(asked)
    # Cut by NumPy: JAX would compile it for every number of samples.
    reached = np.arange(samples) < np.asarray(loop_state.sample)
    q, v = np.split(np.where(reached[:, None], np.asarray(found)[:samples], number(np.nan)), [q0.size], axis=1)
    return (q, v, loop_state), pieces


def _past_singular_pose(problem, scale, t, loop_state, found, ends, between):
    """The course and the samples found one step after a singular pose, by NumPy; None where there is none, or none that
    is left so."""
    q, v, since = loop_state.q, loop_state.v, ends - ends[0]
    at, wanted, taken, steps = float(loop_state.t), float(loop_state.h), int(loop_state.taken), int(loop_state.steps)
    sample = max(int(loop_state.sample), 1)
    left = float(since[sample]) - at
    if between is not None:
        h = float(since[sample] - since[sample - 1]) / int(between[sample])
    else:
        h = min(left, wanted if wanted > 0 else FIRST_STEP * float(np.min(np.asarray(scale.q) / np.asarray(scale.v))))
    passed = step_from_singular_pose(problem, t, h, q, v, scale)
    if passed is None:
        return None
    found = np.array(found)
    if steps < 0:  # the step of no length, onto the constraints
        found[0] = np.concatenate([q, v])
    landed = passed.h >= left if between is None else taken + 1 >= int(between[sample])
    if landed:
        found[sample] = np.concatenate([passed.q, passed.v])
    through = landed and sample + 1 >= problem.ts.size
    number: Any = lambda x: np.asarray(x, since.dtype)
    count: Any = lambda x: np.asarray(x, np.int32)
    loop_state = LoopState(
        t=number(since[sample] if landed else at + passed.h),
        h=number(max(passed.following, wanted)),
        longest=loop_state.longest,
        sample=count(sample + landed),
        taken=count(0 if landed else taken + 1),
        q=passed.q,
        v=passed.v,
        steps=count(max(steps, 0) + 1),
        result=count(FINISHED if through else RUNNING),
        inconsistent=loop_state.inconsistent,
    )
    return loop_state, found


def _through_singular_pose(problem, scale, method, loop_state, found, ends, between, states):
    """The course and the samples found behind a singular pose that the last step met, by NumPy; None where there is
    none, or none that is understood."""
    since, samples = (ends - ends[0]).astype(float), problem.ts.size
    times = since[:samples]
    if int(loop_state.steps) < 0 or float(loop_state.longest) == 0 or int(loop_state.sample) >= samples:
        return None
    sample = int(loop_state.sample)
    if between is None:
        h = min(float(loop_state.h), times[sample] - float(loop_state.t))
    else:
        h = (times[sample] - times[max(sample - 1, 0)]) / int(between[sample])
    here = np.concatenate([[float(loop_state.t), h], np.asarray(loop_state.q), np.asarray(loop_state.v)]).astype(
        ends.dtype
    )
    earlier = np.asarray(states.state)[: int(states.count)] if states is not None else here[None][:0]
    history = np.concatenate([earlier[earlier[:, 1] > 0], here[None]])
    crossing = cross_singular_pose(problem, ends[0], history, active_rows(method, scale.rows.size), scale)
    if crossing is None:
        return None
    found, before, after = np.array(found), crossing.before, crossing.after
    for k in np.flatnonzero((times > before.t) & (times <= after.t)):
        found[k] = crossing.at(times[k])
    sample = int(np.searchsorted(times, after.t, side="right"))
    t, q, v, steps, taken = after.t, after.q, after.v, crossing.steps, 0
    if sample == samples:
        t, (q, v) = times[-1], np.split(found[sample - 1], [q.size])
    elif between is not None:  # on to the next of the equal steps
        start, end = times[sample - 1], times[sample]
        even = (end - start) / int(between[sample])
        taken = int((t - start) // even) + 1
        to = start + taken * even
        reached = step_to(problem, ends[0], after, to, scale)
        if reached is None:
            return None
        t, (q, v), steps = to, reached, steps + 1
        if taken == int(between[sample]):
            found[sample] = np.concatenate([q, v])
            sample, taken = sample + 1, 0
    number: Any = lambda x: np.asarray(x, ends.dtype)
    count: Any = lambda x: np.asarray(x, np.int32)
    q, v = jax.device_put((number(q), number(v)))
    loop_state = LoopState(
        t=number(t),
        h=number(crossing.following),
        longest=loop_state.longest,
        sample=count(sample),
        taken=count(taken),
        q=q,
        v=v,
        steps=count(int(loop_state.steps) + steps),
        result=count(FINISHED if sample == samples else RUNNING),
        inconsistent=loop_state.inconsistent,
    )
    return loop_state, found


@jit_fast_compile
def _piece(task, loop_state, found):
    """As many steps as a piece has, or fewer."""
    if is_single_kernel(task[5], loop_state.v.size, task[-1].rows.size):
        return advance(task, loop_state, found, STEPS_PER_CALL, STEPS_PER_CALL)
    by = lambda task, loop_state, found: _advance(
        task, loop_state, found, STEPS_PER_CALL, STEPS_PER_CALL, single_loop_step
    )
    return _by_lapack(by, task[0], task[5], task[7])(task, loop_state, found)


def _by_lapack(function, model, method, projection):
    """``function``, for a system that is too large for one kernel. The parts of a compact step stand once and may be
    kernels. In any other step they stand several times, and XLA compiles all of it."""
    return function if has_single_loop(model, method, projection) else without_kernels(function)


def advance(
    task: tuple, loop_state: LoopState, found: Array, most: Any = None, rows: int = 0
) -> tuple[LoopState, Array, StepHistory]:
    """Where a motion comes to in at ``most`` so many steps, by default all it takes; the samples ``found`` by then; and
    the steps, the first ``rows`` of which are remembered."""
    method = task[5]
    if not is_kernel(method):
        return _advance(task, loop_state, found, most, rows, single_loop_step)
    by = lambda task, loop_state, found, most: _advance(task, loop_state, found, most, rows, step)
    return per_member(by)(task, loop_state, found, most)


def _advance(task, loop_state, found, most, rows, take):
    model, ends, between, tolerance, (samples, allowed), method, tableau, projection, scale = task
    watchful = method.has_fallback  # what cannot be done is left to another method
    leaves_out = isinstance(method, MethodPerLevel) and method.drops_rows
    t0, times = ends[0], ends - ends[0]
    dtype, size = loop_state.q.dtype, loop_state.q.size + loop_state.v.size
    least = SMALLEST_STEP * times[-1]
    until = None if most is None else loop_state.steps + most

    def go_on(state):
        loop_state, _, _ = state
        running = loop_state.result == RUNNING
        return running if until is None else running & (loop_state.steps < until)

    def iterate(state):
        loop_state, found, steps = state
        t, q, v, sample = loop_state.t, loop_state.q, loop_state.v, loop_state.sample
        target = times[sample]
        started, trial = loop_state.steps >= 0, loop_state.longest == 0
        at = q, v
        if between is None:
            h = jnp.where(trial, loop_state.h, jnp.minimum(loop_state.h, target - t))
            at = perturbed_start(trial, q, v, scale)
        else:
            before = times[jnp.maximum(sample - 1, 0)]
            even = (target - before) / between[sample]
            t = before + loop_state.taken * even
            h = even
        stepped = take(SingleModel(model), t0 + t, h, *at, method, tableau, projection, scale)
        if between is None:
            judged = control_error(q, v, stepped, tableau, tolerance, scale, h, trial)
            accepted = judged.good & ~trial | ~started
            landed = accepted & (h >= target - t)
            following, longest = next_step_size(
                h, loop_state.h, loop_state.longest, judged, started, accepted, landed, least, times[-1]
            )
            fine = judged.fine(following, least) | trial
            stuck = (following < least) & (sample + landed < samples)
        else:
            accepted, following, longest, stuck = (
                jnp.asarray(True),
                loop_state.h,
                loop_state.longest,
                jnp.asarray(False),
            )
            landed = loop_state.taken + 1 >= between[sample]
            fine = jnp.asarray(True)
        fine = fine & (~accepted | finite(stepped.q, stepped.v))
        off = accepted & stepped.off
        inconsistent = loop_state.inconsistent | (accepted & stepped.inconsistent)
        jumped = stepped.jumped & (stuck if between is None else True)  # adaptive steps are tried shorter first
        # Off its constraints before any time has passed, a motion started so: nothing of the method's doing.
        doubtful = watchful & ((stepped.needs_fallback & (accepted | ~fine)) | (off & started & leaves_out))
        accepted = accepted & fine & ~doubtful & ~jumped  # but if it is off its constraints: of that is complained
        landed = landed & accepted & ~off
        # A derivative is that of the steps as they were taken.
        following, longest = jax.lax.stop_gradient((following, longest))
        choose = lambda new, old: jnp.where(accepted, new, old)
        through = sample + landed >= samples
        result = classify(
            finished=through,
            needs_fallback=doubtful,
            jumped=jumped,
            off=off,
            not_finite=~fine,
            stuck=stuck,
            exhausted=loop_state.steps + 1 >= allowed,
            inconsistent=inconsistent,
        )
        put = jax.lax.dynamic_update_index_in_dim
        if rows:
            steps = StepHistory(
                state=put(steps.state, jnp.concatenate([jnp.stack([t, h]), q, v]), steps.count, 0),
                where=put(steps.where, 2 * sample + landed, steps.count, 0),
                count=steps.count + accepted,
            )
        there = jnp.concatenate([stepped.q, stepped.v])
        found = put(found, there, sample, 0)  # again and again until it is reached
        loop_state = LoopState(
            t=jnp.where(landed, target, choose(t + h, t)),
            h=jnp.where(doubtful, loop_state.h, following),
            longest=jnp.where(doubtful, loop_state.longest, longest),
            sample=sample + landed,
            taken=jnp.where(landed, 0, loop_state.taken + accepted),
            q=choose(stepped.q, q),
            v=choose(stepped.v, v),
            steps=loop_state.steps + ~doubtful,
            result=result,
            inconsistent=inconsistent,
        )
        return loop_state, found, steps

    steps = StepHistory(jnp.zeros((rows, 2 + size), dtype), jnp.zeros(rows, np.int32), jnp.zeros((), np.int32))
    return jax.lax.while_loop(go_on, iterate, (loop_state, found, steps))


def initial_loop_state(samples: int, q: Array, v: Array) -> tuple[LoopState, Array]:
    """Where a motion begins, and its samples, of which none is known."""
    zero = jnp.zeros((), q.dtype)
    none, before_any, running = (jnp.asarray(x, np.int32) for x in (0, -1, RUNNING))
    of_steps = zero, zero, zero + jnp.inf, none, none
    loop_state = LoopState(*of_steps, q, v, before_any, running, jnp.asarray(False))
    return loop_state, jnp.zeros((samples, q.size + v.size), q.dtype)


def reached(loop_state: LoopState, found: Float[Array, "samples entries"]) -> Float[Array, "samples entries"]:
    """The samples ``found``, NaN where the motion did not come to."""
    return jnp.where(jnp.arange(len(found))[:, None] < loop_state.sample, found, jnp.nan)


def _pull_back(how, scale, moving, fixed, pieces, changes):
    """The cotangent of ``moving`` from those of the samples."""
    of_state = tuple(jnp.zeros_like(x) for x in moving[2:])
    of_rest = jax.tree.map(jnp.zeros_like, moving[:2])
    for method, steps in reversed(pieces):
        task = moving[:2], fixed[:2], method, how.tableau, how.projection, scale
        of_state, of_rest = _piece_back(task, steps, changes, of_state, of_rest)
    return (*of_rest, *of_state)


@jit_fast_compile
def _piece_back(task, steps, to_samples, of_state, of_rest):
    if is_single_kernel(task[2], of_state[1].size, task[-1].rows.size):
        return pull_back(task, steps, to_samples, of_state, of_rest)
    model = eqx.combine(task[0], task[1])[0]
    by = lambda *given: _pull_back_by(*given, take=single_loop_step)
    return _by_lapack(by, model, task[2], task[4])(task, steps, to_samples, of_state, of_rest)


def pull_back(task: tuple, steps: StepHistory, to_samples: Any, of_state: Any, of_rest: Any) -> tuple[Any, Any]:
    """The cotangents of q and v where ``steps`` begin, and of the model and the times, from those where they end; the
    last step first."""
    if not is_kernel(task[2]):
        return _pull_back_by(task, steps, to_samples, of_state, of_rest, single_loop_step)
    by = lambda *given: _pull_back_by(*given, take=step)
    return per_member(by)(task, steps, to_samples, of_state, of_rest)


def _pull_back_by(task, steps, to_samples, of_state, of_rest, take):
    rest, fixed, method, tableau, projection, scale = task
    values = jax.lax.stop_gradient(rest[1])
    begins = jnp.concatenate([values[:1], values])

    def back(k, carry):
        of_state, of_rest = carry
        i = steps.count - 1 - k
        sample, landed = steps.where[i] // 2, steps.where[i] % 2 == 1
        (t_before, length), q, v = jnp.split(steps.state[i], np.array([2, 2 + of_state[0].size]))
        # How far from the sample before a step begins, and how long it is, are constants, but for its end on a sample.
        since = values[0] + t_before - begins[sample]

        def one(rest, q, v):
            model, ts = eqx.combine(rest, fixed)
            t = jnp.where(sample > 0, ts[jnp.maximum(sample - 1, 0)], ts[0]) + since
            h = jnp.where(landed & (sample > 0), ts[sample] - t, length)
            stepped = take(SingleModel(model), t, h, q, v, method, tableau, projection, scale)
            return stepped.q, stepped.v

        _, pull = jax.vjp(without_kernels(one), rest, q, v)
        of_state = tuple(x + jnp.where(landed, at[sample], 0) for x, at in zip(of_state, to_samples, strict=True))
        more, *of_state = pull(of_state)
        return tuple(of_state), jax.tree.map(jnp.add, of_rest, more)

    return jax.lax.fori_loop(0, steps.count, back, (tuple(of_state), of_rest))
