"""A step that starts at a singular pose: rows are dependent there, but independent elsewhere on the motion.

There A q̈ = b does not determine the accelerations, although they are unique before and after the pose. With u the
combinations of rows that vanish, uᵀA = 0, the limit of the acceleration follows from the third derivative of uᵀφ along
the motion:

    3 uᵀ Ȧ q̈ = −uᵀ φ⃛,   φ⃛ with q̈ = 0.

That is the first stage of a Runge–Kutta step; the other stages are away from the pose. How a motion crosses a singular
pose between steps is in ``cross_singular_pose``.
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
from .row_noise import classify_rows

AHEAD = 1 / 16
"""Part of a step, after which the rows are checked for independence again."""

TRIES = 64
"""Maximum number of step sizes that are tried."""


class StepFromPose(NamedTuple):
    """Step from a singular pose: its length ``h`` [s], the state (q, v) at its end, and the next step size
    ``following``.
    """

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
) -> StepFromPose | None:
    """A step of length h, or shorter where an adaptive step must be.

    Returns None if (q, v) is not a singular pose, if the rows of positions are dependent elsewhere too, or if the kind
    of constraints is not supported.
    """
    model = problem.model
    if not has_understood_rows(problem) or h <= 0:
        return None
    dtype = q.dtype
    rtol = 10 * float(np.finfo(dtype).eps) ** 0.5
    at = jax.device_put(np.asarray(t, dtype))
    M, A = _rows_without_noise(model, at, q, v)
    rows_at_pose = independent_rows(M, A, rtol)
    if rows_at_pose is None or len(rows_at_pose) == len(A):
        return None
    rows_ahead = independent_rows(*_rows_without_noise(model, at + AHEAD * h, q + AHEAD * h * v, v), rtol)
    if rows_ahead is None or len(rows_ahead) <= len(rows_at_pose):
        return None
    acceleration = _acceleration_limit(model, problem.method, at, q, v, M, A, rtol)
    if acceleration is None:
        return None
    for _ in range(TRIES):
        length = jax.device_put(np.asarray(h, dtype))
        stepped, control = step_from(problem, at, length, q, v, acceleration, scale)
        if problem.dt is not None or float(control.error) <= 1:
            return StepFromPose(h, stepped.q, stepped.v, h * float(control.factor)) if is_sound(stepped) else None
        h *= min(float(control.factor), 0.9)
        if not h > SMALLEST_STEP * float(scale.t):
            break
    return None


def has_understood_rows(problem: Problem) -> bool:
    """Whether all constraints are on positions, q̇ = v, and drift is corrected: the supported kind."""
    model = problem.model
    if not isinstance(model, AbstractSystem) or model.kinematic_map is not None:
        return False
    return has_single_loop(model, problem.method, problem.projection, least=1)


def step_from(
    problem: Problem,
    t: Array,
    h: Array,
    q: Float[Array, " n"],
    v: Float[Array, " n"],
    acceleration: Float[Array, " n"],
    scale: Scale,
) -> tuple[StepResult, ErrorControl]:
    """A Runge–Kutta step of h from a state with known acceleration, and its error estimate."""
    tolerance = problem.tolerance(scale)
    return _step(problem.model, t, h, q, v, acceleration, problem.method, problem.tableau, scale, tolerance)


def is_sound(stepped: StepResult) -> bool:
    """Whether a step ended on the constraints, without a jump."""
    return bool(np.all(np.isfinite(np.asarray(stepped.q)))) and not bool(stepped.off | stepped.jumped)


@jit_unoptimised
def acceleration_at(
    model: AbstractSystem, method: AbstractMethod, t: Array, q: Float[Array, " n"], v: Float[Array, " n"]
) -> Float[Array, " n"]:
    """The acceleration of the constrained motion."""
    return motion_by(method, model(t, q, v))[0].acceleration


@jit_unoptimised
def _rows(model, t, q, v):
    """M, and A of positions."""
    terms = model.passive(t, q, v)
    return (terms.M + terms.M.T) / 2, [model.position_slope(t, q, v)]


def _rows_without_noise(model, t, q, v):
    M, rows = _rows(model, t, q, v)
    M = np.asarray(M)
    return M, classify_rows(_rows, model, t, q, v, M, rows)[0].rows


def _acceleration_limit(model, method, t, q, v, M, A, rtol):
    """The limit of the acceleration at a singular pose, None if no motion through it has these velocities."""
    root = np.linalg.cholesky(M)
    left, sizes, _ = np.linalg.svd(np.linalg.solve(root, A.T).T)
    vanishing = left[:, np.sum(sizes > rtol * sizes[0]) :]
    terms, A_dot, phi_3 = _derivatives(model, t, q, v)
    projector, b = vanishing @ vanishing.T, np.where(np.any(A != 0, axis=1), np.asarray(terms.b), 0)
    A_dot, phi_3 = np.asarray(A_dot), np.asarray(phi_3)
    if np.any(np.abs(vanishing.T @ b) > rtol * np.linalg.norm(np.abs(A_dot) @ np.abs(np.asarray(v)))):
        return None
    extended_A, extended_b = np.concatenate([A, 3 * projector @ A_dot]), np.concatenate([b, -projector @ phi_3])
    extended_A, extended_b = jax.device_put((extended_A, extended_b))
    terms = Terms(terms.M, terms.Q, extended_A, extended_b, terms.c)
    acceleration = _acceleration(terms, method)
    return acceleration if np.all(np.isfinite(np.asarray(acceleration))) else None


@jit_unoptimised
def _acceleration(terms, method):
    return motion_by(method, terms)[0].acceleration


@jit_unoptimised
def _derivatives(model, t, q, v):
    """Terms; Ȧ; and the third derivative of φ along a straight line."""
    along = lambda f: lambda s: jax.jvp(f, (s,), (jnp.ones_like(s),))[1]
    phi = lambda s: model.position_residual(t + s, q + s * v)
    zero = jnp.zeros_like(t)
    A_dot = along(lambda s: model.position_slope(t + s, q + s * v, v))(zero)
    return model(t, q, v), A_dot, along(along(along(phi)))(zero)


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
    """A Runge–Kutta step whose first stage is given by ``acceleration``."""
    state = jnp.concatenate([q, v])
    weigh = lambda weights, rates: jnp.tensordot(jnp.asarray(weights, q.dtype), rates, 1)
    began = jnp.concatenate([v, acceleration])

    def stage(rates, stages):
        i, c, weights = stages
        at_stage = state + h * weigh(weights, rates)
        stage_rate, _, _ = slope_at(model, method, t + c * h, at_stage[: q.size], at_stage[q.size :], projection=True)
        return jax.lax.dynamic_update_index_in_dim(rates, stage_rate, i, 0), None

    rates = jnp.zeros((tableau.stages, state.size), q.dtype).at[0].set(began)
    stages = jnp.arange(tableau.stages), jnp.asarray(tableau.c, q.dtype), jnp.asarray(tableau.weights(), q.dtype)
    rates, _ = jax.lax.scan(stage, rates, jax.tree.map(lambda x: x[1:], stages))
    end, error = state + h * weigh(tableau.b, rates), h * weigh(tableau.b_error, rates)
    corrected = correct_drift(model, t + h, end[: q.size], end[q.size :], same_at_every_level(method), scale)
    fastest = jnp.max(jnp.abs(rates[:, : q.size]), axis=0)
    jumped = scale.is_jump(corrected.moved, h, fastest)
    false = jnp.asarray(False)
    stepped = StepResult(
        corrected.q,
        corrected.v,
        began,
        error,
        corrected.moved,
        jumped,
        corrected.off,
        corrected.needs_fallback,
        false,
        corrected.independence,
    )
    return stepped, control_error(q, v, stepped, tableau, tolerance, scale, h, false)
