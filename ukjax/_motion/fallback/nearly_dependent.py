"""Rows that are nearly dependent where a motion starts, so that a tolerance decides how many of them count."""

import warnings

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._equation import nearly_dependent
from ..._kinematic_map import rate
from ..._run.compile import jit_unoptimised
from ..._solve import coordinate_scale, row_scale
from ..._system import AbstractSystem, dynamics_of
from ..problem import Problem
from .row_noise import Evaluate, classify_rows

CORRECTIONS = 2
"""Steps of Newton's method: a start that is off its constraints by 1e-6 of them is so by 1e-24 then."""


def warn_of_nearly_dependent(
    look: Evaluate,
    problem: Problem,
    M: Array | np.ndarray,
    A: Array | np.ndarray,
    t: Array | np.ndarray,
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
    where: str,
) -> None:
    """As ``constrained_motion`` warns, of M and A at the start of a motion; ``look`` shows them elsewhere.

    Rows that are redundant on the constraints differ a little beside them, where a start may be. So what seems nearly
    dependent is looked at again on the constraints.
    """
    model, method = problem.model, problem.method
    if not nearly_dependent(np.asarray(M), np.asarray(A), method):
        return
    if problem.projection and isinstance(model, AbstractSystem):
        for _ in range(CORRECTIONS):
            q = _nearer(model, t, q, v)
    M, rows = look(model, t, q, v)
    M = np.asarray(M)
    complaint = nearly_dependent(M, classify_rows(look, model, t, q, v, M, rows)[0].rows, method)
    if complaint:
        warnings.warn(f"{where.strip()}: {complaint}", stacklevel=3)


@jit_unoptimised
def _nearer(system, t, q, v):
    """q after a step of Newton's method towards the constraints."""
    slope = system.position_slope(t, q, v)
    coordinate = coordinate_scale(dynamics_of(system).mass(t, q, v))
    row = row_scale(slope, coordinate)
    A, residual = row[:, None] * slope * coordinate, row * system.position_residual(t, q)
    step = jnp.linalg.lstsq(A, residual, rcond=float(jnp.finfo(q.dtype).eps) ** 0.5)[0]
    return q - rate(system.kinematic_map, q, coordinate * step)
