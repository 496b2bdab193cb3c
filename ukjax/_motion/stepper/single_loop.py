"""A step whose stages and corrections are iterations of one loop, so that it compiles quickly.

Each iteration evaluates the system at one state and solves M x + Aᵀν = force, A x = rows: a stage for the acceleration,
with Q and b; a correction for the change that removes a residual. This requires that all constraints are on positions,
so that accelerations and corrections have the same A.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._kernel import per_member
from ..._kinematic_map import rate
from ..._solve import AbstractMethod, solve
from ..._system import shifted
from .drift_correction import MethodPerLevel, assumption_failed_for, methods_at
from .evaluate import Evaluator
from .limits import has_single_loop
from .model_batch import ModelBatch, SingleModel
from .runge_kutta import StepResult, step
from .scaling import Scale
from .tableau import Tableau

CORRECTIONS = 2
"""Newton iterations on positions at the end of a step: they reduce an error h⁵ to h²⁰."""


def single_loop_step(
    each: SingleModel | ModelBatch,
    t: Array,
    h: Array,
    q: Float[Array, " nq *batch"],
    v: Float[Array, " n *batch"],
    method: AbstractMethod | MethodPerLevel,
    tableau: Tableau,
    projection: bool,
    scale: Scale,
) -> StepResult:
    """``step``, in the single-loop form where that is possible: it compiles faster."""
    step_function = _single_loop_step if has_single_loop(each.model, method, projection) else step
    return step_function(each, t, h, q, v, method, tableau, projection, scale)


def _single_loop_step(each, t, h, q, v, method, tableau, projection, scale):
    """The single-loop form of ``step``, with projection."""
    levels = method if isinstance(method, MethodPerLevel) else each(methods_at, t, q, v, method)
    state, split, stages, dtype = jnp.concatenate([q, v]), len(q), tableau.stages, q.dtype
    iterations = stages + CORRECTIONS + 1
    weigh = lambda weights, rates: jnp.tensordot(jnp.asarray(weights, dtype), rates, 1)
    # Up to the first correction an iteration starts from the state given by the rates so far; later ones start from
    # the end of the iteration before.
    weights = np.zeros((iterations, iterations))
    weights[:stages, :stages] = tableau.weights()
    weights[stages, :stages] = tableau.b
    times = np.concatenate([tableau.c, np.ones(iterations - stages)])

    def iterate(carry, inputs):
        rates, reached, fastest, phi_before, _, needs_fallback, _ = carry
        i, c, weights = inputs
        reached = jnp.where(i <= stages, state + h * weigh(weights, rates), reached)
        kind = i < stages, i < iterations - 1
        stage_rate, reached, phi, iteration_fallback, independence = each(
            _iteration, levels.acceleration, *kind, t + c * h, reached[:split], reached[split:]
        )
        fastest = jnp.maximum(fastest, jnp.where(i < stages, jnp.abs(stage_rate[:split]), 0))
        rates = jax.lax.dynamic_update_index_in_dim(rates, stage_rate, i, 0)
        phi_before = jnp.where(i == stages, phi, phi_before)
        return (rates, reached, fastest, phi_before, phi, needs_fallback | iteration_fallback, independence), None

    no_rates, false = jnp.zeros((iterations, *state.shape), dtype), jnp.zeros(q.shape[1:], bool)
    no_rows = jnp.zeros(scale.rows.shape, dtype)
    apart = jnp.full(q.shape[1:], jnp.inf, dtype)
    start = no_rates, state, jnp.zeros_like(q), no_rows, no_rows, false, apart
    inputs = jnp.arange(iterations), jnp.asarray(times, dtype), jnp.asarray(weights, dtype)
    (rates, reached, fastest, phi_before, phi_after, needs_fallback, independence), _ = jax.lax.scan(
        iterate, start, inputs
    )
    rates = rates[:stages]
    moved = (reached - state - h * weigh(tableau.b, rates))[:split]
    q, v, error = reached[:split], reached[split:], h * weigh(tableau.b_error, rates)
    moved, jumped, off = each(_correction_result, h, q, moved, fastest, phi_before, phi_after, scale)
    return StepResult(q, v, rates[0], error, moved, jumped, off, needs_fallback, jnp.zeros_like(off), independence)


def _iteration(model, method, stage, onto_positions, t, q, v):
    """One stage, or one correction of positions or of velocities.

    Returns (q̇, v̇), where v̇ is the correction in the latter case; the state that follows; φ; whether a fallback is
    needed; and the independence of the rows.
    """
    M, Q, rows = _evaluate(Evaluator.at(model, method), t, q, v)
    response = method.factorise(*jax.lax.stop_gradient((M, rows.A)))
    target = jnp.where(stage, rows.b, -jnp.where(onto_positions, rows.position, rows.velocity))
    x = solve(M, rows.A, jnp.where(stage, Q, 0), target, response)
    needs_fallback = response.needs_fallback | assumption_failed_for(method)
    needs_fallback = needs_fallback | ~jnp.all(jnp.isfinite(x)) if method.has_fallback else needs_fallback
    q_dot_and_x = jnp.concatenate([rate(model.kinematic_map, q, v), x])
    q = shifted(model.kinematic_map, q, jnp.where(~stage & onto_positions, x, 0))
    v = v + jnp.where(onto_positions, 0, x)
    return q_dot_and_x, jnp.concatenate([q, v]), rows.position, needs_fallback, response.independence(M, rows.A)


@per_member
def _evaluate(evaluator, t, q, v):
    return evaluator(t, q, v)


def _correction_result(model, h, q, moved, fastest, before, after, scale):
    """Change of q by the corrections (see ``CorrectionResult``), whether it is a jump, and whether q is off the
    constraints.

    ``before`` and ``after`` are the residuals before and after the corrections.
    """
    moved = jnp.where(scale.rounding_only(before), 0, moved)
    return moved, scale.is_jump(moved, h, fastest), scale.relative_violation(after) > scale.max_violation(q)
