"""One motion, by explicit steps that end on its samples.

The motion is integrated in pieces of many steps, by a program that contains the acceleration and the correction only
once. The host checks the state between the pieces. If the method was not applicable (redundant rows, a singular mass
matrix), the motion continues from there by another method, which is compiled only then. The steps are recorded, so that
the derivative is a short loop backwards over them.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..._constraint import names_of
from ..._errors import InputError
from ..._jaxpr.tracing import is_concrete, without_derivatives
from ..._kernel import per_member, without_kernels
from ..._run.compile import jit_fast_compile, standard_promotion
from ..fallback.cross_singular_pose import cross_singular_pose, is_undecided, step_to
from ..fallback.policy import (
    MAX_METHOD_CHANGES,
    active_rows,
    in_words,
    initial_method_for_one,
    nearly_dependent_limit,
    next_method,
    note_rows_left_out,
    with_limit,
)
from ..fallback.singular_pose import has_understood_rows, step_from_singular_pose
from ..plan import Plan, choose
from ..problem import SMALLEST_STEP, InitialState, Problem, Solution
from ..result import (
    AT_LAST_TIME,
    FINISHED,
    NEEDS_FALLBACK,
    RUNNING,
    SINGULAR_POSE,
    classify,
    finite,
    reached_last_time,
    reached_times,
)
from ..stepper.drift_correction import MethodPerLevel
from ..stepper.error_control import FIRST as FIRST_STEP
from ..stepper.error_control import control_error, next_step_size, perturbed_start
from ..stepper.limits import has_single_loop, is_kernel, is_single_kernel
from ..stepper.model_batch import SingleModel
from ..stepper.runge_kutta import step
from ..stepper.single_loop import single_loop_step
from ..stepper.singular_turn import turned, undecided_limit
from .base import AbstractIntegrator

STEPS_PER_CALL = 1024
"""Number of steps after which the host checks the state."""

MIN_SAMPLES = 16
"""Samples are padded to this number times a power of two, so that other numbers of samples reuse the program."""

NO_DERIVATIVE = (
    "the derivative of a motion through a singular pose is not implemented where a step ends on the pose or close to "
    "it, as after t = {t:g} s. Take fixed steps, dt=..., or another dt, or other samples, or use finite differences"
)

NO_SECOND_DERIVATIVE = (
    "adaptive steps can be differentiated once: for second derivatives use adjoint=diffrax.DirectAdjoint(), "
    "max_steps=256, or fixed steps, dt=..."
)


class LoopState(NamedTuple):
    """State of the loop over time.

    Attributes
    ----------
    t
        Time since the start [s].
    h
        Next step size [s].
    longest
        Longest step allowed [s]; 0 while it is being determined, see ``next_step_size``.
    sample
        Index of the next sample.
    steps_taken
        Number of steps since the sample before.
    q, v
        State.
    steps
        Number of all steps, without the first one, which projects the start onto the constraints; −1 before that.
    result
        Code of ``_motion.result``.
    inconsistent
        Whether constraints contradicted each other so far.
    """

    t: Float[Array, ""]
    h: Float[Array, ""]
    longest: Float[Array, ""]
    sample: Int[Array, ""]
    steps_taken: Int[Array, ""]
    q: Float[Array, " nq"]
    v: Float[Array, " n"]
    steps: Int[Array, ""]
    result: Int[Array, ""]
    inconsistent: Bool[Array, ""]


class StepHistory(NamedTuple):
    """Record of the steps of a piece.

    Attributes
    ----------
    state
        (t, h, q, v) at the start of each step, with the time since the start and the step size (steps, 2+nq+n).
    where
        Twice the index of the next sample, plus one if the step ended there (steps,).
    count
        Number of steps recorded.
    """

    state: Float[Array, "piece 2+nq+n"]
    where: Int[Array, " piece"]
    count: Int[Array, ""]


class SingleMotion(AbstractIntegrator):
    """Integrator for one motion with concrete values, see the module."""

    checks_every_step: ClassVar[bool] = True

    def run(self, problem: Problem, start: InitialState, plan: Plan) -> Solution:
        primal_problem, scale = without_derivatives((problem, start.scale))
        if plan.eager:
            solution = _run(primal_problem, scale, problem.model, problem.ts, start.q, start.v, plan, remember=False)[0]
            return _as_solution_numpy(problem.ts, *solution, start)
        differentiable, constant = eqx.partition((problem.model, problem.ts, start.q, start.v), eqx.is_inexact_array)

        @jax.custom_vjp
        def solve(differentiable):
            return jax.device_put(
                _run(primal_problem, scale, *eqx.combine(differentiable, constant), plan=plan, remember=False)[0]
            )

        def forward(differentiable):
            if not is_concrete(differentiable):
                raise InputError(NO_SECOND_DERIVATIVE)
            solution, pieces = _run(
                primal_problem, scale, *eqx.combine(differentiable, constant), plan=plan, remember=True
            )
            return jax.device_put(solution), (differentiable, pieces)

        def backward(residuals, cotangents):
            differentiable, pieces = residuals
            return (_pull_back(primal_problem, scale, differentiable, constant, pieces, cotangents[:2]),)

        solve.defvjp(forward, backward)
        q, v, loop_state = solve(differentiable)
        return as_solution(problem.ts, q, v, without_derivatives(loop_state), start)


def integrate_alone(problem: Problem, start: InitialState) -> tuple[Solution, list[float]]:
    """Integrate one member of a batch as a single motion. Returns the solution, and the times of singular poses [s]."""
    plan = choose(problem, start)
    solution = _run(problem, start.scale, problem.model, problem.ts, start.q, start.v, plan, remember=False)[0]
    return _as_solution_numpy(problem.ts, *solution, start), [t for _, t in plan.singular_poses]


def _as_solution_numpy(ts, q, v, loop_state, start):
    """Build the ``Solution`` by NumPy, without compilation.

    Arrays of JAX are reused if possible: converting an array from NumPy takes as long as a third of a step.
    """
    times, start = np.asarray(ts), jax.tree.map(np.asarray, start)
    reached = finite(q, v, xp=np)
    finished = int(loop_state.result) in AT_LAST_TIME
    end = times[-1] if finished else (times[0] + np.asarray(loop_state.t)).astype(times.dtype)
    t = ts if np.all(reached) else jax.device_put(np.where(reached, times, np.nan))
    displaced = np.asarray(start.displaced(np, q[0], v[0]))
    q, v, end = jax.device_put((q, v, end))
    return Solution(t, q, v, loop_state.result, loop_state.steps, (end, loop_state.q, loop_state.v), displaced)


@jax.jit
@standard_promotion()
def as_solution(
    ts: Float[Array, " samples"],
    q: Float[Array, "samples nq"],
    v: Float[Array, "samples n"],
    loop_state: LoopState,
    start: InitialState,
) -> Solution:
    """Build the ``Solution`` with the derivatives of q and v.

    The last state of a motion that reached its last sample is that sample, so that it has derivatives too.
    """
    finished = reached_last_time(loop_state.result)
    last = (
        jnp.where(finished, ts[-1], ts[0] + loop_state.t),
        jnp.where(finished, q[-1], loop_state.q),
        jnp.where(finished, v[-1], loop_state.v),
    )
    t = reached_times(ts, q, v)
    return Solution(t, q, v, loop_state.result, loop_state.steps, last, start.displaced(jnp, q[0], v[0]))


def _run(options, scale, model, ts, q0, v0, plan, remember) -> tuple[tuple[Any, Any, Any], list[Any]]:
    """Integrate; return (q and v at the samples, the last loop state) and the recorded steps.

    If ``remember``, the steps are a list with the method and the ``StepHistory`` of each piece; otherwise it is empty.
    """
    samples, dtype = ts.size, q0.dtype
    # NumPy is used, since JAX compiles for every shape and is slow for single numbers.
    number: Any = lambda x: np.asarray(x, dtype)
    count: Any = lambda x: np.asarray(x, np.int32)
    false: Any = np.asarray(False)
    padding = MIN_SAMPLES * 2 ** max(0, int(np.ceil(np.log2(samples / MIN_SAMPLES)))) - samples
    times = np.asarray(ts)
    begin, ends = np.asarray(times[0]), number(np.append(times, np.full(padding, times[-1])))
    per_interval = (
        None if options.counts is None else count(np.pad(options.counts.per_interval, (1, padding), constant_values=1))
    )
    padded_samples = number(np.zeros((ends.size, q0.size + v0.size)))
    start = number(0), number(0), number(np.inf), count(0), count(0), q0, v0
    loop_state = LoopState(*start, count(-1), count(RUNNING), false)
    tolerance = jax.tree.map(number, options.tolerance(jax.tree.map(np.asarray, scale), np))
    limits = count(samples), count(min(options.max_steps, 2**31 - 1))
    problem = options if model is options.model and ts is options.ts else replace(options, model=model, ts=ts)
    pieces, method, method_changes = [], initial_method_for_one(problem, scale.rows.size, begin, q0, v0), 0
    note_rows_left_out(plan, method, scale.rows.size)
    runtime_rows = not is_single_kernel(options.method, v0.size, scale.rows.size)
    nearby, undecided = nearly_dependent_limit(dtype), undecided_limit(dtype)
    understood = has_understood_rows(problem)
    has_limit = understood and not (remember and per_interval is not None)
    first_limit = nearby if has_limit else None
    limit, states, t_without_pose = first_limit, None, None
    while int(loop_state.result) == RUNNING:
        current_method = method if limit is None else with_limit(method, limit)
        step_inputs = (
            model,
            ends,
            per_interval,
            tolerance,
            limits,
            current_method,
            options.tableau,
            options.projection,
            scale,
        )
        loop_state, padded_samples, steps = _piece(step_inputs, loop_state, padded_samples)
        if int(steps.count):
            states = steps
        if remember and int(steps.count):
            pieces.append((method, steps))
        if int(loop_state.result) == NEEDS_FALLBACK:
            t = begin + np.asarray(loop_state.t)
            passed = None
            if float(t) != t_without_pose and understood:
                if not remember:
                    passed = _past_singular_pose(problem, scale, t, loop_state, padded_samples, ends, per_interval)
                passed = passed or _through_singular_pose(
                    problem, scale, method, loop_state, padded_samples, ends, per_interval, states
                )
                t_without_pose = float(t)
            if passed is not None:
                if remember:
                    raise InputError(NO_DERIVATIVE.format(t=float(t)))
                loop_state, padded_samples, at_pose, dependent = passed
                which = f", where {', '.join(dependent)} became dependent" if dependent else ""
                plan.note(f"t = {at_pose:g} s: passed a singular pose{which}")
                plan.singular_poses.append((0, at_pose))
                (loop_state, padded_samples), states = jax.device_put((loop_state, padded_samples)), None
                continue
            loop_state = loop_state._replace(result=count(RUNNING))
            started, had_limit = int(loop_state.steps) >= 0, limit
            if limit == nearby and started:  # near a singular pose at most: repeat the step
                limit = undecided
                continue
            if limit is not None and started:
                history, visited = _recorded(loop_state, padded_samples, ends, per_interval, states)
                rows = active_rows(method, scale.rows.size)
                if is_undecided(problem, begin, history, visited, rows, scale, limit):
                    loop_state = loop_state._replace(result=jax.device_put(count(SINGULAR_POSE)))
                    break
            limit = None
            following_method = next_method(
                problem, method, np.asarray(t), loop_state.q, loop_state.v, runtime_rows=runtime_rows
            )
            # Within the default limits the step may be valid.
            if had_limit is not None and not isinstance(following_method, MethodPerLevel):
                continue
            method_changes += 1
            method = following_method if method_changes < MAX_METHOD_CHANGES else options.method
            plan.note(f"t = {float(t):g} s: {in_words(method)}")
            limit = first_limit
    # Sliced by NumPy, since JAX would compile for every number of samples.
    reached = np.arange(samples) < np.asarray(loop_state.sample)
    q, v = np.split(np.where(reached[:, None], np.asarray(padded_samples)[:samples], number(np.nan)), [q0.size], axis=1)
    return (q, v, loop_state), pieces


def _past_singular_pose(problem, scale, t, loop_state, samples, ends, per_interval):
    """Take one step from a state at a singular pose, by NumPy.

    Returns the loop state, the samples, the time of the pose, and no names of rows; or None if the state is not at such
    a pose, or the motion cannot leave it by one step.
    """
    q, v, elapsed = loop_state.q, loop_state.v, ends - ends[0]
    t_elapsed, wanted_h, taken, steps = (
        float(loop_state.t),
        float(loop_state.h),
        int(loop_state.steps_taken),
        int(loop_state.steps),
    )
    sample = max(int(loop_state.sample), 1)
    remaining = float(elapsed[sample]) - t_elapsed
    if per_interval is not None:
        h = float(elapsed[sample] - elapsed[sample - 1]) / int(per_interval[sample])
    else:
        h = min(
            remaining,
            wanted_h if wanted_h > 0 else FIRST_STEP * float(np.min(np.asarray(scale.q) / np.asarray(scale.v))),
        )
    after = step_from_singular_pose(problem, t, h, q, v, scale)
    if after is None:
        return None
    samples = np.array(samples)
    if steps < 0:  # this replaces the step of length zero, onto the constraints
        samples[0] = np.concatenate([q, v])
    landed = after.h >= remaining if per_interval is None else taken + 1 >= int(per_interval[sample])
    if landed:
        samples[sample] = np.concatenate([after.q, after.v])
    finished = landed and sample + 1 >= problem.ts.size
    number: Any = lambda x: np.asarray(x, elapsed.dtype)
    count: Any = lambda x: np.asarray(x, np.int32)
    loop_state = LoopState(
        t=number(elapsed[sample] if landed else t_elapsed + after.h),
        h=number(max(after.following, wanted_h)),
        longest=loop_state.longest,
        sample=count(sample + landed),
        steps_taken=count(0 if landed else taken + 1),
        q=after.q,
        v=after.v,
        steps=count(max(steps, 0) + 1),
        result=count(FINISHED if finished else RUNNING),
        inconsistent=loop_state.inconsistent,
    )
    return loop_state, samples, float(t), []


def _recorded(loop_state, samples, ends, per_interval, recorded):
    """(t, h, q, v) at the start of the ``recorded`` steps and of the last one, which failed; and at the samples."""
    times, sample = (ends - ends[0]).astype(float), int(loop_state.sample)
    if per_interval is None:
        h = min(float(loop_state.h), times[sample] - float(loop_state.t))
    else:
        h = (times[sample] - times[max(sample - 1, 0)]) / int(per_interval[sample])
    last_state = np.concatenate([[float(loop_state.t), h], np.asarray(loop_state.q), np.asarray(loop_state.v)]).astype(
        ends.dtype
    )
    earlier = np.asarray(recorded.state)[: int(recorded.count)] if recorded is not None else last_state[None][:0]
    visited = np.column_stack([times[:sample], np.zeros(sample), np.asarray(samples)[:sample]]).astype(ends.dtype)
    return np.concatenate([earlier[earlier[:, 1] > 0], last_state[None]]), visited


def _through_singular_pose(problem, scale, method, loop_state, samples, ends, per_interval, recorded):
    """Cross a singular pose in the last step, by NumPy.

    Returns the loop state and the samples behind it, the time of the pose, and the names of the dependent rows; or None
    if there is no such pose, or none that can be crossed.
    """
    since, sample_count = (ends - ends[0]).astype(float), problem.ts.size
    times = since[:sample_count]
    if int(loop_state.steps) < 0 or float(loop_state.longest) == 0 or int(loop_state.sample) >= sample_count:
        return None
    history, visited = _recorded(loop_state, samples, ends, per_interval, recorded)
    samples = np.array(samples)
    crossing = cross_singular_pose(problem, ends[0], history, visited, active_rows(method, scale.rows.size), scale)
    if crossing is None:
        return None
    before, after = crossing.before, crossing.after
    at = jax.device_put((np.asarray(ends[0] + before.t, ends.dtype), before.q))
    labels = names_of(problem.model.enforced, lambda constraint: constraint.position(*at))
    dependent = [repr(labels[i]) for i in crossing.dependent]
    for k in np.flatnonzero((times > before.t) & (times <= after.t)):
        samples[k] = crossing.at(times[k])
    sample = int(np.searchsorted(times, after.t, side="right"))
    t, q, v, steps, taken = after.t, after.q, after.v, crossing.steps, 0
    if sample == sample_count:
        t, (q, v) = times[-1], np.split(samples[sample - 1], [q.size])
    elif per_interval is not None:  # continue to the end of the current fixed step
        start, end = times[sample - 1], times[sample]
        even = (end - start) / int(per_interval[sample])
        taken = int((t - start) // even) + 1
        t_end = start + taken * even
        reached = step_to(problem, ends[0], after, t_end, scale)
        if reached is None:
            return None
        t, (q, v), steps = t_end, reached, steps + 1
        if taken == int(per_interval[sample]):
            samples[sample] = np.concatenate([q, v])
            sample, taken = sample + 1, 0
    number: Any = lambda x: np.asarray(x, ends.dtype)
    count: Any = lambda x: np.asarray(x, np.int32)
    q, v = jax.device_put((number(q), number(v)))
    loop_state = LoopState(
        t=number(t),
        h=number(crossing.following),
        longest=loop_state.longest,
        sample=count(sample),
        steps_taken=count(taken),
        q=q,
        v=v,
        steps=count(int(loop_state.steps) + steps),
        result=count(FINISHED if sample == sample_count else RUNNING),
        inconsistent=loop_state.inconsistent,
    )
    return loop_state, samples, float(ends[0]) + crossing.at_pose, dependent


@jit_fast_compile
def _piece(step_inputs, loop_state, samples):
    """Advance the motion by ``STEPS_PER_CALL`` steps, or to its end."""
    if is_single_kernel(step_inputs[5], loop_state.v.size, step_inputs[-1].rows.size):
        return advance(step_inputs, loop_state, samples, STEPS_PER_CALL, STEPS_PER_CALL)
    advance_by_single_loop = lambda step_inputs, loop_state, samples: _advance(
        step_inputs, loop_state, samples, STEPS_PER_CALL, STEPS_PER_CALL, single_loop_step
    )
    return _without_kernels_unless_single_loop(advance_by_single_loop, step_inputs[0], step_inputs[5], step_inputs[7])(
        step_inputs, loop_state, samples
    )


def _without_kernels_unless_single_loop(function, model, method, projection):
    """``function`` for a system that is too large for one kernel.

    In a single-loop step each part occurs once in the program, and may be a kernel. In other steps parts occur several
    times, so XLA compiles all of them.
    """
    return function if has_single_loop(model, method, projection) else without_kernels(function)


def advance(
    step_inputs: tuple,
    loop_state: LoopState,
    samples: Array,
    most: Any = None,
    rows: int = 0,
    compile_kernel: Callable = per_member,
) -> tuple[LoopState, Array, StepHistory]:
    """Advance a motion by at most ``most`` steps, None for all. ``compile_kernel`` compiles it if it is a kernel.

    Returns the loop state, the updated ``samples``, and the record of the first ``rows`` steps.
    """
    method = step_inputs[5]
    if not is_kernel(method):
        return _advance(step_inputs, loop_state, samples, most, rows, single_loop_step)
    advance_kernel = lambda step_inputs, loop_state, samples, most: _advance(
        step_inputs, loop_state, samples, most, rows, step
    )
    return compile_kernel(advance_kernel)(step_inputs, loop_state, samples, most)


def _advance(step_inputs, loop_state, samples, most, rows, take_step):
    model, ends, per_interval, tolerance, (sample_count, max_steps), method, tableau, projection, scale = step_inputs
    has_fallback = method.has_fallback  # the motion then continues by another method
    drops_rows = isinstance(method, MethodPerLevel) and method.drops_rows
    t0, times = ends[0], ends - ends[0]
    dtype, size = loop_state.q.dtype, loop_state.q.size + loop_state.v.size
    least = SMALLEST_STEP * times[-1]
    until = None if most is None else loop_state.steps + most

    def is_running(state):
        loop_state, _, _ = state
        running = loop_state.result == RUNNING
        return running if until is None else running & (loop_state.steps < until)

    def iterate(state):
        loop_state, samples, steps = state
        t, q, v, sample = loop_state.t, loop_state.q, loop_state.v, loop_state.sample
        target = times[sample]
        started, trial = loop_state.steps >= 0, loop_state.longest == 0
        step_start = q, v
        if per_interval is None:
            h = jnp.where(trial, loop_state.h, jnp.minimum(loop_state.h, target - t))
            step_start = perturbed_start(trial, q, v, scale)
        else:
            t_before = times[jnp.maximum(sample - 1, 0)]
            fixed_h = (target - t_before) / per_interval[sample]
            t = t_before + loop_state.steps_taken * fixed_h
            h = fixed_h
        stepped = take_step(SingleModel(model), t0 + t, h, *step_start, method, tableau, projection, scale)
        if per_interval is None:
            control = control_error(q, v, stepped, tableau, tolerance, scale, h, trial)
            accepted = control.good & ~trial | ~started
            landed = accepted & (h >= target - t)
            following, longest = next_step_size(
                h, loop_state.h, loop_state.longest, control, started, accepted, landed, least, times[-1]
            )
            fine = control.fine(following, least) | trial
            stuck = (following < least) & (sample + landed < sample_count)
        else:
            accepted, following, longest, stuck = (
                jnp.asarray(True),
                loop_state.h,
                loop_state.longest,
                jnp.asarray(False),
            )
            landed = loop_state.steps_taken + 1 >= per_interval[sample]
            fine = jnp.asarray(True)
        fine = fine & (~accepted | finite(stepped.q, stepped.v))
        off = accepted & stepped.off
        singular = (
            accepted & started & turned(stepped.independence, h, v, stepped.v, scale) if per_interval is None else False
        )
        inconsistent = loop_state.inconsistent | (accepted & stepped.inconsistent)
        # Adaptive steps are first repeated with a shorter length.
        jumped = stepped.jumped & (stuck if per_interval is None else True)
        # A state off the constraints at the first time was off in the input. This is not a failure of the method.
        needs_fallback = has_fallback & ((stepped.needs_fallback & (accepted | ~fine)) | (off & started & drops_rows))
        # A state off the constraints is accepted, so that the error message can report it.
        accepted = accepted & fine & ~needs_fallback & ~jumped & ~jnp.asarray(singular)
        landed = landed & accepted & ~off
        # Derivatives are those of the steps that were taken, at constant step sizes.
        following, longest = jax.lax.stop_gradient((following, longest))
        choose = lambda new, old: jnp.where(accepted, new, old)
        finished = sample + landed >= sample_count
        result = classify(
            finished=finished,
            needs_fallback=needs_fallback,
            singular=singular,
            jumped=jumped,
            off=off,
            not_finite=~fine,
            stuck=stuck,
            exhausted=loop_state.steps + 1 >= max_steps,
            inconsistent=inconsistent,
        )
        put = jax.lax.dynamic_update_index_in_dim
        if rows:
            steps = StepHistory(
                state=put(steps.state, jnp.concatenate([jnp.stack([t, h]), q, v]), steps.count, 0),
                where=put(steps.where, 2 * sample + landed, steps.count, 0),
                count=steps.count + accepted,
            )
        end_state = jnp.concatenate([stepped.q, stepped.v])
        samples = put(samples, end_state, sample, 0)  # overwritten by each step until the sample is reached
        loop_state = LoopState(
            t=jnp.where(landed, target, choose(t + h, t)),
            h=jnp.where(needs_fallback, loop_state.h, following),
            longest=jnp.where(needs_fallback, loop_state.longest, longest),
            sample=sample + landed,
            steps_taken=jnp.where(landed, 0, loop_state.steps_taken + accepted),
            q=choose(stepped.q, q),
            v=choose(stepped.v, v),
            steps=loop_state.steps + ~needs_fallback,
            result=result,
            inconsistent=inconsistent,
        )
        return loop_state, samples, steps

    steps = StepHistory(jnp.zeros((rows, 2 + size), dtype), jnp.zeros(rows, np.int32), jnp.zeros((), np.int32))
    return jax.lax.while_loop(is_running, iterate, (loop_state, samples, steps))


def initial_loop_state(samples: int, q: Array, v: Array) -> tuple[LoopState, Array]:
    """Loop state at the start, and an empty array of samples."""
    zero = jnp.zeros((), q.dtype)
    zero_count, before_first, running = (jnp.asarray(x, np.int32) for x in (0, -1, RUNNING))
    step_fields = zero, zero, zero + jnp.inf, zero_count, zero_count
    loop_state = LoopState(*step_fields, q, v, before_first, running, jnp.asarray(False))
    return loop_state, jnp.zeros((samples, q.size + v.size), q.dtype)


def reached(loop_state: LoopState, samples: Float[Array, "samples entries"]) -> Float[Array, "samples entries"]:
    """The ``samples``, with NaN at those that were not reached."""
    return jnp.where(jnp.arange(len(samples))[:, None] < loop_state.sample, samples, jnp.nan)


def _pull_back(problem, scale, differentiable, constant, pieces, cotangents):
    """Cotangents of ``differentiable`` from those of the samples."""
    state_cotangents = tuple(jnp.zeros_like(x) for x in differentiable[2:])
    other_cotangents = jax.tree.map(jnp.zeros_like, differentiable[:2])
    for method, steps in reversed(pieces):
        step_inputs = differentiable[:2], constant[:2], method, problem.tableau, problem.projection, scale
        state_cotangents, other_cotangents = _piece_back(
            step_inputs, steps, cotangents, state_cotangents, other_cotangents
        )
    return (*other_cotangents, *state_cotangents)


@jit_fast_compile
def _piece_back(step_inputs, steps, sample_cotangents, state_cotangents, other_cotangents):
    if is_single_kernel(step_inputs[2], state_cotangents[1].size, step_inputs[-1].rows.size):
        return pull_back(step_inputs, steps, sample_cotangents, state_cotangents, other_cotangents)
    model = eqx.combine(step_inputs[0], step_inputs[1])[0]
    pull_back_by_single_loop = lambda *arguments: _pull_back_by(*arguments, take_step=single_loop_step)
    return _without_kernels_unless_single_loop(pull_back_by_single_loop, model, step_inputs[2], step_inputs[4])(
        step_inputs, steps, sample_cotangents, state_cotangents, other_cotangents
    )


def pull_back(
    step_inputs: tuple, steps: StepHistory, sample_cotangents: Any, state_cotangents: Any, other_cotangents: Any
) -> tuple[Any, Any]:
    """Cotangents at the start of the recorded ``steps`` from those at their end, by a loop over the steps backwards.

    Returns the cotangents of (q, v), and those of the model and the times.
    """
    if not is_kernel(step_inputs[2]):
        return _pull_back_by(
            step_inputs, steps, sample_cotangents, state_cotangents, other_cotangents, single_loop_step
        )
    pull_back_kernel = lambda *arguments: _pull_back_by(*arguments, take_step=step)
    return per_member(pull_back_kernel)(step_inputs, steps, sample_cotangents, state_cotangents, other_cotangents)


def _pull_back_by(step_inputs, steps, sample_cotangents, state_cotangents, other_cotangents, take_step):
    differentiable, constant, method, tableau, projection, scale = step_inputs
    values = jax.lax.stop_gradient(differentiable[1])
    interval_starts = jnp.concatenate([values[:1], values])

    def back(k, carry):
        state_cotangents, other_cotangents = carry
        i = steps.count - 1 - k
        sample, landed = steps.where[i] // 2, steps.where[i] % 2 == 1
        (t_before, length), q, v = jnp.split(steps.state[i], np.array([2, 2 + state_cotangents[0].size]))
        # The step size and the distance from the sample before are constant, except for a step that ends on a sample.
        offset = values[0] + t_before - interval_starts[sample]

        def step_once(differentiable, q, v):
            model, ts = eqx.combine(differentiable, constant)
            t = jnp.where(sample > 0, ts[jnp.maximum(sample - 1, 0)], ts[0]) + offset
            h = jnp.where(landed & (sample > 0), ts[sample] - t, length)
            stepped = take_step(SingleModel(model), t, h, q, v, method, tableau, projection, scale)
            return stepped.q, stepped.v

        _, pull_back_step = jax.vjp(without_kernels(step_once), differentiable, q, v)
        state_cotangents = tuple(
            x + jnp.where(landed, change[sample], 0)
            for x, change in zip(state_cotangents, sample_cotangents, strict=True)
        )
        other_changes, *state_cotangents = pull_back_step(state_cotangents)
        return tuple(state_cotangents), jax.tree.map(jnp.add, other_cotangents, other_changes)

    return jax.lax.fori_loop(0, steps.count, back, (tuple(state_cotangents), other_cotangents))
