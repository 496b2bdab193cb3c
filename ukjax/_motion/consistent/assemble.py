"""Assembly: a point on the constraints from any distance, by NumPy."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._check_terms import complaint_of_mass
from ..._kernel import per_member
from ..._labels import named_coordinates
from ..._run.compile import jit_unoptimised
from ..._solve import coordinate_scale_by_numpy, rounding
from ..._system import AbstractSystem, dynamics_of
from ..fallback.row_noise import changed_by_rounding
from ..stepper.limits import MAX_SIZE_OF_SINGLE_KERNEL
from .local_chart import LocalChart, chart_point

MAX_ITERATIONS = 200

BESIDE = 0.01
"""Distance of the second start, relative to the largest coordinate, in units of unit mass."""

TIMES = 8
"""A residual counts as rounding if it is at most this many times the change caused by a few roundings."""


def assembled(
    system: AbstractSystem, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]
) -> Float[Array, " nq"] | None:
    """A point on the constraints, by trust-region least squares from q; None if none is found.

    The point is not the nearest one, but the search may start far away.
    """
    if system.kinematic_map is not None:
        chart = LocalChart(system, q)
        x = assembled(chart, t, jnp.zeros_like(v), v)
        return None if x is None else chart_point(chart, x)
    eps, dtype = float(np.finfo(q.dtype).eps), q.dtype
    residual, _, M, A, _ = at = at_state(system, t, q, v)
    if not all(np.all(np.isfinite(x)) for x in at) or complaint_of_mass(M):
        return None
    unit = coordinate_scale_by_numpy(M)

    def evaluate(x):
        residual, _, _, A, _ = at_state(system, t, jax.device_put(np.asarray(x, dtype)), v)
        return residual, A

    if residual.size:
        q = jax.device_put(np.asarray(by_least_squares(evaluate, np.asarray(q, float), unit, eps), dtype))
    remaining = np.linalg.norm(at_state(system, t, q, v)[0])
    return q if remaining <= eps**0.5 * max(np.linalg.norm(residual), np.max(unit)) else None


def by_least_squares(
    evaluate: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    x: Float[np.ndarray, " n"],
    unit: Float[np.ndarray, " n"],
    eps: float,
) -> Float[np.ndarray, " n"]:
    """A point near x where the norm of a residual is least; x if the residual is not finite.

    ``evaluate`` returns the residual and its Jacobian. The first step of SciPy's solver may be as long as x. It may end
    exactly in the centre of a circle, where slopes vanish. So if the residual does not become 0, the solver starts
    again from a point slightly beside x.
    """
    from scipy.optimize import least_squares  # slow import, not needed for every start

    slope: Any = lambda x: evaluate(x)[1]
    residual = lambda x: evaluate(x)[0]
    norm = lambda x: float(np.linalg.norm(residual(x)))

    def minimise(start):
        return least_squares(
            residual, start, slope, x_scale=unit, xtol=eps, ftol=eps, gtol=eps, max_nfev=MAX_ITERATIONS
        ).x

    try:
        solution = minimise(x)
        if norm(solution) <= eps**0.5 * norm(x):
            return solution
        offset = BESIDE * np.max(np.abs(x) / unit, initial=0) * unit * np.random.default_rng(0).normal(size=x.size)
        return min(solution, minimise(x + offset), key=norm)
    except ValueError:  # rows are not finite at some iterate
        return x


def consistent(
    system: AbstractSystem, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]
) -> tuple[Float[Array, " nq"], Float[Array, " n"]] | None:
    """A point on the constraints, from any distance, and the nearest velocities there, by NumPy.

    Returns None unless the remaining residuals are certainly rounding. Only one small program is compiled.
    """
    if not system.enforced:
        return q, v
    if system.kinematic_map is not None:
        chart = LocalChart(system, q)
        is_consistent = consistent(chart, t, jnp.zeros_like(v), v)
        return None if is_consistent is None else (chart_point(chart, is_consistent[0]), is_consistent[1])
    found = assembled(system, t, q, v)
    if found is None:
        return None
    x, y = np.asarray(found, float), np.asarray(v, float)
    evaluate = lambda: at_state(system, t, *(jax.device_put(np.asarray(z, q.dtype)) for z in (x, y)))
    tolerance = float(np.finfo(q.dtype).eps) ** 0.75
    try:
        for _ in range(2):
            residual, _, M, A, _ = evaluate()
            x = x + (step := least_change(M, A, -residual))
        sizes = _sizes(system, M, x)
        is_consistent = np.all(np.abs(step) <= tolerance * sizes)
        for _ in range(2):
            _, residual, M, _, A = evaluate()
            y = y + least_change(M, A, -residual)
    except np.linalg.LinAlgError:
        return None
    positions, velocities, _, A, B = evaluate()
    q, v = jax.device_put((np.asarray(x, q.dtype), np.asarray(y, v.dtype)))
    found = (positions, tolerance * (np.abs(A) @ sizes)), (velocities, tolerance * (np.abs(B) @ np.abs(y)))
    if is_consistent and not all(np.all(np.abs(residual) <= allowed) for residual, allowed in found):
        # Where the slope of a row vanishes, the slope does not bound the rounding error.
        changes = changed_by_rounding(lambda *state: at_state(*state)[:2], system, t, q, v, M)
        is_consistent = all(
            np.all(np.abs(residual) <= np.maximum(allowed, TIMES * change))
            for (residual, allowed), change in zip(found, changes, strict=True)
        )
    return (q, v) if is_consistent else None


def least_change(M: np.ndarray, A: np.ndarray, missing: np.ndarray) -> Float[np.ndarray, " n"]:
    """The change x with A x = ``missing`` and smallest xᵀ M x."""
    if not missing.size:
        return np.zeros(len(M))
    L = np.linalg.cholesky(M)
    B = np.linalg.solve(L, _without_rounding(A).T).T
    # Rows in metres and rows in radians may differ by any factor: unscaled, rcond would remove the small ones.
    length = np.linalg.norm(B, axis=1)
    scale = np.divide(1, length, out=np.zeros_like(length), where=length > 0)
    solution = np.linalg.lstsq(scale[:, None] * B, scale * missing, rcond=float(np.finfo(M.dtype).eps) ** 0.5)[0]
    return np.linalg.solve(L.T, solution)


def _sizes(system, M, q):
    """Reference size of each coordinate: a radian, or the distance that it moves; the size of q if nothing turns."""
    unit = np.sqrt(1 / np.diagonal(M))
    turns = np.array([name in ("rad", "") for _, name in named_coordinates(system, len(q))])
    largest = np.max(np.abs(q) / unit)
    return np.maximum(unit * (largest if not np.any(turns) else 1 / np.max(unit[turns])), np.abs(q))


def _without_rounding(A):
    """A with rows that are as small as rounding of 0 set to 0."""
    length = np.linalg.norm(A, axis=1, keepdims=True)
    return np.where(length > rounding(A.dtype) * np.max(length, initial=0), A, 0)


def at_state(system: AbstractSystem, t: Array, q: Array, v: Array) -> tuple[np.ndarray, ...]:
    """φ, (φ̇, ψ), M, ∂φ/∂q and ∂(φ̇, ψ)/∂v. Without masses M is the identity: a mechanism without masses has poses,
    too."""
    phi, rate, M, A, B = (np.asarray(x) for x in _rows(system, t, q, v))
    return phi, rate, M if M.any() else np.eye(len(M)), A, B


@jit_unoptimised
def _rows(system, t, q, v):
    small = q.size <= MAX_SIZE_OF_SINGLE_KERNEL
    return (per_member(_all_rows) if small else _all_rows)(system, t, q, v)  # a kernel compiles in a third of the time


def _all_rows(system, t, q, v):
    return (
        system.position_residual(t, q),
        system.velocity_residual(t, q, v),
        dynamics_of(system).mass(t, q, v),
        system.position_slope(t, q, v),
        system.velocity_slope(t, q, v),
    )
