"""Sampled control: the law is evaluated at instants, and its inputs are constant in between.

Between two stops, see ``schedule``, one of the other integrators does the steps.
"""

from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..._kernel import per_member, per_member_forward
from ..._run.compile import jit_batch
from ..._system import Driven
from ..fallback.policy import solve_differentiated, solve_eagerly
from ..plan import Plan
from ..problem import InitialState, Problem, Solution
from ..result import FINISHED, INCONSISTENT, RUNNING, reached_last_time, reached_times
from ..stepper.limits import is_kernel
from .base import AbstractBatchIntegrator
from .fixed_step import fixed_step_loop
from .schedule import SampledInputs, nothing_sampled, scheduled_stops
from .traced import integrate_forward_mode, integrate_one


class SampledControl(AbstractBatchIntegrator):
    """Integrator for systems whose control is sampled, see the module."""

    checks_every_step: ClassVar[bool] = True

    @property
    def program(self):
        return _solve

    def run(self, problem: Problem, start: InitialState, plan: Plan) -> Solution:
        if plan.eager:
            return solve_eagerly(_solve, problem, start, plan)
        solve = _solve_forward_mode if plan.differentiation == "forward" else _solve
        return solve_differentiated(lambda problem, start: solve(start, problem), problem, start, plan)


@jit_batch
def _solve(start, problem):
    return _solve_all(start, problem, integrate_one, per_member)


@jit_batch
def _solve_forward_mode(start, problem):
    return _solve_all(start, problem, integrate_forward_mode, per_member_forward)


def _solve_all(start, problem, integrate_adaptive, compile_kernel):
    solve_one: Any = lambda start: _solve_one(start, problem, integrate_adaptive)
    if problem.dt is not None and is_kernel(problem.current_method):
        solve_one = compile_kernel(solve_one)
    return (solve_one if start.q.ndim == 1 else jax.vmap(solve_one))(start)


class _State(NamedTuple):
    """State at a stop: q and v, the held inputs, the result and the number of steps so far, whether constraints
    contradicted each other, and the last t, q and v."""

    q: Float[Array, " nq"]
    v: Float[Array, " n"]
    held: SampledInputs
    result: Int[Array, ""]
    steps: Int[Array, ""]
    inconsistent: Bool[Array, ""]
    last: tuple[Float[Array, ""], Float[Array, " nq"], Float[Array, " n"]]


def _solve_one(start, problem, integrate_adaptive):
    model, schedule, ts = problem.model_of(start.numbers), problem.schedule, problem.ts
    stops = scheduled_stops(model, schedule, ts)

    def integrate(state, t0, t1, count):
        """The state at t1, and q and v at t0, on the constraints."""
        u = state.held.u
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
            result = flags.result
            last = t0 + steps * (t1 - t0) / count, *last
        goes_on = reached_last_time(result)
        after = _State(
            q=q[1],
            v=v[1],
            held=state.held,
            result=jnp.where(goes_on, RUNNING, result).astype(np.int32),
            steps=state.steps + steps.astype(np.int32),
            inconsistent=state.inconsistent | (result == INCONSISTENT),
            last=last,
        )
        return after, q[0], v[0]

    def interval(state, part):
        stop, t1, count = part
        state = state._replace(held=state.held.after(stop, model, stop.time, state.q, state.v))
        return_as_is = lambda: (state, state.q, state.v)
        running = state.result == RUNNING
        after, q, v = jax.lax.cond(running, lambda: integrate(state, stop.time, t1, count), return_as_is)
        return after, (q, v, state.held.u)

    zero, nothing = jnp.zeros((), np.int32), nothing_sampled(model, schedule, ts[0], start.q, start.v)
    first = _State(start.q, start.v, nothing, zero + RUNNING, zero, jnp.asarray(False), (ts[0], start.q, start.v))
    parts = stops.at(slice(None, -1)), stops.time[1:], schedule.counts
    end, (q, v, u) = jax.lax.scan(interval, first, parts)
    at_end = stops.at(-1)
    u_end = end.held.after(at_end, model, at_end.time, end.q, end.v).u
    with_end = lambda xs, x: jnp.concatenate([xs, x[None]])[schedule.places]
    q, v, u = with_end(q, end.q), with_end(v, end.v), with_end(u, u_end)
    finished = end.result == RUNNING
    result = jnp.where(finished, jnp.where(end.inconsistent, INCONSISTENT, FINISHED), end.result).astype(np.int32)
    last = jax.tree.map(lambda x, y: jnp.where(finished, x, y), (at_end.time, end.q, end.v), end.last)
    displaced = start.displaced(jnp, q[0], v[0])
    return Solution(reached_times(ts, q, v), q, v, result, end.steps, last, displaced, held=u)
