"""Onto the constraints from afar, and which rows count there: by NumPy, for a program that leaves out the others."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._check import complaint_of_mass
from .._haste import at_once
from .._solve import Usual, coordinate_scale, independent_rows, light
from .._system import AbstractSystem
from .correct import Levels

MOST = 200


def without_redundant(
    levels: Levels, system: AbstractSystem, t: Array, q: Float[Array, " n"], v: Float[Array, " n"]
) -> Levels | None:
    """The usual method with the rows that count on the constraints near q and v, and with weight on them where M is
    singular; None where that is not known, or nothing else than what was tried."""
    usual = levels.position
    if not isinstance(usual, Usual) or usual.kept is not None or usual.weight is not None:
        return None
    at = assembled(system, t, q, v)
    if at is None:
        return None
    M, A, A_of_velocities = map(np.asarray, _rows(system, t, at, v)[1:])
    if complaint_of_mass(M) or not all(np.all(np.isfinite(x)) for x in (M, A, A_of_velocities)):
        return None
    rtol = 10 * float(np.finfo(q.dtype).eps) ** 0.5
    weight = float(np.mean(np.diagonal(M))) if light(M) else None
    found = []
    for rows in (A, A_of_velocities):
        kept = independent_rows(M, rows, rtol)
        if kept is None:
            return None
        found.append(replace(usual, kept=None if len(kept) == len(rows) else kept, weight=weight))
    if weight is None and all(each.kept is None for each in found):
        return None
    return Levels(levels.acceleration, *found)


def assembled(
    system: AbstractSystem, t: Array, q: Float[Array, " n"], v: Float[Array, " n"]
) -> Float[Array, " n"] | None:
    """A point on the constraints, by least squares from q, in a region of trust; None if none is found. Not the nearest
    point, but one that is found from afar."""
    from scipy.optimize import least_squares  # takes a while, and not every start is looked for

    eps, dtype = float(np.finfo(q.dtype).eps), q.dtype
    missed, M, A, _ = at = _at(system, t, q, v)
    if not all(np.all(np.isfinite(x)) for x in at) or complaint_of_mass(M):
        return None
    coordinate = np.asarray(coordinate_scale(jnp.asarray(M)), float)
    rows = lambda x: _at(system, t, jax.device_put(np.asarray(x, dtype)), v)
    jacobian: Any = lambda x: rows(x)[2]
    if missed.size:
        try:
            found = least_squares(
                lambda x: rows(x)[0],
                np.asarray(q, float),
                jacobian,
                x_scale=coordinate,
                xtol=eps,
                ftol=eps,
                gtol=eps,
                max_nfev=MOST,
            ).x
        except ValueError:  # somewhere the rows are not finite
            return None
        q = jax.device_put(np.asarray(found, dtype))
    left = np.linalg.norm(_at(system, t, q, v)[0])
    return q if left <= eps**0.5 * max(np.linalg.norm(missed), np.max(coordinate)) else None


def _at(system, t, q, v):
    return tuple(np.asarray(x) for x in _rows(system, t, q, v))


@at_once
def _rows(system, t, q, v):
    """φ, M, ∂φ/∂q and ∂(φ̇, ψ)/∂v."""
    return (
        system.position_residual(t, q),
        system.dynamics.mass(t, q, v),
        jax.jacfwd(lambda q: system.position_residual(t, q))(q),
        jax.jacfwd(lambda v: system.velocity_residual(t, q, v))(v),
    )
