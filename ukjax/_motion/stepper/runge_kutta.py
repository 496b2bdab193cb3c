"""One step of a motion, or of each of a batch: what every loop repeats."""

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
    """Where a step leads: ``q`` and ``v`` (n,), on the constraints if it ends there; (q̇, v̇) where it ``began``; the
    ``error`` to be expected; how far q was ``moved`` onto the constraints (see ``Corrected``), whether it ``jumped`` so,
    and whether it is ``off`` them all the same; whether anything was ``needs_fallback``, beyond what its method can do; and
    whether constraints were ``inconsistent`` where it began, and nothing else shows it."""

    q: Float[Array, " nq"]
    v: Float[Array, " n"]
    began: Float[Array, " nq+n"]
    error: Float[Array, " nq+n"]
    moved: Float[Array, " nq"]
    jumped: Bool[Array, ""]
    off: Bool[Array, ""]
    needs_fallback: Bool[Array, ""]
    inconsistent: Bool[Array, ""]

    def beyond(self, method: AbstractMethod | MethodPerLevel) -> Bool[Array, "*batch"]:
        """Whether the step is to be done by another method."""
        watched = isinstance(method, MethodPerLevel) and method.drops_rows
        return self.needs_fallback | self.off if watched else self.needs_fallback


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
    """An explicit Runge–Kutta step from t to t + h: stages are turns of one loop, in which the acceleration stands
    once, however many there are.

    The rank of the rows, unless it is known at all ``MethodPerLevel``, as it must be for a batch, is found where the step
    starts, on the constraints, and holds for its stages and the correction at its end. A step of length zero leads from
    a start as it was given onto the constraints.
    """
    if isinstance(method, MethodPerLevel):
        levels = method
    else:
        levels = each(methods_at, t, q, v, method) if projection else same_at_every_level(method)
    state, split, stages = jnp.concatenate([q, v]), len(q), tableau.stages
    weigh = lambda weights, rates: jnp.tensordot(jnp.asarray(weights, q.dtype), rates, 1)
    look = partial(slope_at, projection=projection)

    def stage(found, given):
        rates, fastest, needs_fallback, inconsistent = found
        i, c, weights = given
        there = state + h * weigh(weights, rates)
        now, doubt, against = each(look, levels.acceleration, t + c * h, there[:split], there[split:])
        rates = jax.lax.dynamic_update_index_in_dim(rates, now, i, 0)
        inconsistent = inconsistent | (against & (i == 0))
        return (rates, jnp.maximum(fastest, jnp.abs(now[:split])), needs_fallback | doubt, inconsistent), None

    none = jnp.zeros(q.shape[1:], bool)
    nothing = jnp.zeros((stages, *state.shape), q.dtype), jnp.zeros_like(q), none, none
    given = jnp.arange(stages), jnp.asarray(tableau.c, q.dtype), jnp.asarray(tableau.weights(), q.dtype)
    (rates, fastest, needs_fallback, inconsistent), _ = jax.lax.scan(stage, nothing, given)

    end, error = state + h * weigh(tableau.b, rates), h * weigh(tableau.b_error, rates)
    q, v = end[:split], end[split:]
    if not projection:
        return StepResult(q, v, rates[0], error, jnp.zeros_like(q), none, none, needs_fallback, inconsistent)
    q, v, moved, jumped, off, doubtful = each(_ended, levels, t + h, h, q, v, fastest, scale)
    return StepResult(q, v, rates[0], error, moved, jumped, off, needs_fallback | doubtful, inconsistent)


def _ended(model, levels, t, h, q, v, fastest, scale):
    """The end of a step, on the constraints: see ``StepResult``."""
    q, v, off, doubtful, moved = correct_drift(model, t, q, v, levels, scale)
    return q, v, moved, scale.is_jump(moved, h, fastest), off, doubtful


def slope_at(
    model: Any, method: AbstractMethod, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], projection: bool
) -> tuple[Float[Array, " nq+n"], Bool[Array, ""], Bool[Array, ""]]:
    """(q̇, v̇); whether the method may be wrong about it; whether constraints contradict each other."""
    found = acceleration(model, t, q, v, method, projection)
    return jnp.concatenate([rate(kinematic_map_of(model), q, v), found.v_rate]), found.doubt, found.inconsistent


class AccelerationResult(NamedTuple):
    """v̇ of the constrained motion; whether the method may be wrong about it; whether it meets the constraints only as
    nearly as can be, since they contradict each other, and nothing but accelerations shows it."""

    v_rate: Float[Array, " n"]
    doubt: Bool[Array, ""]
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
    """The constrained motion at one state; by ``projection`` positions and velocities are brought back."""
    terms = model(t, q, v).in_one_precision()
    M = symmetric(terms.M)
    response = method.factorise(*jax.lax.stop_gradient((M, terms.A)))
    # What the constraints do with c besides is linear in it: see ``constrained_motion``.
    force = terms.Q if terms.c is None else terms.Q + terms.c
    v_rate = solve(M, terms.A, force, terms.b, response)
    inconsistent = jnp.asarray(False)
    rows = False if response.assumes_consistent else acceleration_only_rows(model, projection, t, q, v)
    if rows is not False:
        against = inconsistent_rows(terms, v_rate, method, pull_of(model, t, q, v))
        inconsistent = jax.lax.stop_gradient(jnp.any(against if rows is True else against & rows))
    return AccelerationResult(v_rate, response.needs_fallback | assumption_failed_for(method), inconsistent)
