"""Onto the constraints from afar, by NumPy."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._check_terms import complaint_of_mass
from ..._labels import named_coordinates
from ..._run.compile import jit_unoptimised
from ..._solve import coordinate_scale_by_numpy, rounding
from ..._system import AbstractSystem, dynamics_of
from ..fallback.row_noise import changed_by_rounding
from .local_chart import LocalChart, leads

MOST = 200

BESIDE = 0.01
"""Of the largest coordinate, in unit masses: so far away is a second start."""

TIMES = 8
"""A residual of so many times what a few roundings change is nothing but rounding."""


def assembled(
    system: AbstractSystem, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]
) -> Float[Array, " nq"] | None:
    """A point on the constraints, by least squares from q, in a region of trust; None if none is found. Not the nearest
    point, but one that is found from afar."""
    if system.kinematic_map is not None:
        around = LocalChart(system, q)
        x = assembled(around, t, jnp.zeros_like(v), v)
        return None if x is None else leads(around, x)
    eps, dtype = float(np.finfo(q.dtype).eps), q.dtype
    missed, _, M, A, _ = at = at_state(system, t, q, v)
    if not all(np.all(np.isfinite(x)) for x in at) or complaint_of_mass(M):
        return None
    coordinate = coordinate_scale_by_numpy(M)

    def look(x):
        missed, _, _, A, _ = at_state(system, t, jax.device_put(np.asarray(x, dtype)), v)
        return missed, A

    if missed.size:
        q = jax.device_put(np.asarray(by_least_squares(look, np.asarray(q, float), coordinate, eps), dtype))
    left = np.linalg.norm(at_state(system, t, q, v)[0])
    return q if left <= eps**0.5 * max(np.linalg.norm(missed), np.max(coordinate)) else None


def by_least_squares(
    look: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    x: Float[np.ndarray, " n"],
    unit: Float[np.ndarray, " n"],
    eps: float,
) -> Float[np.ndarray, " n"]:
    """Where a residual, which ``look`` gives with its slope, is least near x; x where it cannot be followed.

    SciPy's first step is up to as long as x, and so may end exactly in the centre of a circle, where slopes vanish: if
    that does not bring the residual to 0, it is tried again from a little beside x."""
    from scipy.optimize import least_squares  # takes a while, and not every start is looked for

    slope: Any = lambda x: look(x)[1]
    missed = lambda x: look(x)[0]
    size = lambda x: float(np.linalg.norm(missed(x)))

    def least(start):
        return least_squares(missed, start, slope, x_scale=unit, xtol=eps, ftol=eps, gtol=eps, max_nfev=MOST).x

    try:
        found = least(x)
        if size(found) <= eps**0.5 * size(x):
            return found
        aside = BESIDE * np.max(np.abs(x) / unit, initial=0) * unit * np.random.default_rng(0).normal(size=x.size)
        return min(found, least(x + aside), key=size)
    except ValueError:  # somewhere the rows are not finite
        return x


def consistent(
    system: AbstractSystem, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]
) -> tuple[Float[Array, " nq"], Float[Array, " n"]] | None:
    """A point on the constraints, from afar, and the nearest velocities there, by NumPy from one small program; None
    where it is not sure that rounding is all that is missed."""
    if not system.held:
        return q, v
    if system.kinematic_map is not None:
        around = LocalChart(system, q)
        there = consistent(around, t, jnp.zeros_like(v), v)
        return None if there is None else (leads(around, there[0]), there[1])
    found = assembled(system, t, q, v)
    if found is None:
        return None
    x, y = np.asarray(found, float), np.asarray(v, float)
    at = lambda: at_state(system, t, *(jax.device_put(np.asarray(z, q.dtype)) for z in (x, y)))
    small = float(np.finfo(q.dtype).eps) ** 0.75
    try:
        for _ in range(2):
            missed, _, M, A, _ = at()
            x = x + (step := least_change(M, A, -missed))
        sizes = _sizes(system, M, x)
        there = np.all(np.abs(step) <= small * sizes)
        for _ in range(2):
            _, missed, M, _, A = at()
            y = y + least_change(M, A, -missed)
    except np.linalg.LinAlgError:
        return None
    positions, velocities, _, A, B = at()
    q, v = jax.device_put((np.asarray(x, q.dtype), np.asarray(y, v.dtype)))
    found = (positions, small * (np.abs(A) @ sizes)), (velocities, small * (np.abs(B) @ np.abs(y)))
    if there and not all(np.all(np.abs(missed) <= allowed) for missed, allowed in found):
        # Where the slope of a row vanishes, it does not tell how large rounding is.
        changes = changed_by_rounding(lambda *state: at_state(*state)[:2], system, t, q, v, M)
        there = all(
            np.all(np.abs(missed) <= np.maximum(allowed, TIMES * change))
            for (missed, allowed), change in zip(found, changes, strict=True)
        )
    return (q, v) if there else None


def least_change(M: np.ndarray, A: np.ndarray, missing: np.ndarray) -> Float[np.ndarray, " n"]:
    """The change with A x = ``missing`` that has the least xᵀ M x."""
    if not missing.size:
        return np.zeros(len(M))
    L = np.linalg.cholesky(M)
    B = np.linalg.solve(L, _without_rounding(A).T).T
    return np.linalg.solve(L.T, np.linalg.lstsq(B, missing, rcond=float(np.finfo(M.dtype).eps) ** 0.5)[0])


def _sizes(system, M, q):
    """What is large for each coordinate: a radian, or as much as that moves; where nothing turns, all of q."""
    unit = np.sqrt(1 / np.diagonal(M))
    turns = np.array([name in ("rad", "") for _, name in named_coordinates(system, len(q))])
    largest = np.max(np.abs(q) / unit)
    return np.maximum(unit * (largest if not np.any(turns) else 1 / np.max(unit[turns])), np.abs(q))


def _without_rounding(A):
    """Rows that cannot be told from what rounding leaves of 0 as 0."""
    length = np.linalg.norm(A, axis=1, keepdims=True)
    return np.where(length > rounding(A.dtype) * np.max(length, initial=0), A, 0)


def at_state(system: AbstractSystem, t: Array, q: Array, v: Array) -> tuple[np.ndarray, ...]:
    """φ, (φ̇, ψ), M, ∂φ/∂q and ∂(φ̇, ψ)/∂v. Where nothing has a mass, M is the identity: such a mechanism has poses."""
    phi, rate, M, A, B = (np.asarray(x) for x in _rows(system, t, q, v))
    return phi, rate, M if M.any() else np.eye(len(M)), A, B


@jit_unoptimised
def _rows(system, t, q, v):
    return (
        system.position_residual(t, q),
        system.velocity_residual(t, q, v),
        dynamics_of(system).mass(t, q, v),
        system.position_slope(t, q, v),
        system.velocity_slope(t, q, v),
    )
