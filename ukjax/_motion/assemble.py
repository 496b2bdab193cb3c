"""Onto the constraints from afar, and which rows count there: by NumPy, for a program that leaves out the others."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._check import complaint_of_mass
from .._haste import at_once
from .._solve import Usual, coordinate_scale, independent_rows, light
from .._system import AbstractSystem
from .correct import Levels

MOST, HALVED = 100, 12


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
    """A point on the constraints, from q by the shortest steps that rows which are clearly there ask for, halved where
    that leaves them further; None if they lead nowhere. Not the nearest point, but one that is found from afar."""
    eps, rows = float(np.finfo(q.dtype).eps), _rows(system, t, q, v)
    for _ in range(MOST):
        missed, M, A, _ = map(np.asarray, rows)
        if not np.all(np.isfinite(A)) or complaint_of_mass(M):
            return None
        coordinate = np.asarray(coordinate_scale(jnp.asarray(M)))
        step = coordinate * np.linalg.lstsq(A * coordinate, -missed, rcond=eps**0.4)[0]
        change, size = (np.max(np.abs(np.asarray(x)) / coordinate, initial=0) for x in (step, q))
        for _ in range(HALVED):
            tried = q + jax.device_put(step.astype(q.dtype))
            rows = _rows(system, t, tried, v)
            if np.linalg.norm(rows[0]) < np.linalg.norm(missed) or change <= eps**0.75 * size:
                break
            step = step / 2
        q = tried
        if change <= eps**0.75 * size:
            return q
    return None


@at_once
def _rows(system, t, q, v):
    """φ, M, ∂φ/∂q and ∂(φ̇, ψ)/∂v."""
    return (
        system.position_residual(t, q),
        system.dynamics.mass(t, q, v),
        jax.jacfwd(lambda q: system.position_residual(t, q))(q),
        jax.jacfwd(lambda v: system.velocity_residual(t, q, v))(v),
    )
