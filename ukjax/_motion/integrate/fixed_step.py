"""Fixed steps of known number: the plain loop, for one motion or for a whole batch in step."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Bool, Float, Int

from ..._check import is_concrete, without_derivatives
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

ATTEMPTS = 3
"""How many methods are tried for a derivative, each of which is compiled, before the one asked for."""


class FixedSteps(AbstractBatchIntegrator):
    """Equal steps between each sample and the next, which they meet exactly."""

    checks_every_step: ClassVar[bool] = True

    @property
    def program(self):
        return _solve

    def run(self, problem: Problem, start: InitialState, plan: Plan) -> Solution:
        if plan.eager:
            return solve_batch(_solve, problem, start, plan)
        return _solve_differentiated(start, problem, plan)


def _solve_differentiated(start, problem, plan):
    """Integrate by the fast path if it is applicable to every member, else by the method that was asked for. Whether it
    is, can be seen only if the values are known."""
    asked, begun = without_derivatives((problem, start))
    method = initial_method_at(asked, begun) if plan.values_known else None
    for _ in range(ATTEMPTS):
        if method is None or not method.has_fallback:
            break
        found = _solve(start, replace(problem, attempt=method))
        result = without_derivatives(found.result)
        if not is_concrete(result):
            break
        needs_fallback = np.flatnonzero(np.asarray(result) == UNUSUAL)
        if not needs_fallback.size:
            return found
        method = next_method_of(asked, method, begun, needs_fallback[0])
        plan.note(f"member {needs_fallback[0]}: {in_words(method)}" if start.q.ndim == 2 else in_words(method))
    return _solve(start, problem)


def step_counts(ts: Any, dt: Any, xp: Any = np) -> Any:
    """How many equal steps lead from each time of ``ts`` to the next, if none is longer than dt but for rounding; by
    NumPy or by JAX."""
    steps = xp.diff(ts) / dt
    slack = 1e-6 + 4 * float(np.finfo(steps.dtype).eps) * steps
    return xp.maximum(1, xp.ceil(steps - slack)).astype(int)


@jit_batch
def _solve(start, problem):
    ts, counts = problem.ts, problem.counts
    how = problem.by, problem.tableau, problem.projection
    if is_kernel(problem.by):

        @per_member
        def of_one(start, ts, between):
            return fixed_step_loop(problem.model_of, start, ts, between, counts.most, *how)

        of_all = of_one if start.q.ndim == 1 else jax.vmap(of_one, (0, None, None))
        q, v, went = of_all(start, ts, counts.between)
    else:
        q, v, went = fixed_step_loop(
            problem.model_of, jax.tree.map(jnp.transpose, start), ts, counts.between, counts.most, *how
        )
        if start.q.ndim == 2:
            q, v = jnp.moveaxis(q, -1, 0), jnp.moveaxis(v, -1, 0)
    reached, failed = finite(q[..., -1, :], v[..., -1, :]), went.beyond | went.off | went.jumped
    result = classify(
        finished=reached & ~failed,
        needs_fallback=went.beyond,
        jumped=went.jumped,
        off=went.off,
        not_finite=~reached,
        inconsistent=went.inconsistent,
    )
    return Solution(
        t=jnp.broadcast_to(ts, q.shape[:-1]),
        q=q,
        v=v,
        result=result,
        steps=jnp.broadcast_to(jnp.sum(counts.between), result.shape).astype(np.int32),
        last=last_reached(ts, q, v, start.q, start.v),
        displaced=start.displaced(jnp, q[..., 0, :], v[..., 0, :]),
    )


def last_reached(ts: Array, q: Array, v: Array, q0: Array, v0: Array) -> tuple[Array, Array, Array]:
    """t, q and v of the last sample that was reached, or the start."""
    good = finite(q, v)
    reached = jnp.sum(jnp.cumprod(good, axis=-1), axis=-1)
    last = jnp.maximum(reached - 1, 0)
    at_last = lambda x, x0: jnp.where(
        reached[..., None] > 0, jnp.take_along_axis(x, last[..., None, None], axis=-2)[..., 0, :], x0
    )
    return ts[last], at_last(q, q0), at_last(v, v0)


SAVED_NAME = "whether a step leapt"
save_step_starts = partial(
    jax.checkpoint, prevent_cse=False, policy=jax.checkpoint_policies.save_only_these_names(SAVED_NAME)
)
"""For derivatives, only where steps begin is kept of them, and whether they leapt. All that is computed within a step
is more than memory is quick for, and than is quickly compiled."""


class StepFlags(NamedTuple):
    """Whether a step was ``beyond`` what the method can do, ended ``off`` the constraints, ``jumped`` onto them, or met
    ``inconsistent`` ones."""

    beyond: Bool[Array, "*batch"]
    off: Bool[Array, "*batch"]
    jumped: Bool[Array, "*batch"]
    inconsistent: Bool[Array, "*batch"]


def fixed_step_loop(
    model_of: Callable,
    start: InitialState,
    ts: Float[Array, " samples"],
    between: Int[Array, " intervals"],
    most: int | None,
    method: AbstractMethod | MethodPerLevel,
    tableau: Tableau,
    projection: bool,
) -> tuple[Float[Array, "samples nq *batch"], Float[Array, "samples n *batch"], StepFlags]:
    """q and v at ``ts``, in explicit Runge–Kutta steps, and how it went.

    ``between`` are the numbers of steps from each sample to the next, ``most`` the largest of them. Without ``most``,
    one program does for any numbers of steps, but has no derivative in reverse mode.

    The batch, if there is one, is the last axis, of the start too: the entries of different members are neighbours in
    memory. ``model_of(numbers)`` is the model of one member.
    """

    take = step if is_kernel(method) or start.q.ndim == 2 and not method.is_sparse else single_loop_step

    def turn(each, method, t, h, q, v, scale):
        stepped = take(each, t, h, q, v, method, tableau, projection, scale)
        went = stepped.off, stepped.jumped, stepped.inconsistent
        return (stepped.q, stepped.v, went), stepped.beyond(method)

    if start.q.ndim == 2:
        of_all = lambda numbers, *at: turn(ModelBatch(model_of, numbers), method, *at)
    else:
        of_all = lambda numbers, *at: turn(SingleModel(model_of(numbers)), method, *at)

    def interval(state, ends_and_count):
        t0, t1, count = ends_and_count
        h = (t1 - t0) / count

        def further(i, state):
            q, v, so_far = state
            (q, v, (off, jumped, inconsistent)), beyond = of_all(start.numbers, t0 + i * h, h, q, v, start.scale)
            jumped = checkpoint_name(jumped, SAVED_NAME)
            q, v = (jnp.where(jumped, jnp.nan, x) for x in (q, v))  # there it ends
            jumped = jumped & ~so_far.off  # what went wrong first is the result
            return q, v, jax.tree.map(jnp.logical_or, so_far, StepFlags(beyond, off, jumped, inconsistent))

        def go_on(state, i):
            return jax.lax.cond(i < count, lambda: further(i, state), lambda: state), None

        if most is None:
            state = jax.lax.fori_loop(0, count, further, state)
        else:
            state, _ = jax.lax.scan(save_step_starts(go_on), state, jnp.arange(most))
        return state, state[:2]

    # The first interval has no length: its one step leads from q0, v0 to the first sample.
    ends = jnp.concatenate([ts[:1], ts])
    counted = jnp.concatenate([jnp.ones_like(between[:1]), between])
    none = jnp.zeros(start.q.shape[1:], bool)
    state = start.q, start.v, StepFlags(none, none, none, none)
    (_, _, went), (q, v) = jax.lax.scan(interval, state, (ends[:-1], ends[1:], counted))
    return q, v, went
