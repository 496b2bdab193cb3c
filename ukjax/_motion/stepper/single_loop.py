"""A step in which everything stands once: quick to compile.

Its stages and the corrections at its end are turns of one loop. Each looks at the system at one state and solves
M x + Aᵀν = force, A x = rows, a stage for accelerations, with Q and b, a correction for what takes a residual away.
That is possible where all constraints are positions', so that accelerations and corrections have the same A.
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
"""Newton's steps on positions at a step's end: they take an error h⁵ to h²⁰."""


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
    """``step`` in the form that is compiled soonest."""
    take = _single_loop_step if has_single_loop(each.model, method, projection) else step
    return take(each, t, h, q, v, method, tableau, projection, scale)


def _single_loop_step(each, t, h, q, v, method, tableau, projection, scale):
    """What ``step`` does with projection."""
    levels = method if isinstance(method, MethodPerLevel) else each(methods_at, t, q, v, method)
    state, split, stages, dtype = jnp.concatenate([q, v]), len(q), tableau.stages, q.dtype
    turns = stages + CORRECTIONS + 1
    weigh = lambda weights, rates: jnp.tensordot(jnp.asarray(weights, dtype), rates, 1)
    # Up to the first correction a turn begins where the rates so far lead, the later ones where the one before ended.
    weights = np.zeros((turns, turns))
    weights[:stages, :stages] = tableau.weights()
    weights[stages, :stages] = tableau.b
    times = np.concatenate([tableau.c, np.ones(turns - stages)])

    def turn(carry, given):
        rates, reached, fastest, before, _, needs_fallback = carry
        i, c, weights = given
        reached = jnp.where(i <= stages, state + h * weigh(weights, rates), reached)
        which = i < stages, i < turns - 1
        now, reached, position, doubtful = each(
            _turn, levels.acceleration, *which, t + c * h, reached[:split], reached[split:]
        )
        fastest = jnp.maximum(fastest, jnp.where(i < stages, jnp.abs(now[:split]), 0))
        rates = jax.lax.dynamic_update_index_in_dim(rates, now, i, 0)
        before = jnp.where(i == stages, position, before)
        return (rates, reached, fastest, before, position, needs_fallback | doubtful), None

    nothing, none = jnp.zeros((turns, *state.shape), dtype), jnp.zeros(q.shape[1:], bool)
    none_yet = jnp.zeros(scale.rows.shape, dtype)
    start = nothing, state, jnp.zeros_like(q), none_yet, none_yet, none
    given = jnp.arange(turns), jnp.asarray(times, dtype), jnp.asarray(weights, dtype)
    (rates, reached, fastest, before, after, needs_fallback), _ = jax.lax.scan(turn, start, given)
    rates = rates[:stages]
    moved = (reached - state - h * weigh(tableau.b, rates))[:split]
    q, v, error = reached[:split], reached[split:], h * weigh(tableau.b_error, rates)
    moved, jumped, off = each(_correction_result, h, q, moved, fastest, before, after, scale)
    return StepResult(q, v, rates[0], error, moved, jumped, off, needs_fallback, jnp.zeros_like(off))


def _turn(model, method, stage, onto_positions, t, q, v):
    """A stage, or a correction of positions or of velocities: (q̇, v̇), or what takes a residual away; where that leads;
    φ there; and whether that may be wrong."""
    M, Q, rows = _evaluate(Evaluator.at(model, method), t, q, v)
    response = method.factorise(*jax.lax.stop_gradient((M, rows.A)))
    missing = jnp.where(stage, rows.b, -jnp.where(onto_positions, rows.position, rows.velocity))
    x = solve(M, rows.A, jnp.where(stage, Q, 0), missing, response)
    doubtful = response.needs_fallback | assumption_failed_for(method)
    doubtful = doubtful | ~jnp.all(jnp.isfinite(x)) if method.has_fallback else doubtful
    now = jnp.concatenate([rate(model.kinematic_map, q, v), x])
    q = shifted(model.kinematic_map, q, jnp.where(~stage & onto_positions, x, 0))
    return now, jnp.concatenate([q, v + jnp.where(onto_positions, 0, x)]), rows.position, doubtful


@per_member
def _evaluate(look, t, q, v):
    return look(t, q, v)


def _correction_result(model, h, q, moved, fastest, before, after, scale):
    """How far the corrections moved q (see ``Corrected``), whether that is a leap, and whether q is off the
    constraints: by the residuals ``before`` and ``after`` the corrections."""
    moved = jnp.where(scale.rounding_only(before), 0, moved)
    return moved, scale.is_jump(moved, h, fastest), scale.missed(after) > scale.kept(q)
