"""Sampled control: the law is evaluated at instants, and its inputs are constant in between.

The motion is cut at all its stops: samples, instants, and times at which inputs begin to act. Between two stops the
inputs are constant, and one of the other integrators does the steps, so that nothing is interpolated.
"""

from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..._errors import InputError
from ..._kernel import per_member
from ..._run.compile import jit_batch
from ..._system import Driven
from ..fallback.policy import solve_eagerly
from ..plan import Plan
from ..problem import InitialState, Problem, Schedule, Solution
from ..result import FINISHED, INCONSISTENT, RUNNING, classify, reached_last_time, reached_times
from ..stepper.limits import is_kernel
from .base import AbstractBatchIntegrator
from .fixed_step import fixed_step_loop, step_counts
from .traced import integrate_forward_mode, integrate_one

SAME_TIME = 1e-9
"""Times closer than this fraction of the period are one stop; so are times that differ by rounding."""

ROUNDING = 4
"""Largest rounding error of a time, relative to the distance of neighbouring numbers at the largest time."""

SHORTEST_PERIOD = 10
"""Shortest period, relative to the largest rounding error of a time."""

MAX_INSTANTS = 10_000_000
"""Largest number of instants of a motion."""


class SampledControl(AbstractBatchIntegrator):
    """Integrator for systems whose control is sampled, see the module."""

    checks_every_step: ClassVar[bool] = True

    @property
    def program(self):
        return _solve

    def run(self, problem: Problem, start: InitialState, plan: Plan) -> Solution:
        if plan.eager:
            return solve_eagerly(_solve, problem, start, plan)
        return (_solve_forward_mode if plan.differentiation == "forward" else _solve)(start, problem)


def schedule_of(times: np.ndarray, period: float, delay: float, dt: float | None, dtype: Any) -> Schedule:
    """The stops of a motion with samples at ``times`` (samples,), for steps that are not longer than ``dt``.

    ``dtype`` is the type of the times in the program.
    """
    largest = np.max(np.abs(times)) + delay
    rounding = ROUNDING * float(np.spacing(largest.astype(dtype)))
    if period < SHORTEST_PERIOD * rounding:
        raise InputError(
            f"ts are so large that {dtype} does not resolve the period, {period:g} s: times of {largest:.3g} s are "
            f"rounded by up to {rounding:.2g} s. Let ts begin at 0"
        )
    same, begin, end = max(SAME_TIME * period, rounding), times[0], times[-1]
    if (end - begin) / period > MAX_INSTANTS:
        count = f"{(end - begin) / period:.3g}"
        raise InputError(f"period must be longer: a period of {period:g} s gives {count} instants in {end - begin:g} s")
    first, last = np.floor((begin + same) / period) + 1, np.floor((end + same) / period)
    multiples = np.arange(first, last + 1)
    instants = np.append(begin, multiples * period)
    all_times = np.concatenate([times, instants, instants + delay])
    size, count = times.size, instants.size
    order = np.argsort(all_times, kind="stable")
    order = order[all_times[order] <= end + same]
    # Each stop is a group of times that differ by rounding. Its time is that of a sample, if there is one.
    groups, first_time = [], -np.inf
    for i in order:
        if all_times[i] - first_time > same:
            groups.append([])
            first_time = all_times[i]
        groups[-1].append(int(i))
    chosen = np.array([min(group) for group in groups])
    in_group = lambda low, high: np.array([sum(low <= i < high for i in group) for group in groups])
    instant, acting = in_group(size, size + count), in_group(size + count, size + 2 * count)
    places = np.zeros(size, int)
    for place, group in enumerate(groups):
        places[[i for i in group if i < size]] = place
    latest, acting = np.cumsum(instant) - 1, np.cumsum(acting) - 1
    stops = all_times[chosen]
    counts = np.ones(stops.size - 1, int) if dt is None else step_counts(stops, dt)
    arrays = multiples.astype(int), chosen, instant > 0, latest, acting, places, counts
    return Schedule(
        *jax.device_put(arrays), most=int(counts.max(initial=1)), memory=int(np.max(latest - acting, initial=0)) + 1
    )


@jit_batch
def _solve(start, problem):
    return _solve_all(start, problem, integrate_one)


@jit_batch
def _solve_forward_mode(start, problem):
    return _solve_all(start, problem, integrate_forward_mode)


def _solve_all(start, problem, integrate_adaptive):
    solve_one: Any = lambda start: _solve_one(start, problem, integrate_adaptive)
    if problem.dt is not None and is_kernel(problem.current_method):
        solve_one = per_member(solve_one)
    return (solve_one if start.q.ndim == 1 else jax.vmap(solve_one))(start)


class _State(NamedTuple):
    """State at a stop: q and v, the inputs of the latest instants, the result and the number of steps so far, whether
    constraints contradicted each other, and the last t, q and v."""

    q: Float[Array, " nq"]
    v: Float[Array, " n"]
    memory: Float[Array, "instants p"]
    result: Int[Array, ""]
    steps: Int[Array, ""]
    inconsistent: Bool[Array, ""]
    last: tuple[Float[Array, ""], Float[Array, " nq"], Float[Array, " n"]]


def _solve_one(start, problem, integrate_adaptive):
    model, schedule, ts = problem.model_of(start.numbers), problem.schedule, problem.ts
    sampling = model.control.sampling
    instants = jnp.concatenate([ts[:1], schedule.multiples * sampling.period])
    times = jnp.concatenate([ts, instants, instants + sampling.delay])[schedule.chosen]
    p = eqx.filter_eval_shape(model.command, ts[0], start.q, start.v).u.size

    def inputs(state, t, instant, latest, acting):
        """The memory with the inputs of an instant, and the inputs that act from there."""
        put = lambda: state.memory.at[latest % schedule.memory].set(model.command(t, state.q, state.v).u)
        memory = jax.lax.cond(instant, put, lambda: state.memory)
        return memory, jnp.where(acting < 0, 0, memory[acting % schedule.memory])

    def integrate(state, u, t0, t1, count):
        """The state at t1, and q and v at t0, on the constraints."""
        ends, begin = jnp.stack([t0, t1]), InitialState(state.q, state.v, start.scale)
        if problem.dt is None:
            part = replace(problem, model=Driven(model, u), ts=ends, schedule=None)
            solution = integrate_adaptive(part, begin)
            q, v, result, steps, last = solution.q, solution.v, solution.result, solution.steps, solution.last
        else:
            options = problem.current_method, problem.stepper, problem.projection
            of_numbers = lambda _: Driven(model, u)
            q, v, last, flags = fixed_step_loop(of_numbers, begin, ends, count[None], schedule.most, *options)
            steps = flags.taken - 1
            result = classify(
                finished=~(flags.beyond | flags.stopped),
                needs_fallback=flags.beyond,
                jumped=flags.jumped,
                off=flags.off,
                not_finite=flags.not_finite,
                inconsistent=flags.inconsistent,
            )
            last = t0 + steps * (t1 - t0) / count, *last
        goes_on = reached_last_time(result)
        after = _State(
            q=q[1],
            v=v[1],
            memory=state.memory,
            result=jnp.where(goes_on, RUNNING, result).astype(np.int32),
            steps=state.steps + steps.astype(np.int32),
            inconsistent=state.inconsistent | (result == INCONSISTENT),
            last=last,
        )
        return after, q[0], v[0]

    def interval(state, part):
        t0, t1, count, *at = part
        memory, u = inputs(state, t0, *at)
        state = state._replace(memory=memory)
        return_as_is = lambda: (state, state.q, state.v)
        after, q, v = jax.lax.cond(state.result == RUNNING, lambda: integrate(state, u, t0, t1, count), return_as_is)
        return after, (q, v, u)

    zero, memory = jnp.zeros((), np.int32), jnp.zeros((schedule.memory, p), start.q.dtype)
    first = _State(start.q, start.v, memory, zero + RUNNING, zero, jnp.asarray(False), (ts[0], start.q, start.v))
    at_stops = schedule.instant, schedule.latest, schedule.acting
    parts = times[:-1], times[1:], schedule.counts, *(x[:-1] for x in at_stops)
    end, (q, v, u) = jax.lax.scan(interval, first, parts)
    _, u_end = inputs(end, times[-1], *(x[-1] for x in at_stops))
    with_end = lambda xs, x: jnp.concatenate([xs, x[None]])[schedule.places]
    q, v, u = with_end(q, end.q), with_end(v, end.v), with_end(u, u_end)
    finished = end.result == RUNNING
    result = jnp.where(finished, jnp.where(end.inconsistent, INCONSISTENT, FINISHED), end.result).astype(np.int32)
    last = jax.tree.map(lambda x, y: jnp.where(finished, x, y), (times[-1], end.q, end.v), end.last)
    displaced = start.displaced(jnp, q[0], v[0])
    return Solution(reached_times(ts, q, v), q, v, result, end.steps, last, displaced, held=u)
