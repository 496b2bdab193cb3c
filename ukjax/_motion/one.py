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

from .._batch import per_member, plainly
from .._check import constant, eager
from .._compile import jit_fast_compile, usual_promotion
from .attempts import MOST, active_rows, attempt_for_one, next_attempt, watching
from .base import SMALLEST_STEP, AbstractLoop, Request, Samples, Start
from .compact import compactly, fits, is_kernel, is_kernel_alone
from .correct import Levels
from .cross_singular_pose import cross_singular_pose, step_to
from .each import Alone
from .outcome import AT_LAST_TIME, FINISHED, RUNNING, UNUSUAL, classify, finite, reached_last_time
from .singular_pose import has_understood_rows, step_from_singular_pose
from .step import step
from .step_size import FIRST as FIRST_STEP
from .step_size import disturbed, judge, next_length

PIECE = 1024
"""Steps after which the host looks on."""

FEWEST = 16
"""Samples are filled up to this number times a power of two, so that another number of them is the same program."""


NO_DERIVATIVE = (
    "the derivative of a motion through a singular pose is not implemented where a sample, or a step of dt, lies on "
    "the pose or close to it, as after t = {t:g} s. Choose other samples, or another dt, or take differences of motions"
)


class Course(NamedTuple):
    """Where a motion is: the time ``t`` since its start; the length ``h`` it would step next; the ``longest`` step that
    is allowed, 0 while that is being found (see ``next_length``); the ``sample`` it is heading for, and how many steps
    it has ``taken`` since the one before; q and v; the steps in all, without the first, which leads onto the
    constraints; what became of it; whether constraints were ``contradictory`` so far."""

    t: Float[Array, ""]
    h: Float[Array, ""]
    longest: Float[Array, ""]
    sample: Int[Array, ""]
    taken: Int[Array, ""]
    q: Float[Array, " nq"]
    v: Float[Array, " n"]
    steps: Int[Array, ""]
    result: Int[Array, ""]
    contradictory: Bool[Array, ""]


class Steps(NamedTuple):
    """Steps as they were taken, a row for each of ``count``: the ``state`` from which it led, (t, h, q, v) with the
    time since the start and the step's length; and where to, twice the sample it was heading for, and one more if it
    landed there."""

    state: Float[Array, "piece 2+nq+n"]
    where: Int[Array, " piece"]
    count: Int[Array, ""]


class One(AbstractLoop):
    """One motion whose start is known: see the module."""

    keeps_watch: ClassVar[bool] = True

    def accepts(self, request: Request, start: Start) -> bool:
        if start.q.ndim != 1 or not request.plain or request.dt is not None and request.counts is None:
            return False
        if request.counts is not None:  # differentiated in any way, steps of known number are a plain loop
            return eager(request, start)
        return eager(*map(constant, (request, start)))

    def run(self, request: Request, start: Start) -> Samples:
        how, scale = constant((request, start.scale))
        if eager(request, start):  # nothing is differentiated
            found = _run(how, scale, request.model, request.ts, start.q, start.v, remember=False)[0]
            return _as_samples(request.ts, *found, start)
        moving, fixed = eqx.partition((request.model, request.ts, start.q, start.v), eqx.is_inexact_array)

        @jax.custom_vjp
        def sampled(moving):
            return jax.device_put(_run(how, scale, *eqx.combine(moving, fixed), remember=False)[0])

        def forward(moving):
            found, pieces = _run(how, scale, *eqx.combine(moving, fixed), remember=True)
            return jax.device_put(found), (moving, pieces)

        def backward(known, changes):
            moving, pieces = known
            return (_pulled_back(how, scale, moving, fixed, pieces, changes[:2]),)

        sampled.defvjp(forward, backward)
        q, v, course = sampled(moving)
        return as_differentiated(request.ts, q, v, constant(course), start)


def _as_samples(ts, q, v, course, start):
    """By NumPy, which needs no compiling; and what JAX has made already is handed on, since each array that is made of
    NumPy's costs as much as a third of a step."""
    times, start = np.asarray(ts), jax.tree.map(np.asarray, start)
    reached = finite(q, v, xp=np)
    through = int(course.result) in AT_LAST_TIME
    end = times[-1] if through else (times[0] + np.asarray(course.t)).astype(times.dtype)
    t = ts if np.all(reached) else jax.device_put(np.where(reached, times, np.nan))
    displaced = np.asarray(start.displaced(np, q[0], v[0]))
    q, v, end = jax.device_put((q, v, end))
    return Samples(t, q, v, course.result, course.steps, (end, course.q, course.v), displaced)


@jax.jit
@usual_promotion()
def as_differentiated(
    ts: Float[Array, " samples"],
    q: Float[Array, "samples nq"],
    v: Float[Array, "samples n"],
    course: Course,
    start: Start,
) -> Samples:
    """The same where q and v have derivatives, and with them the end of a motion that came to its last sample."""
    through = reached_last_time(course.result)
    last = (
        jnp.where(through, ts[-1], ts[0] + course.t),
        jnp.where(through, q[-1], course.q),
        jnp.where(through, v[-1], course.v),
    )
    t = jnp.where(finite(q, v), ts, jnp.nan)
    return Samples(t, q, v, course.result, course.steps, last, start.displaced(jnp, q[0], v[0]))


def _run(how, scale, model, ts, q0, v0, remember):
    """q and v at the samples, and where the motion came to; and the steps, if they are to be remembered, piece by piece
    with their methods."""
    samples, dtype = ts.size, q0.dtype
    # By NumPy: JAX would compile it for every shape, and takes its time for every number.
    number: Any = lambda x: np.asarray(x, dtype)
    count: Any = lambda x: np.asarray(x, np.int32)
    not_yet: Any = np.asarray(False)
    more = FEWEST * 2 ** max(0, int(np.ceil(np.log2(samples / FEWEST)))) - samples
    times = np.asarray(ts)
    begin, ends = np.asarray(times[0]), number(np.append(times, np.full(more, times[-1])))
    between = None if how.counts is None else count(np.pad(how.counts.between, (1, more), constant_values=1))
    found = number(np.zeros((ends.size, q0.size + v0.size)))
    start = number(0), number(0), number(np.inf), count(0), count(0), q0, v0
    course = Course(*start, count(-1), count(RUNNING), not_yet)
    tolerance = jax.tree.map(number, how.tolerance(jax.tree.map(np.asarray, scale), np))
    limits = count(samples), count(min(how.max_steps, 2**31 - 1))
    asked = how if model is how.model and ts is how.ts else replace(how, model=model, ts=ts)
    pieces, method, decided = [], attempt_for_one(asked, scale.rows.size, begin, q0, v0), 0
    flexible = not is_kernel_alone(how.method, v0.size, scale.rows.size)
    watch, states, declined = not remember and has_understood_rows(asked), None, None
    while int(course.result) == RUNNING:
        current = watching(method) if watch else method
        task = model, ends, between, tolerance, limits, current, how.tableau, how.projection, scale
        course, found, steps = _piece(task, course, found)
        if int(steps.count):
            states = steps
        if remember and int(steps.count):
            pieces.append((method, steps))
        if int(course.result) == UNUSUAL:
            t = begin + np.asarray(course.t)
            passed = None
            if float(t) != declined and has_understood_rows(asked):
                if not remember:
                    passed = _past_singular_pose(asked, scale, t, course, found, ends, between)
                passed = passed or _through_singular_pose(asked, scale, method, course, found, ends, between, states)
                declined = float(t)
            if passed is not None:
                if remember:
                    raise ValueError(NO_DERIVATIVE.format(t=float(t)))
                (course, found), states = jax.device_put(passed), None
                continue
            course = course._replace(result=count(RUNNING))
            watched, watch = watch, False
            if watched and int(course.steps) >= 0:  # no such pose: the same step again, with the usual limits
                continue
            another = next_attempt(asked, method, np.asarray(t), course.q, course.v, flexible=flexible)
            if watched and not isinstance(another, Levels):  # within the usual limits nothing may be wrong
                continue
            decided += 1
            method = another if decided < MOST else how.method
            watch = not remember and has_understood_rows(asked)
    # Cut by NumPy: JAX would compile it for every number of samples.
    reached = np.arange(samples) < np.asarray(course.sample)
    q, v = np.split(np.where(reached[:, None], np.asarray(found)[:samples], number(np.nan)), [q0.size], axis=1)
    return (q, v, course), pieces


def _past_singular_pose(request, scale, t, course, found, ends, between):
    """The course and the samples found one step after a singular pose, by NumPy; None where there is none, or none that
    is left so."""
    q, v, since = course.q, course.v, ends - ends[0]
    at, wanted, taken, steps = float(course.t), float(course.h), int(course.taken), int(course.steps)
    sample = max(int(course.sample), 1)
    left = float(since[sample]) - at
    if between is not None:
        h = float(since[sample] - since[sample - 1]) / int(between[sample])
    else:
        h = min(left, wanted if wanted > 0 else FIRST_STEP * float(np.min(np.asarray(scale.q) / np.asarray(scale.v))))
    passed = step_from_singular_pose(request, t, h, q, v, scale)
    if passed is None:
        return None
    found = np.array(found)
    if steps < 0:  # the step of no length, onto the constraints
        found[0] = np.concatenate([q, v])
    landed = passed.h >= left if between is None else taken + 1 >= int(between[sample])
    if landed:
        found[sample] = np.concatenate([passed.q, passed.v])
    through = landed and sample + 1 >= request.ts.size
    number: Any = lambda x: np.asarray(x, since.dtype)
    count: Any = lambda x: np.asarray(x, np.int32)
    course = Course(
        t=number(since[sample] if landed else at + passed.h),
        h=number(max(passed.following, wanted)),
        longest=course.longest,
        sample=count(sample + landed),
        taken=count(0 if landed else taken + 1),
        q=passed.q,
        v=passed.v,
        steps=count(max(steps, 0) + 1),
        result=count(FINISHED if through else RUNNING),
        contradictory=course.contradictory,
    )
    return course, found


def _through_singular_pose(request, scale, method, course, found, ends, between, states):
    """The course and the samples found behind a singular pose that the last step met, by NumPy; None where there is
    none, or none that is understood."""
    since, samples = (ends - ends[0]).astype(float), request.ts.size
    times = since[:samples]
    if int(course.steps) < 0 or float(course.longest) == 0 or int(course.sample) >= samples:
        return None
    sample = int(course.sample)
    if between is None:
        h = min(float(course.h), times[sample] - float(course.t))
    else:
        h = (times[sample] - times[max(sample - 1, 0)]) / int(between[sample])
    here = np.concatenate([[float(course.t), h], np.asarray(course.q), np.asarray(course.v)]).astype(ends.dtype)
    earlier = np.asarray(states.state)[: int(states.count)] if states is not None else here[None][:0]
    history = np.concatenate([earlier[earlier[:, 1] > 0], here[None]])
    crossing = cross_singular_pose(request, ends[0], history, active_rows(method, scale.rows.size), scale)
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
        reached = step_to(request, ends[0], after, to, scale)
        if reached is None:
            return None
        t, (q, v), steps = to, reached, steps + 1
        if taken == int(between[sample]):
            found[sample] = np.concatenate([q, v])
            sample, taken = sample + 1, 0
    number: Any = lambda x: np.asarray(x, ends.dtype)
    count: Any = lambda x: np.asarray(x, np.int32)
    q, v = jax.device_put((number(q), number(v)))
    course = Course(
        t=number(t),
        h=number(crossing.following),
        longest=course.longest,
        sample=count(sample),
        taken=count(taken),
        q=q,
        v=v,
        steps=count(int(course.steps) + steps),
        result=count(FINISHED if sample == samples else RUNNING),
        contradictory=course.contradictory,
    )
    return course, found


@jit_fast_compile
def _piece(task, course, found):
    """As many steps as a piece has, or fewer."""
    if is_kernel_alone(task[5], course.v.size, task[-1].rows.size):
        return advanced(task, course, found, PIECE, PIECE)
    by = lambda task, course, found: _advanced(task, course, found, PIECE, PIECE, compactly)
    return _by_lapack(by, task[0], task[5], task[7])(task, course, found)


def _by_lapack(function, model, method, projection):
    """``function``, for a system that is too large for one kernel. The parts of a compact step stand once and may be
    kernels. In any other step they stand several times, and XLA compiles all of it."""
    return function if fits(model, method, projection) else plainly(function)


def advanced(task: tuple, course: Course, found: Array, most: Any = None, rows: int = 0) -> tuple[Course, Array, Steps]:
    """Where a motion comes to in at ``most`` so many steps, by default all it takes; the samples ``found`` by then; and
    the steps, the first ``rows`` of which are remembered."""
    method = task[5]
    if not is_kernel(method):
        return _advanced(task, course, found, most, rows, compactly)
    by = lambda task, course, found, most: _advanced(task, course, found, most, rows, step)
    return per_member(by)(task, course, found, most)


def _advanced(task, course, found, most, rows, take):
    model, ends, between, tolerance, (samples, allowed), method, tableau, projection, scale = task
    watchful = method.provisional  # what cannot be done is left to another method
    leaves_out = isinstance(method, Levels) and method.may_leave_out
    t0, times = ends[0], ends - ends[0]
    dtype, size = course.q.dtype, course.q.size + course.v.size
    least = SMALLEST_STEP * times[-1]
    until = None if most is None else course.steps + most

    def go_on(state):
        course, _, _ = state
        running = course.result == RUNNING
        return running if until is None else running & (course.steps < until)

    def iterate(state):
        course, found, steps = state
        t, q, v, sample = course.t, course.q, course.v, course.sample
        target = times[sample]
        started, trial = course.steps >= 0, course.longest == 0
        at = q, v
        if between is None:
            h = jnp.where(trial, course.h, jnp.minimum(course.h, target - t))
            at = disturbed(trial, q, v, scale)
        else:
            before = times[jnp.maximum(sample - 1, 0)]
            even = (target - before) / between[sample]
            t = before + course.taken * even
            h = even
        stepped = take(Alone(model), t0 + t, h, *at, method, tableau, projection, scale)
        if between is None:
            judged = judge(q, v, stepped, tableau, tolerance, scale, h, trial)
            accepted = judged.good & ~trial | ~started
            landed = accepted & (h >= target - t)
            following, longest = next_length(
                h, course.h, course.longest, judged, started, accepted, landed, least, times[-1]
            )
            fine = judged.fine(following, least) | trial
            stuck = (following < least) & (sample + landed < samples)
        else:
            accepted, following, longest, stuck = jnp.asarray(True), course.h, course.longest, jnp.asarray(False)
            landed = course.taken + 1 >= between[sample]
            fine = jnp.asarray(True)
        fine = fine & (~accepted | finite(stepped.q, stepped.v))
        off = accepted & stepped.off
        contradictory = course.contradictory | (accepted & stepped.contradictory)
        leapt = stepped.leapt & (stuck if between is None else True)  # adaptive steps are tried shorter first
        # Off its constraints before any time has passed, a motion started so: nothing of the method's doing.
        doubtful = watchful & ((stepped.unusual & (accepted | ~fine)) | (off & started & leaves_out))
        accepted = accepted & fine & ~doubtful & ~leapt  # but if it is off its constraints: of that is complained
        landed = landed & accepted & ~off
        # A derivative is that of the steps as they were taken.
        following, longest = jax.lax.stop_gradient((following, longest))
        choose = lambda new, old: jnp.where(accepted, new, old)
        through = sample + landed >= samples
        result = classify(
            finished=through,
            unusual=doubtful,
            leapt=leapt,
            off=off,
            not_finite=~fine,
            stuck=stuck,
            exhausted=course.steps + 1 >= allowed,
            contradictory=contradictory,
        )
        put = jax.lax.dynamic_update_index_in_dim
        if rows:
            steps = Steps(
                state=put(steps.state, jnp.concatenate([jnp.stack([t, h]), q, v]), steps.count, 0),
                where=put(steps.where, 2 * sample + landed, steps.count, 0),
                count=steps.count + accepted,
            )
        there = jnp.concatenate([stepped.q, stepped.v])
        found = put(found, there, sample, 0)  # again and again until it is reached
        course = Course(
            t=jnp.where(landed, target, choose(t + h, t)),
            h=jnp.where(doubtful, course.h, following),
            longest=jnp.where(doubtful, course.longest, longest),
            sample=sample + landed,
            taken=jnp.where(landed, 0, course.taken + accepted),
            q=choose(stepped.q, q),
            v=choose(stepped.v, v),
            steps=course.steps + ~doubtful,
            result=result,
            contradictory=contradictory,
        )
        return course, found, steps

    steps = Steps(jnp.zeros((rows, 2 + size), dtype), jnp.zeros(rows, np.int32), jnp.zeros((), np.int32))
    return jax.lax.while_loop(go_on, iterate, (course, found, steps))


def begun(samples: int, q: Array, v: Array) -> tuple[Course, Array]:
    """Where a motion begins, and its samples, of which none is known."""
    zero = jnp.zeros((), q.dtype)
    none, before_any, running = (jnp.asarray(x, np.int32) for x in (0, -1, RUNNING))
    of_steps = zero, zero, zero + jnp.inf, none, none
    course = Course(*of_steps, q, v, before_any, running, jnp.asarray(False))
    return course, jnp.zeros((samples, q.size + v.size), q.dtype)


def reached(course: Course, found: Float[Array, "samples entries"]) -> Float[Array, "samples entries"]:
    """The samples ``found``, NaN where the motion did not come to."""
    return jnp.where(jnp.arange(len(found))[:, None] < course.sample, found, jnp.nan)


def _pulled_back(how, scale, moving, fixed, pieces, changes):
    """The cotangent of ``moving`` from those of the samples."""
    of_state = tuple(jnp.zeros_like(x) for x in moving[2:])
    of_rest = jax.tree.map(jnp.zeros_like, moving[:2])
    for method, steps in reversed(pieces):
        task = moving[:2], fixed[:2], method, how.tableau, how.projection, scale
        of_state, of_rest = _piece_back(task, steps, changes, of_state, of_rest)
    return (*of_rest, *of_state)


@jit_fast_compile
def _piece_back(task, steps, to_samples, of_state, of_rest):
    if is_kernel_alone(task[2], of_state[1].size, task[-1].rows.size):
        return pulled_back(task, steps, to_samples, of_state, of_rest)
    model = eqx.combine(task[0], task[1])[0]
    by = lambda *given: _pulled_back_in(*given, take=compactly)
    return _by_lapack(by, model, task[2], task[4])(task, steps, to_samples, of_state, of_rest)


def pulled_back(task: tuple, steps: Steps, to_samples: Any, of_state: Any, of_rest: Any) -> tuple[Any, Any]:
    """The cotangents of q and v where ``steps`` begin, and of the model and the times, from those where they end; the
    last step first."""
    if not is_kernel(task[2]):
        return _pulled_back_in(task, steps, to_samples, of_state, of_rest, compactly)
    by = lambda *given: _pulled_back_in(*given, take=step)
    return per_member(by)(task, steps, to_samples, of_state, of_rest)


def _pulled_back_in(task, steps, to_samples, of_state, of_rest, take):
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
            stepped = take(Alone(model), t, h, q, v, method, tableau, projection, scale)
            return stepped.q, stepped.v

        _, pull = jax.vjp(plainly(one), rest, q, v)
        of_state = tuple(x + jnp.where(landed, at[sample], 0) for x, at in zip(of_state, to_samples, strict=True))
        more, *of_state = pull(of_state)
        return tuple(of_state), jax.tree.map(jnp.add, of_rest, more)

    return jax.lax.fori_loop(0, steps.count, back, (tuple(of_state), of_rest))
