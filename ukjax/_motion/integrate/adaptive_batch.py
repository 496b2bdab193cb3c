"""Adaptive steps for a batch with concrete starts, compiled as one kernel.

Each member has its own step sizes. Chunks of members run until all their members have ended.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp

from ..._run.compile import jit_batch
from ..fallback.policy import solve_batch
from ..plan import Plan
from ..problem import InitialState, Problem, Solution
from ..result import reached_last_time, reached_times
from .alone import past_singular_poses
from .base import AbstractBatchIntegrator
from .single import advance, initial_loop_state, reached


class AdaptiveBatch(AbstractBatchIntegrator):
    """Integrator for batches: each member takes its own adaptive steps, in one kernel."""

    checks_every_step: ClassVar[bool] = True

    @property
    def program(self):
        return _solve

    def run(self, problem: Problem, start: InitialState, plan: Plan) -> Solution:
        return past_singular_poses(solve_batch(_solve, problem, start, plan), problem, start, plan)


@jit_batch
def _solve(start, problem):
    ts, limits = problem.ts, (problem.ts.size, problem.max_steps)

    def one(start):
        options = problem.current_method, problem.tableau, problem.projection, start.scale
        task = problem.model_of(start.numbers), ts, None, problem.tolerance(start.scale), limits, *options
        loop_state, samples, _ = advance(task, *initial_loop_state(ts.size, start.q, start.v))
        return loop_state, reached(loop_state, samples)

    # Members in the same chunk wait for the slowest, so members that need about as many steps are put together.
    order = jnp.argsort(start.scale.shortest_time)
    at = lambda indices, tree: jax.tree.map(lambda x: x[indices], tree)
    loop_state, samples = at(jnp.argsort(order), jax.vmap(one)(at(order, start)))
    q, v = jnp.split(samples, [start.q.shape[1]], axis=-1)
    end = jnp.where(reached_last_time(loop_state.result), ts[-1], ts[0] + loop_state.t)
    displaced = start.displaced(jnp, q[:, 0], v[:, 0])
    t = reached_times(ts, q, v)
    return Solution(t, q, v, loop_state.result, loop_state.steps, (end, loop_state.q, loop_state.v), displaced)
