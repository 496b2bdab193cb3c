"""Adaptive steps inside a program that JAX traces, where the host cannot check the state, and their derivatives.

In reverse mode, the forward pass saves at most ``MAX_CHECKPOINTS`` checkpoints: when these are full, every other one is
dropped. The backward pass goes from checkpoint to checkpoint, and repeats the steps between two of them.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._jaxpr.tracing import without_derivatives
from ..._kernel import per_member_forward
from ..._run.compile import standard_promotion
from ..fallback.policy import solve_differentiated
from ..plan import Plan
from ..problem import InitialState, Problem, Solution
from ..result import RUNNING
from .base import AbstractIntegrator
from .single import LoopState, advance, as_solution, initial_loop_state, pull_back, reached

MAX_CHECKPOINTS = 512
"""Largest number of checkpoints."""

FIRST_STRIDE = 16
"""Number of steps between two checkpoints, before any is dropped."""


class TracedMotion(AbstractIntegrator):
    """Integrator for traced motions, see the module."""

    checks_every_step: ClassVar[bool] = True

    def run(self, problem: Problem, start: InitialState, plan: Plan) -> Solution:
        solve_one = integrate_forward_mode if plan.differentiation == "forward" else integrate_one
        solve = lambda problem, start: _each_motion(solve_one, problem, start)
        return solve_differentiated(solve, problem, start, plan)


def _each_motion(solve_one, problem, start):
    """Call ``solve_one`` for one motion, or for each member of a batch."""
    return solve_one(problem, start) if start.q.ndim == 1 else jax.vmap(lambda start: solve_one(problem, start))(start)


def integrate_one(problem: Problem, start: InitialState) -> Solution:
    """Integrate one motion by adaptive steps, with a derivative in reverse mode."""
    differentiable = problem.model_of(start.numbers), problem.ts, start.q, start.v
    differentiable, constant = eqx.partition(differentiable, eqx.is_inexact_array)
    options = eqx.tree_at(lambda r: (r.model, r.ts), problem, (None, None))
    arrays, static = eqx.partition(without_derivatives((constant, options, start.scale)), eqx.is_array)
    traced_problem = lambda differentiable, arrays: _TracedProblem(differentiable, *eqx.combine(arrays, static))

    @jax.custom_vjp
    def solve(differentiable, arrays):
        loop_state, samples = _solve(traced_problem(differentiable, arrays))
        return *split_samples(samples), loop_state

    def forward(differentiable, arrays):
        loop_state, samples, checkpoints = _solve_with_checkpoints(traced_problem(differentiable, arrays))
        return (*split_samples(samples), loop_state), (differentiable, arrays, checkpoints)

    def backward(residuals, cotangents):
        differentiable, arrays, checkpoints = residuals
        return _vjp_from_checkpoints(traced_problem(differentiable, arrays), checkpoints, cotangents[:2]), None

    def split_samples(samples):
        return jnp.split(samples, [start.q.size], axis=1)

    solve.defvjp(forward, backward)
    q, v, loop_state = solve(differentiable, arrays)
    return as_solution(problem.ts, q, v, without_derivatives(loop_state), start)


@eqx.filter_jit
@standard_promotion()
def integrate_forward_mode(problem: Problem, start: InitialState) -> Solution:
    """Integrate one motion by adaptive steps, with a derivative in forward mode."""
    differentiable = problem.model_of(start.numbers), problem.ts, start.q, start.v
    differentiable, constant = eqx.partition(differentiable, eqx.is_inexact_array)
    options = eqx.tree_at(lambda r: (r.model, r.ts), problem, (None, None))
    traced_problem = _TracedProblem(differentiable, *without_derivatives((constant, options, start.scale)))
    loop_state, samples, _ = advance(traced_problem.task, *traced_problem.begin, compile_kernel=per_member_forward)
    q, v = jnp.split(reached(loop_state, samples), [start.q.size], axis=1)
    return as_solution(problem.ts, q, v, without_derivatives(loop_state), start)


class _TracedProblem(eqx.Module):
    """A motion to be integrated.

    Attributes
    ----------
    differentiable, constant
        The differentiated arrays of (model, ts, q, v), and all other parts of them.
    options
        The problem without its model and times.
    scale
        Characteristic scales.
    """

    differentiable: Any
    constant: Any
    options: Problem
    scale: Any

    @property
    def begin(self) -> tuple[LoopState, Any]:
        """Loop state at the start, and an empty array of samples."""
        _, ts, q, v = eqx.combine(self.differentiable, self.constant)
        return initial_loop_state(ts.size, q, v)

    @property
    def task(self) -> tuple:
        """Arguments of ``advance``."""
        model, ts, _, _ = eqx.combine(self.differentiable, self.constant)
        options, limits = self.options, (ts.size, self.options.max_steps)
        return (
            model,
            ts,
            None,
            options.tolerance(self.scale),
            limits,
            options.current_method,
            options.tableau,
            options.projection,
            self.scale,
        )

    @property
    def task_back(self) -> tuple:
        """Arguments of ``pull_back``."""
        options = self.options
        return (
            self.differentiable[:2],
            self.constant[:2],
            options.current_method,
            options.tableau,
            options.projection,
            self.scale,
        )

    @property
    def longest(self) -> int:
        """Largest number of steps between two checkpoints."""
        return max(FIRST_STRIDE, 2 ** int(np.ceil(np.log2(2 * (self.options.max_steps + 1) / MAX_CHECKPOINTS))))


# These functions are compiled also outside of ``jit``: an eager ``vmap`` would trace them at every call.
@eqx.filter_jit
@standard_promotion()
def _solve(problem):
    """The last loop state, and the samples."""
    loop_state, samples, _ = advance(problem.task, *problem.begin)
    return loop_state, reached(loop_state, samples)


@eqx.filter_jit
@standard_promotion()
def _solve_with_checkpoints(problem):
    """The last loop state, the samples, and the checkpoints.

    The checkpoints are (loop states, their number, number of steps between two of them).
    """
    initial, samples = problem.begin
    states = jax.tree.map(lambda x: jnp.zeros((MAX_CHECKPOINTS, *x.shape), x.dtype), initial)

    def advance_to_checkpoint(state):
        loop_state, samples, (states, count, stride) = state
        states = jax.tree.map(lambda into, x: into.at[count].set(x), states, loop_state)
        loop_state, samples, _ = advance(problem.task, loop_state, samples, stride)
        checkpoints = jax.lax.cond(
            count + 1 == MAX_CHECKPOINTS,
            _drop_every_other,
            lambda checkpoints: checkpoints,
            (states, count + 1, stride),
        )
        return loop_state, samples, checkpoints

    checkpoints = states, jnp.zeros((), np.int32), jnp.asarray(FIRST_STRIDE, np.int32)
    is_running = lambda state: state[0].result == RUNNING
    loop_state, samples, checkpoints = jax.lax.while_loop(
        is_running, advance_to_checkpoint, (initial, samples, checkpoints)
    )
    return loop_state, reached(loop_state, samples), checkpoints


def _drop_every_other(checkpoints):
    """Keep every other checkpoint, and double the number of steps between them."""
    states, count, stride = checkpoints
    return jax.tree.map(lambda x: jnp.concatenate([x[::2], x[::2]]), states), count // 2, 2 * stride


@eqx.filter_jit
@standard_promotion()
def _vjp_from_checkpoints(problem, checkpoints, sample_cotangents):
    """Cotangents of the differentiable inputs from those of the samples."""
    states, count, stride = checkpoints
    _, empty_samples = problem.begin
    state_cotangents = tuple(jnp.zeros_like(x) for x in problem.differentiable[2:])
    other_cotangents = jax.tree.map(jnp.zeros_like, problem.differentiable[:2])

    part_count = stride // FIRST_STRIDE
    at = lambda loop_states, i: jax.tree.map(lambda x: x[i], loop_states)
    put = lambda loop_states, i, loop_state: jax.tree.map(lambda into, x: into.at[i].set(x), loop_states, loop_state)

    def back(k, carry):
        """Go from one checkpoint to the one before.

        The steps between them are divided into parts of ``FIRST_STRIDE`` steps. First, the loop states at the start of
        all parts are computed; then the steps of the parts are differentiated, from the last part backwards.
        """
        part_starts, cotangents = carry

        def part(j, carry):
            part_starts, cotangents = carry
            is_forward = j < part_count - 1
            i = jnp.where(is_forward, j, 2 * (part_count - 1) - j)
            loop_state, _, steps = advance(problem.task, at(part_starts, i), empty_samples, FIRST_STRIDE, FIRST_STRIDE)
            part_starts = put(
                part_starts,
                i + is_forward,
                jax.tree.map(lambda x, y: jnp.where(is_forward, x, y), loop_state, at(part_starts, i)),
            )
            pull_back_part = lambda: pull_back(problem.task_back, steps, sample_cotangents, *cotangents)
            return part_starts, jax.lax.cond(is_forward, lambda: cotangents, pull_back_part)

        part_starts = put(part_starts, 0, at(states, count - 1 - k))
        return jax.lax.fori_loop(0, 2 * part_count - 1, part, (part_starts, cotangents))

    part_starts = jax.tree.map(lambda x: jnp.zeros((problem.longest // FIRST_STRIDE, *x.shape[1:]), x.dtype), states)
    _, (state_cotangents, other_cotangents) = jax.lax.fori_loop(
        0, count, back, (part_starts, (state_cotangents, other_cotangents))
    )
    return (*other_cotangents, *state_cotangents)
