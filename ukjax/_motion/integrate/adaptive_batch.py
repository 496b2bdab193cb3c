"""Adaptive steps for a batch whose starts are known: each member takes those that it needs itself."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from ..._run.compile import jit_batch
from ..fallback.policy import solve_batch
from ..plan import Plan
from ..problem import InitialState, Problem, Solution
from ..result import reached_last_time
from .base import AbstractBatchIntegrator
from .single import advance, initial_loop_state, reached


class AdaptiveBatch(AbstractBatchIntegrator):
    """See the module."""

    checks_every_step: ClassVar[bool] = True

    @property
    def program(self):
        return _solve

    def run(self, problem: Problem, start: InitialState, plan: Plan) -> Solution:
        return solve_batch(_solve, problem, start, plan)


@jit_batch
def _solve(start, problem):
    ts, limits = problem.ts, (problem.ts.size, problem.max_steps)

    def one(start):
        how = problem.by, problem.tableau, problem.projection, start.scale
        task = problem.model_of(start.numbers), ts, None, problem.tolerance(start.scale), limits, *how
        loop_state, found, _ = advance(task, *initial_loop_state(ts.size, start.q, start.v))
        return loop_state, reached(loop_state, found)

    # Members that are done together wait for the last of them: those that will need about as many steps go together.
    order = jnp.argsort(start.scale.shortest_time)
    at = lambda places, tree: jax.tree.map(lambda x: x[places], tree)
    loop_state, found = at(jnp.argsort(order), jax.vmap(one)(at(order, start)))
    q, v = jnp.split(found, [start.q.shape[1]], axis=-1)
    end = jnp.where(reached_last_time(loop_state.result), ts[-1], ts[0] + loop_state.t)
    displaced = start.displaced(jnp, q[:, 0], v[:, 0])
    t = jnp.broadcast_to(ts, q.shape[:-1])
    return Solution(t, q, v, loop_state.result, loop_state.steps, (end, loop_state.q, loop_state.v), displaced)
