"""One explicit Runge–Kutta step of a motion, or of each member of a batch."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..._check_terms import symmetric
from ..._kernel import per_member
from ..._kinematic_map import rate
from ..._solve import AbstractMethod, solve
from ..._system import kinematic_map_of
from .drift_correction import MethodPerLevel, assumption_failed_for, correct_drift, methods_at, same_at_every_level
from .inconsistent_rows import acceleration_only_rows, inconsistent_rows, pull_of
from .model_batch import ModelBatch, SingleModel
from .scaling import Scale
from .tableau import Tableau


class StepResult(NamedTuple):
    """Result of a step.

    Attributes
    ----------
    q, v
        State at the end (nq,), (n,); on the constraints if drift is corrected.
    began
        (q̇, v̇) at the start of the step.
    error
        Estimated error of (q, v).
    moved
        Change of q by the drift correction, see ``CorrectionResult``.
    jumped
        Whether that change is too large to be an error of the step.
    off
        Whether the state at the end is still off the constraints.
    needs_fallback
        Whether the method was not applicable.
    inconsistent
        Whether constraints contradicted each other at the start, in a way that shows only in accelerations.
    independence
        Independence of the rows at the end, see ``CorrectionResult``.
    """

    q: Float[Array, " nq"]
    v: Float[Array, " n"]
    began: Float[Array, " nq+n"]
    error: Float[Array, " nq+n"]
    moved: Float[Array, " nq"]
    jumped: Bool[Array, ""]
    off: Bool[Array, ""]
    needs_fallback: Bool[Array, ""]
    inconsistent: Bool[Array, ""]
    independence: Float[Array, ""]

    def beyond(self, method: AbstractMethod | MethodPerLevel) -> Bool[Array, "*batch"]:
        """Whether the step must be repeated by another method."""
        drops_rows = isinstance(method, MethodPerLevel) and method.drops_rows
        return self.needs_fallback | self.off if drops_rows else self.needs_fallback


def step(
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
    """An explicit Runge–Kutta step from t to t + h, with drift correction at its end if ``projection``.

    The stages are iterations of one loop, so that the acceleration is compiled once. The rank of the rows is determined
    at the start of the step, on the constraints, and holds for all stages and for the correction at the end. For a
    batch it must be given as ``MethodPerLevel``. A step of length zero projects the start onto the constraints.
    """
    if isinstance(method, MethodPerLevel):
        levels = method
    else:
        levels = each(methods_at, t, q, v, method) if projection else same_at_every_level(method)
    state, split, stages = jnp.concatenate([q, v]), len(q), tableau.stages
    weigh = lambda weights, rates: jnp.tensordot(jnp.asarray(weights, q.dtype), rates, 1)
    slope = partial(slope_at, projection=projection)

    def stage(carry, inputs):
        rates, fastest, needs_fallback, inconsistent = carry
        i, c, weights = inputs
        at_stage = state + h * weigh(weights, rates)
        stage_rate, stage_fallback, contradicts = each(
            slope, levels.acceleration, t + c * h, at_stage[:split], at_stage[split:]
        )
        rates = jax.lax.dynamic_update_index_in_dim(rates, stage_rate, i, 0)
        inconsistent = inconsistent | (contradicts & (i == 0))
        return (
            rates,
            jnp.maximum(fastest, jnp.abs(stage_rate[:split])),
            needs_fallback | stage_fallback,
            inconsistent,
        ), None

    false = jnp.zeros(q.shape[1:], bool)
    start = jnp.zeros((stages, *state.shape), q.dtype), jnp.zeros_like(q), false, false
    inputs = jnp.arange(stages), jnp.asarray(tableau.c, q.dtype), jnp.asarray(tableau.weights(), q.dtype)
    (rates, fastest, needs_fallback, inconsistent), _ = jax.lax.scan(stage, start, inputs)

    end, error = state + h * weigh(tableau.b, rates), h * weigh(tableau.b_error, rates)
    q, v = end[:split], end[split:]
    if not projection:
        apart = jnp.full(q.shape[1:], jnp.inf, q.dtype)
        return StepResult(q, v, rates[0], error, jnp.zeros_like(q), false, false, needs_fallback, inconsistent, apart)
    end = each(_corrected_end, levels, t + h, h, q, v, fastest, scale)
    q, v, moved, jumped, off, end_fallback, independence = end
    fallback = needs_fallback | end_fallback
    return StepResult(q, v, rates[0], error, moved, jumped, off, fallback, inconsistent, independence)


def _corrected_end(model, levels, t, h, q, v, fastest, scale):
    """The end of a step, projected onto the constraints: see ``StepResult``."""
    q, v, off, needs_fallback, moved, independence = correct_drift(model, t, q, v, levels, scale)
    return q, v, moved, scale.is_jump(moved, h, fastest), off, needs_fallback, independence


def slope_at(
    model: Any, method: AbstractMethod, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], projection: bool
) -> tuple[Float[Array, " nq+n"], Bool[Array, ""], Bool[Array, ""]]:
    """(q̇, v̇); whether the method needs a fallback there; whether constraints contradict each other."""
    result = acceleration(model, t, q, v, method, projection)
    return (
        jnp.concatenate([rate(kinematic_map_of(model), q, v), result.v_rate]),
        result.needs_fallback,
        result.inconsistent,
    )


class AccelerationResult(NamedTuple):
    """Acceleration of the constrained motion.

    Attributes
    ----------
    v_rate
        v̇ (n,).
    needs_fallback
        Whether the method was not applicable.
    inconsistent
        Whether the constraints contradict each other, in a way that shows only in accelerations, so that v̇
        satisfies them only in the least-squares sense.
    """

    v_rate: Float[Array, " n"]
    needs_fallback: Bool[Array, ""]
    inconsistent: Bool[Array, ""]


@per_member
def acceleration(
    model: Any,
    t: Array,
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
    method: AbstractMethod,
    projection: bool = True,
) -> AccelerationResult:
    """The acceleration of the constrained motion at one state. ``projection``: drift of q and v is corrected."""
    terms = model(t, q, v).in_one_precision()
    M = symmetric(terms.M)
    response = method.factorise(*jax.lax.stop_gradient((M, terms.A)))
    # The non-ideal force c enters linearly, so it is added to Q: see ``constrained_motion``.
    force = terms.Q if terms.c is None else terms.Q + terms.c
    v_rate = solve(M, terms.A, force, terms.b, response)
    inconsistent = jnp.asarray(False)
    relevant = False if response.assumes_consistent else acceleration_only_rows(model, projection, t, q, v)
    if relevant is not False:
        contradicts = inconsistent_rows(terms, v_rate, method, pull_of(model, t, q, v))
        inconsistent = jax.lax.stop_gradient(jnp.any(contradicts if relevant is True else contradicts & relevant))
    return AccelerationResult(v_rate, response.needs_fallback | assumption_failed_for(method), inconsistent)
