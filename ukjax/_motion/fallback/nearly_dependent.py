"""Warning for rows that are nearly dependent at the start, so that a tolerance decides on their rank."""

import warnings

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._equation import nearly_dependent
from ..._kernel.if_repeated import jit_if_repeated
from ..._kinematic_map import rate
from ..._solve import coordinate_scale, row_scale
from ..._system import AbstractSystem, dynamics_of
from ..problem import Problem
from .row_noise import Evaluate, classify_rows

CORRECTIONS = 2
"""Newton iterations: a start that is off its constraints by 1e-6 is off by 1e-24 after them."""


def warn_of_nearly_dependent(
    evaluate: Evaluate,
    problem: Problem,
    M: Array | np.ndarray,
    A: Array | np.ndarray,
    t: Array | np.ndarray,
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
    where: str,
) -> None:
    """Warn as ``constrained_motion`` does, for M and A at the start of a motion.

    Rows that are redundant on the constraints differ slightly off them, where a start may be. So rows that seem nearly
    dependent are evaluated again on the constraints, by ``evaluate``.
    """
    model, method = problem.model, problem.method
    if not nearly_dependent(np.asarray(M), np.asarray(A), method):
        return
    if problem.projection and isinstance(model, AbstractSystem):
        for _ in range(CORRECTIONS):
            q = _newton_step(model, t, q, v)
    M, rows = evaluate(model, t, q, v)
    M = np.asarray(M)
    complaint = nearly_dependent(M, classify_rows(evaluate, model, t, q, v, M, rows)[0].rows, method)
    if complaint:
        warnings.warn(f"{where.strip()}: {complaint}", stacklevel=3)


@jit_if_repeated
def _newton_step(system, t, q, v):
    """q after one Newton iteration towards the constraints."""
    slope = system.position_slope(t, q, v)
    unit = coordinate_scale(dynamics_of(system).mass(t, q, v))
    row_unit = row_scale(slope, unit)
    A, residual = row_unit[:, None] * slope * unit, row_unit * system.position_residual(t, q)
    step = jnp.linalg.lstsq(A, residual, rcond=float(jnp.finfo(q.dtype).eps) ** 0.5)[0]
    return q - rate(system.kinematic_map, q, unit * step)
