"""Fixed steps whose numbers are known, for one motion or for a batch."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Bool, Float, Int

from ..._jaxpr.tracing import is_concrete, without_derivatives
from ..._kernel import per_member
from ..._run.compile import jit_batch
from ..._solve import AbstractMethod
from ..fallback.policy import in_words, initial_method_at, next_method_of, solve_batch
from ..plan import Plan
from ..problem import InitialState, Problem, Solution
from ..result import UNUSUAL, classify, finite
from ..stepper.drift_correction import MethodPerLevel
from ..stepper.limits import is_kernel
from ..stepper.model_batch import ModelBatch, SingleModel
from ..stepper.runge_kutta import step
from ..stepper.single_loop import single_loop_step
from ..stepper.tableau import Tableau
from .base import AbstractBatchIntegrator

MAX_METHODS = 3
"""Largest number of methods that are compiled and tried for a derivative, before the requested one is used."""


class FixedSteps(AbstractBatchIntegrator):
    """Integrator with equal steps between each sample and the next. Steps end exactly on the samples."""

    checks_every_step: ClassVar[bool] = True

    @property
    def program(self):
        return _solve

    def run(self, problem: Problem, start: InitialState, plan: Plan) -> Solution:
        if plan.eager:
            return solve_batch(_solve, problem, start, plan)
        return _solve_differentiated(start, problem, plan)


def _solve_differentiated(start, problem, plan):
    """Integrate by the fast path if it is applicable to every member, otherwise by the requested method.

    The fast path is tried only if the values are known, since otherwise its applicability cannot be checked.
    """
    primal_problem, primal_start = without_derivatives((problem, start))
    method = initial_method_at(primal_problem, primal_start) if plan.values_known else None
    for _ in range(MAX_METHODS):
        if method is None or not method.has_fallback:
            break
        solution = _solve(start, replace(problem, attempt=method))
        result = without_derivatives(solution.result)
        if not is_concrete(result):
            break
        needs_fallback = np.flatnonzero(np.asarray(result) == UNUSUAL)
        if not needs_fallback.size:
            return solution
        method = next_method_of(primal_problem, method, primal_start, needs_fallback[0])
        plan.note(f"member {needs_fallback[0]}: {in_words(method)}" if start.q.ndim == 2 else in_words(method))
    return _solve(start, problem)


def step_counts(ts: Any, dt: Any, xp: Any = np) -> Any:
    """Smallest numbers of equal steps from each time of ``ts`` to the next that are not longer than dt, up to rounding.

    ``xp`` is ``numpy`` or ``jax.numpy``.
    """
    steps = xp.diff(ts) / dt
    slack = 1e-6 + 4 * float(np.finfo(steps.dtype).eps) * steps
    return xp.maximum(1, xp.ceil(steps - slack)).astype(int)


@jit_batch
def _solve(start, problem):
    ts, counts = problem.ts, problem.counts
    options = problem.current_method, problem.tableau, problem.projection
    if is_kernel(problem.current_method):

        @per_member
        def solve_member(start, ts, per_interval):
            return fixed_step_loop(problem.model_of, start, ts, per_interval, counts.most, *options)

        solve_all = solve_member if start.q.ndim == 1 else jax.vmap(solve_member, (0, None, None))
        q, v, flags = solve_all(start, ts, counts.per_interval)
    else:
        q, v, flags = fixed_step_loop(
            problem.model_of, jax.tree.map(jnp.transpose, start), ts, counts.per_interval, counts.most, *options
        )
        if start.q.ndim == 2:
            q, v = jnp.moveaxis(q, -1, 0), jnp.moveaxis(v, -1, 0)
    reached, failed = finite(q[..., -1, :], v[..., -1, :]), flags.beyond | flags.off | flags.jumped
    result = classify(
        finished=reached & ~failed,
        needs_fallback=flags.beyond,
        jumped=flags.jumped,
        off=flags.off,
        not_finite=~reached,
        inconsistent=flags.inconsistent,
    )
    return Solution(
        t=jnp.broadcast_to(ts, q.shape[:-1]),
        q=q,
        v=v,
        result=result,
        steps=jnp.broadcast_to(jnp.sum(counts.per_interval), result.shape).astype(np.int32),
        last=last_reached(ts, q, v, start.q, start.v),
        displaced=start.displaced(jnp, q[..., 0, :], v[..., 0, :]),
    )


def last_reached(ts: Array, q: Array, v: Array, q0: Array, v0: Array) -> tuple[Array, Array, Array]:
    """t, q and v of the last sample that was reached; q0 and v0 if there is none."""
    is_finite = finite(q, v)
    reached = jnp.sum(jnp.cumprod(is_finite, axis=-1), axis=-1)
    last = jnp.maximum(reached - 1, 0)
    at_last = lambda x, x0: jnp.where(
        reached[..., None] > 0, jnp.take_along_axis(x, last[..., None, None], axis=-2)[..., 0, :], x0
    )
    return ts[last], at_last(q, q0), at_last(v, v0)


SAVED_NAME = "whether a step leapt"
save_step_starts = partial(
    jax.checkpoint, prevent_cse=False, policy=jax.checkpoint_policies.save_only_these_names(SAVED_NAME)
)
"""Checkpoint policy for reverse mode: of each step, only its start and whether it jumped are saved. Saving all
intermediate values needs more memory bandwidth than repeating the step, and compiles more slowly."""


class StepFlags(NamedTuple):
    """Failures of the steps so far.

    Attributes
    ----------
    beyond
        Whether a step must be repeated by another method.
    off
        Whether a step ended off the constraints.
    jumped
        Whether the drift correction of a step was too large to be an error of the step.
    inconsistent
        Whether constraints contradicted each other.
    """

    beyond: Bool[Array, "*batch"]
    off: Bool[Array, "*batch"]
    jumped: Bool[Array, "*batch"]
    inconsistent: Bool[Array, "*batch"]


def fixed_step_loop(
    model_of: Callable,
    start: InitialState,
    ts: Float[Array, " samples"],
    per_interval: Int[Array, " intervals"],
    most: int | None,
    method: AbstractMethod | MethodPerLevel,
    tableau: Tableau,
    projection: bool,
) -> tuple[Float[Array, "samples nq *batch"], Float[Array, "samples n *batch"], StepFlags]:
    """Integrate by explicit Runge–Kutta steps; return q and v at ``ts``, and the failures.

    ``per_interval`` contains the numbers of steps from each sample to the next, and ``most`` is the largest of them. If
    ``most`` is None, one program works for all numbers of steps, but it has no derivative in reverse mode.

    The batch axis, if any, is the last one, also in ``start``, so that the entries of different members are adjacent in
    memory. ``model_of(numbers)`` is the model of one member.
    """
    take_step = step if is_kernel(method) or start.q.ndim == 2 and not method.is_sparse else single_loop_step

    def step_members(models, method, t, h, q, v, scale):
        stepped = take_step(models, t, h, q, v, method, tableau, projection, scale)
        flags = stepped.off, stepped.jumped, stepped.inconsistent
        return (stepped.q, stepped.v, flags), stepped.beyond(method)

    if start.q.ndim == 2:
        step_all = lambda numbers, *state: step_members(ModelBatch(model_of, numbers), method, *state)
    else:
        step_all = lambda numbers, *state: step_members(SingleModel(model_of(numbers)), method, *state)

    def interval(state, ends_and_count):
        t0, t1, count = ends_and_count
        h = (t1 - t0) / count

        def advance(i, state):
            q, v, flags_so_far = state
            (q, v, (off, jumped, inconsistent)), beyond = step_all(start.numbers, t0 + i * h, h, q, v, start.scale)
            jumped = checkpoint_name(jumped, SAVED_NAME)
            q, v = (jnp.where(jumped, jnp.nan, x) for x in (q, v))  # the motion ends here
            jumped = jumped & ~flags_so_far.off  # the first failure is the result
            return q, v, jax.tree.map(jnp.logical_or, flags_so_far, StepFlags(beyond, off, jumped, inconsistent))

        def advance_if_needed(state, i):
            return jax.lax.cond(i < count, lambda: advance(i, state), lambda: state), None

        if most is None:
            state = jax.lax.fori_loop(0, count, advance, state)
        else:
            state, _ = jax.lax.scan(save_step_starts(advance_if_needed), state, jnp.arange(most))
        return state, state[:2]

    # The first interval has length zero: its only step projects q0, v0 to the first sample.
    ends = jnp.concatenate([ts[:1], ts])
    counts = jnp.concatenate([jnp.ones_like(per_interval[:1]), per_interval])
    false = jnp.zeros(start.q.shape[1:], bool)
    state = start.q, start.v, StepFlags(false, false, false, false)
    (_, _, flags), (q, v) = jax.lax.scan(interval, state, (ends[:-1], ends[1:], counts))
    return q, v, flags
