"""Adaptive steps where no host can look on, within ``jit``, and the derivatives of those of a batch.

A motion goes by the method that was asked for, which can do all. On its way it leaves marks, never more than a few
hundred, for where they are too many every other one is taken away; the way back passes from mark to mark, and from each
repeats the steps to the next.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._check import without_derivatives
from ..._run.compile import usual_promotion
from ..plan import Plan
from ..problem import InitialState, Problem, Solution
from ..result import RUNNING
from .base import AbstractIntegrator
from .single import LoopState, advance, as_solution, initial_loop_state, pull_back, reached

MAX_CHECKPOINTS = 512
"""At most."""

FIRST_STRIDE = 16
"""Steps from one mark to the next, before marks are taken away."""


class TracedMotion(AbstractIntegrator):
    """See the module."""

    checks_every_step: ClassVar[bool] = True

    def run(self, problem: Problem, start: InitialState, plan: Plan) -> Solution:
        return _of_each(_one_forwards if plan.differentiation == "forward" else _one, problem, start)


def _of_each(one, problem, start):
    """``one`` motion, or each of a batch."""
    return one(problem, start) if start.q.ndim == 1 else jax.vmap(lambda start: one(problem, start))(start)


def _one(problem, start):
    moving = problem.model_of(start.numbers), problem.ts, start.q, start.v
    moving, fixed = eqx.partition(moving, eqx.is_inexact_array)
    how = eqx.tree_at(lambda r: (r.model, r.ts), problem, (None, None))
    arrays, static = eqx.partition(without_derivatives((fixed, how, start.scale)), eqx.is_array)
    together = lambda moving, arrays: _TracedProblem(moving, *eqx.combine(arrays, static))

    @jax.custom_vjp
    def sampled(moving, arrays):
        loop_state, found = _solve(together(moving, arrays))
        return *split(found), loop_state

    def forward(moving, arrays):
        loop_state, found, marks = _solve_with_checkpoints(together(moving, arrays))
        return (*split(found), loop_state), (moving, arrays, marks)

    def backward(known, changes):
        moving, arrays, marks = known
        return _vjp_from_checkpoints(together(moving, arrays), marks, changes[:2]), None

    def split(found):
        return jnp.split(found, [start.q.size], axis=1)

    sampled.defvjp(forward, backward)
    q, v, loop_state = sampled(moving, arrays)
    return as_solution(problem.ts, q, v, without_derivatives(loop_state), start)


@eqx.filter_jit
@usual_promotion()
def _one_forwards(problem, start):
    moving = problem.model_of(start.numbers), problem.ts, start.q, start.v
    moving, fixed = eqx.partition(moving, eqx.is_inexact_array)
    how = eqx.tree_at(lambda r: (r.model, r.ts), problem, (None, None))
    way = _TracedProblem(moving, *without_derivatives((fixed, how, start.scale)))
    loop_state, found, _ = advance(way.task, *way.begin)
    q, v = jnp.split(reached(loop_state, found), [start.q.size], axis=1)
    return as_solution(problem.ts, q, v, without_derivatives(loop_state), start)


class _TracedProblem(eqx.Module):
    """A motion: what of it has derivatives, the rest of that, how it is done, and its scale."""

    moving: Any
    fixed: Any
    how: Problem
    scale: Any

    @property
    def begin(self) -> tuple[LoopState, Any]:
        """Where it begins, and the samples, of which none is known."""
        _, ts, q, v = eqx.combine(self.moving, self.fixed)
        return initial_loop_state(ts.size, q, v)

    @property
    def task(self) -> tuple:
        model, ts, _, _ = eqx.combine(self.moving, self.fixed)
        how, limits = self.how, (ts.size, self.how.max_steps)
        return model, ts, None, how.tolerance(self.scale), limits, how.method, how.tableau, how.projection, self.scale

    @property
    def task_back(self) -> tuple:
        how = self.how
        return self.moving[:2], self.fixed[:2], how.method, how.tableau, how.projection, self.scale

    @property
    def longest(self) -> int:
        """How many steps there can be from one mark to the next."""
        return max(FIRST_STRIDE, 2 ** int(np.ceil(np.log2(2 * (self.how.max_steps + 1) / MAX_CHECKPOINTS))))


# Compiled by themselves too: an eager ``vmap`` is no program, and asks again and again.
@eqx.filter_jit
@usual_promotion()
def _solve(way):
    """Where the motion comes to, and its samples."""

    loop_state, found, _ = advance(way.task, *way.begin)
    return loop_state, reached(loop_state, found)


@eqx.filter_jit
@usual_promotion()
def _solve_with_checkpoints(way):
    """Where the motion comes to, its samples, and its marks: courses, how many there are, and the steps between."""
    begin, found = way.begin
    places = jax.tree.map(lambda x: jnp.zeros((MAX_CHECKPOINTS, *x.shape), x.dtype), begin)

    def further(state):
        loop_state, found, (places, count, stride) = state
        places = jax.tree.map(lambda into, x: into.at[count].set(x), places, loop_state)
        loop_state, found, _ = advance(way.task, loop_state, found, stride)
        marks = jax.lax.cond(
            count + 1 == MAX_CHECKPOINTS, _drop_every_other, lambda marks: marks, (places, count + 1, stride)
        )
        return loop_state, found, marks

    marks = places, jnp.zeros((), np.int32), jnp.asarray(FIRST_STRIDE, np.int32)
    going = lambda state: state[0].result == RUNNING
    loop_state, found, marks = jax.lax.while_loop(going, further, (begin, found, marks))
    return loop_state, reached(loop_state, found), marks


def _drop_every_other(marks):
    places, count, stride = marks
    return jax.tree.map(lambda x: jnp.concatenate([x[::2], x[::2]]), places), count // 2, 2 * stride


@eqx.filter_jit
@usual_promotion()
def _vjp_from_checkpoints(way, marks, to_samples):
    """The cotangent of what moves, from those of the samples."""
    places, count, stride = marks
    _, nothing = way.begin
    of_state = tuple(jnp.zeros_like(x) for x in way.moving[2:])
    of_rest = jax.tree.map(jnp.zeros_like, way.moving[:2])

    parts = stride // FIRST_STRIDE
    at = lambda courses, i: jax.tree.map(lambda x: x[i], courses)
    put = lambda courses, i, loop_state: jax.tree.map(lambda into, x: into.at[i].set(x), courses, loop_state)

    def back(k, carry):
        """From one mark to the one before. The steps between are many or few: first the courses that begin each part
        of ``FIRST_STRIDE`` steps are found, then the parts are passed backwards."""
        begins, cotangents = carry

        def part(j, carry):
            begins, cotangents = carry
            ahead = j < parts - 1
            i = jnp.where(ahead, j, 2 * (parts - 1) - j)
            loop_state, _, steps = advance(way.task, at(begins, i), nothing, FIRST_STRIDE, FIRST_STRIDE)
            begins = put(
                begins, i + ahead, jax.tree.map(lambda x, y: jnp.where(ahead, x, y), loop_state, at(begins, i))
            )
            pulled = lambda: pull_back(way.task_back, steps, to_samples, *cotangents)
            return begins, jax.lax.cond(ahead, lambda: cotangents, pulled)

        begins = put(begins, 0, at(places, count - 1 - k))
        return jax.lax.fori_loop(0, 2 * parts - 1, part, (begins, cotangents))

    begins = jax.tree.map(lambda x: jnp.zeros((way.longest // FIRST_STRIDE, *x.shape[1:]), x.dtype), places)
    _, (of_state, of_rest) = jax.lax.fori_loop(0, count, back, (begins, (of_state, of_rest)))
    return (*of_rest, *of_state)
