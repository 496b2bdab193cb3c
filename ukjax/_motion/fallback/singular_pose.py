"""A step that begins at a singular pose, where rows that are independent everywhere else on the motion are dependent.

There A q̈ = b leaves accelerations open that are unique before and after. With u the combinations of rows that vanish,
uᵀA = 0, the limit of the acceleration follows from the third derivative of uᵀφ along the motion:

    3 uᵀ Ȧ q̈ = −uᵀ φ⃛,   φ⃛ with q̈ = 0.

That is the first stage of a Runge–Kutta step; the others are away from the pose. How a motion comes to such a pose
and past it is in ``cross_singular_pose``.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._equation import motion_by
from ..._run.compile import jit_unoptimised
from ..._solve import AbstractMethod, independent_rows
from ..._system import AbstractSystem
from ..._terms import Terms
from ..problem import SMALLEST_STEP, Problem
from ..stepper.drift_correction import correct_drift, same_at_every_level
from ..stepper.error_control import ErrorControl, control_error
from ..stepper.limits import has_single_loop
from ..stepper.runge_kutta import StepResult, slope_at
from ..stepper.scaling import Scale
from ..stepper.tableau import Tableau
from .row_noise import classify_rows as judge_rows

AHEAD = 1 / 16
"""Of a step: so far ahead it is looked whether the rows are independent again."""

TRIES = 64
"""Lengths of a step that are tried."""


class Left(NamedTuple):
    """The length ``h`` of a step from a singular pose, where it leads, and the length for the ``following`` one."""

    h: float
    q: Float[Array, " nq"]
    v: Float[Array, " n"]
    following: float


def step_from_singular_pose(
    problem: Problem,
    t: Array | np.ndarray | np.generic,
    h: float,
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
    scale: Scale,
) -> Left | None:
    """A step of h, or of less where adaptive ones must be shorter; None where (q, v) is no singular pose of a motion
    along which the rows of positions are independent otherwise, or none that is understood."""
    model = problem.model
    if not has_understood_rows(problem) or h <= 0:
        return None
    dtype = q.dtype
    rtol = 10 * float(np.finfo(dtype).eps) ** 0.5
    at = jax.device_put(np.asarray(t, dtype))
    M, A = _rows_but_for_rounding(model, at, q, v)
    here = independent_rows(M, A, rtol)
    ahead = independent_rows(*_rows_but_for_rounding(model, at + AHEAD * h, q + AHEAD * h * v, v), rtol)
    if here is None or ahead is None or len(ahead) <= len(here):
        return None
    acceleration = _limit(model, problem.method, at, q, v, M, A, rtol)
    if acceleration is None:
        return None
    for _ in range(TRIES):
        length = jax.device_put(np.asarray(h, dtype))
        stepped, judged = step_from(problem, at, length, q, v, acceleration, scale)
        if problem.dt is not None or float(judged.error) <= 1:
            return Left(h, stepped.q, stepped.v, h * float(judged.factor)) if is_sound(stepped) else None
        h *= min(float(judged.factor), 0.9)
        if not h > SMALLEST_STEP * float(scale.t):
            break
    return None


def has_understood_rows(problem: Problem) -> bool:
    """Whether all constraints are of positions q that have the rates v, and are corrected after each step."""
    model = problem.model
    if not isinstance(model, AbstractSystem) or model.kinematic_map is not None:
        return False
    return has_single_loop(model, problem.method, problem.projection) and bool(model.constraints)


def step_from(
    problem: Problem,
    t: Array,
    h: Array,
    q: Float[Array, " n"],
    v: Float[Array, " n"],
    acceleration: Float[Array, " n"],
    scale: Scale,
) -> tuple[StepResult, ErrorControl]:
    """A Runge–Kutta step of h from a state whose acceleration is given, and its error."""
    tolerance = problem.tolerance(scale)
    return _step(problem.model, t, h, q, v, acceleration, problem.method, problem.tableau, scale, tolerance)


def is_sound(stepped: StepResult) -> bool:
    """Whether a step ended on the constraints."""
    return bool(np.all(np.isfinite(np.asarray(stepped.q)))) and not bool(stepped.off | stepped.jumped)


@jit_unoptimised
def acceleration_at(
    model: AbstractSystem, method: AbstractMethod, t: Array, q: Float[Array, " n"], v: Float[Array, " n"]
) -> Float[Array, " n"]:
    """The acceleration of the constrained motion."""
    return motion_by(method, model(t, q, v))[0].acceleration


@jit_unoptimised
def _rows(model, t, q, v):
    """M and A of positions."""
    terms = model.passive(t, q, v)
    return (terms.M + terms.M.T) / 2, [model.position_slope(t, q, v)]


def _rows_but_for_rounding(model, t, q, v):
    M, rows = _rows(model, t, q, v)
    M = np.asarray(M)
    return M, judge_rows(_rows, model, t, q, v, M, rows)[0].rows


def _limit(model, method, t, q, v, M, A, rtol):
    """The acceleration at a singular pose, None if the velocities belong to no motion through it."""
    root = np.linalg.cholesky(M)
    left, sizes, _ = np.linalg.svd(np.linalg.solve(root, A.T).T)
    vanishing = left[:, np.sum(sizes > rtol * sizes[0]) :]
    terms, change, third = _derivatives(model, t, q, v)
    kept, b = vanishing @ vanishing.T, np.where(np.any(A != 0, axis=1), np.asarray(terms.b), 0)
    change, third = np.asarray(change), np.asarray(third)
    if np.any(np.abs(vanishing.T @ b) > rtol * np.linalg.norm(np.abs(change) @ np.abs(np.asarray(v)))):
        return None
    rows, of_rows = np.concatenate([A, 3 * kept @ change]), np.concatenate([b, -kept @ third])
    rows, of_rows = jax.device_put((rows, of_rows))
    terms = Terms(terms.M, terms.Q, rows, of_rows, terms.c)
    acceleration = _acceleration(terms, method)
    return acceleration if np.all(np.isfinite(np.asarray(acceleration))) else None


@jit_unoptimised
def _acceleration(terms, method):
    return motion_by(method, terms)[0].acceleration


@jit_unoptimised
def _derivatives(model, t, q, v):
    """Terms; Ȧ; and the third derivative of φ on a straight line."""
    along = lambda f: lambda s: jax.jvp(f, (s,), (jnp.ones_like(s),))[1]
    phi = lambda s: model.position_residual(t + s, q + s * v)
    zero = jnp.zeros_like(t)
    change = along(lambda s: model.position_slope(t + s, q + s * v, v))(zero)
    return model(t, q, v), change, along(along(along(phi)))(zero)


@jit_unoptimised
def _step(
    model: AbstractSystem,
    t: Array,
    h: Array,
    q: Array,
    v: Array,
    acceleration: Array,
    method: AbstractMethod,
    tableau: Tableau,
    scale: Scale,
    tolerance,
) -> tuple[StepResult, ErrorControl]:
    """A Runge–Kutta step whose first stage is given."""
    state = jnp.concatenate([q, v])
    weigh = lambda weights, rates: jnp.tensordot(jnp.asarray(weights, q.dtype), rates, 1)
    began = jnp.concatenate([v, acceleration])

    def stage(rates, given):
        i, c, weights = given
        there = state + h * weigh(weights, rates)
        now, _, _ = slope_at(model, method, t + c * h, there[: q.size], there[q.size :], projection=True)
        return jax.lax.dynamic_update_index_in_dim(rates, now, i, 0), None

    rates = jnp.zeros((tableau.stages, state.size), q.dtype).at[0].set(began)
    given = jnp.arange(tableau.stages), jnp.asarray(tableau.c, q.dtype), jnp.asarray(tableau.weights(), q.dtype)
    rates, _ = jax.lax.scan(stage, rates, jax.tree.map(lambda x: x[1:], given))
    end, error = state + h * weigh(tableau.b, rates), h * weigh(tableau.b_error, rates)
    found = correct_drift(model, t + h, end[: q.size], end[q.size :], same_at_every_level(method), scale)
    fastest = jnp.max(jnp.abs(rates[:, : q.size]), axis=0)
    jumped = scale.is_jump(found.moved, h, fastest)
    none = jnp.asarray(False)
    stepped = StepResult(found.q, found.v, began, error, found.moved, jumped, found.off, found.needs_fallback, none)
    return stepped, control_error(q, v, stepped, tableau, tolerance, scale, h, none)
