"""Fixed steps whose numbers are known, for one motion or for a batch."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Bool, Float, Int

from ..._kernel import per_member, per_member_forward
from ..._run.compile import jit_batch
from ..._solve import AbstractMethod
from ..fallback.policy import solve_batch, solve_differentiated, solve_eagerly
from ..plan import Plan
from ..problem import InitialState, Problem, Solution
from ..result import classify, finite, reached_times
from ..stepper.base import AbstractStepper, StepSetting
from ..stepper.drift_correction import MethodPerLevel
from ..stepper.limits import is_kernel
from ..stepper.model_batch import ModelBatch, SingleModel
from .alone import past_singular_poses
from .base import AbstractBatchIntegrator


class FixedSteps(AbstractBatchIntegrator):
    """Integrator with equal steps between each sample and the next. Steps end exactly on the samples."""

    checks_every_step: ClassVar[bool] = True

    @property
    def program(self):
        return _solve

    def run(self, problem: Problem, start: InitialState, plan: Plan) -> Solution:
        if plan.eager:
            if start.q.ndim == 1:
                return solve_eagerly(_solve, problem, start, plan)
            solution = solve_batch(_solve, problem, start, plan)
            return past_singular_poses(solution, problem, start, plan) if problem.tableau is not None else solution
        solve = _solve_forward if plan.differentiation == "forward" else _solve
        return solve_differentiated(lambda problem, start: solve(start, problem), problem, start, plan)


def step_counts(ts: Any, dt: Any, xp: Any = np) -> Any:
    """Smallest numbers of equal steps from each time of ``ts`` to the next that are not longer than dt, up to rounding.

    ``xp`` is ``numpy`` or ``jax.numpy``.
    """
    steps = xp.diff(ts) / dt
    slack = 1e-6 + 4 * float(np.finfo(steps.dtype).eps) * steps
    return xp.maximum(1, xp.ceil(steps - slack)).astype(int)


@jit_batch
def _solve(start, problem):
    return _solve_all(start, problem, per_member)


@jit_batch
def _solve_forward(start, problem):
    return _solve_all(start, problem, per_member_forward)


def _solve_all(start, problem, compile_kernel):
    ts, counts = problem.ts, problem.counts
    options = problem.current_method, problem.stepper, problem.projection
    if is_kernel(problem.current_method):

        @compile_kernel
        def solve_member(start, ts, per_interval):
            return fixed_step_loop(problem.model_of, start, ts, per_interval, counts.most, *options)

        solve_all = solve_member if start.q.ndim == 1 else jax.vmap(solve_member, (0, None, None))
        q, v, (q_last, v_last), flags = solve_all(start, ts, counts.per_interval)
    else:
        q, v, (q_last, v_last), flags = fixed_step_loop(
            problem.model_of, jax.tree.map(jnp.transpose, start), ts, counts.per_interval, counts.most, *options
        )
        if start.q.ndim == 2:
            q, v = jnp.moveaxis(q, -1, 0), jnp.moveaxis(v, -1, 0)
            q_last, v_last = q_last.T, v_last.T
    return Solution(
        t=reached_times(ts, q, v),
        q=q,
        v=v,
        result=flags.result,
        # The first step, of length zero, is not counted, but a failed step is.
        steps=flags.taken - 1 + (flags.jumped | flags.singular | flags.not_finite),
        last=(time_after(flags.taken, ts, counts.per_interval), q_last, v_last),
        displaced=start.displaced(jnp, q[..., 0, :], v[..., 0, :]),
    )


def time_after(taken: Int[Array, "*batch"], ts: Array, per_interval: Array) -> Float[Array, "*batch"]:
    """Time after the steps ``taken``, including the first one of length zero."""
    counts = _with_first_step(per_interval)
    steps_to_sample = jnp.cumsum(counts)
    reached = jnp.sum(steps_to_sample <= taken[..., None], axis=-1)  # number of samples that were reached
    sample, following = jnp.maximum(reached - 1, 0), jnp.minimum(reached, ts.size - 1)
    h = (ts[following] - ts[sample]) / counts[following]
    return ts[sample] + (taken - steps_to_sample[sample]) * h


def _with_first_step(per_interval: Array) -> Int[Array, " samples"]:
    """Numbers of steps to each sample from the one before; to the first sample, one step of length zero."""
    return jnp.concatenate([jnp.ones_like(per_interval[:1]), per_interval])


SAVED_NAME = "whether a step was taken"
save_step_starts = partial(
    jax.checkpoint, prevent_cse=False, policy=jax.checkpoint_policies.save_only_these_names(SAVED_NAME)
)
"""Checkpoint policy for reverse mode: of each step, only its start and whether it was taken are saved. Saving all
intermediate values needs more memory bandwidth than repeating the step, and compiles more slowly."""


class StepFlags(NamedTuple):
    """Failures of the steps so far, and their number.

    A motion stops after a step that ends off the constraints, and before one that jumps, is in doubt or is not finite.

    Attributes
    ----------
    beyond
        Whether a step must be repeated by another method.
    off
        Whether a step ended off the constraints.
    jumped
        Whether the drift correction of a step was too large to be an error of the step.
    singular
        Whether the result of a step from a state near a singular pose was in doubt.
    not_finite
        Whether the result of a step was not finite.
    inconsistent
        Whether constraints contradicted each other.
    taken
        Number of steps taken, including the first one of length zero.
    """

    beyond: Bool[Array, "*batch"]
    off: Bool[Array, "*batch"]
    jumped: Bool[Array, "*batch"]
    singular: Bool[Array, "*batch"]
    not_finite: Bool[Array, "*batch"]
    inconsistent: Bool[Array, "*batch"]
    taken: Int[Array, "*batch"]

    @property
    def stopped(self) -> Bool[Array, "*batch"]:
        """Whether the motion has stopped."""
        return self.off | self.jumped | self.singular | self.not_finite

    @property
    def result(self) -> Int[Array, "*batch"]:
        """Code of the result of a motion whose other steps succeeded."""
        return classify(
            finished=~(self.beyond | self.stopped),
            needs_fallback=self.beyond,
            singular=self.singular,
            jumped=self.jumped,
            off=self.off,
            not_finite=self.not_finite,
            inconsistent=self.inconsistent,
        )


def fixed_step_loop(
    model_of: Callable,
    start: InitialState,
    ts: Float[Array, " samples"],
    per_interval: Int[Array, " intervals"],
    most: int | None,
    method: AbstractMethod | MethodPerLevel,
    stepper: AbstractStepper,
    projection: bool,
) -> tuple[Float[Array, "samples nq *batch"], Float[Array, "samples n *batch"], tuple[Array, Array], StepFlags]:
    """Integrate by the steps of ``stepper``; return q and v at ``ts``, the last q and v, and the failures.

    q and v are NaN at samples that were not reached.

    ``per_interval`` contains the numbers of steps from each sample to the next, and ``most`` is the largest of them. If
    ``most`` is None, one program works for all numbers of steps, but it has no derivative in reverse mode.

    The batch axis, if any, is the last one, also in ``start``, so that the entries of different members are adjacent in
    memory. ``model_of(numbers)`` is the model of one member.
    """
    is_batch = start.q.ndim == 2
    models = ModelBatch(model_of, start.numbers) if is_batch else SingleModel(model_of(start.numbers))
    setting = StepSetting(models, method, projection, start.scale)

    def interval(state, ends_and_count):
        t0, t1, count = ends_and_count
        h = (t1 - t0) / count

        def advance(i, state):
            *before, flags = state
            q, v, carry = before
            carry, end = stepper.step(setting, carry, t0 + i * h, h, q, v)
            is_running = ~flags.stopped  # the first failure is the result
            refused = end.jumped | end.singular
            not_finite = ~refused & ~finite(end.q, end.v, axis=0)
            taken = checkpoint_name(is_running & ~refused & ~not_finite, SAVED_NAME)
            choose = lambda new, old: jnp.where(taken, new, old)
            q, v, carry = jax.tree.map(choose, (end.q, end.v, carry), tuple(before))
            flags = StepFlags(
                beyond=flags.beyond | end.beyond & is_running,
                off=flags.off | end.off & taken,
                jumped=flags.jumped | end.jumped & is_running,
                singular=flags.singular | end.singular & ~end.jumped & is_running,
                not_finite=flags.not_finite | not_finite & is_running,
                inconsistent=flags.inconsistent | end.inconsistent & taken,
                taken=flags.taken + taken,
            )
            return q, v, carry, flags

        def advance_if_needed(state, i):
            return jax.lax.cond(i < count, lambda: advance(i, state), lambda: state), None

        if most is None:
            state = jax.lax.fori_loop(0, count, advance, state)
        else:
            state, _ = jax.lax.scan(save_step_starts(advance_if_needed), state, jnp.arange(most))
        q, v, _, flags = state
        return state, tuple(jnp.where(flags.stopped, jnp.nan, x) for x in (q, v))

    # The first interval has length zero: its only step projects q0, v0 to the first sample.
    ends = jnp.concatenate([ts[:1], ts])
    false = jnp.zeros(start.q.shape[1:], bool)
    flags = StepFlags(false, false, false, false, false, false, taken=false.astype(np.int32))
    state = start.q, start.v, stepper.init(start.q, start.v), flags
    intervals = ends[:-1], ends[1:], _with_first_step(per_interval)
    (q_last, v_last, _, flags), (q, v) = jax.lax.scan(interval, state, intervals)
    return q, v, (q_last, v_last), flags
