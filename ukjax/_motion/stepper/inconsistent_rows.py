"""Detection of rows that contradict each other, so that no acceleration satisfies them all."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..._solve import AbstractMethod, coordinate_scale, coordinate_scale_by_numpy, rounding
from ..._system import AbstractSystem, structure_of
from ..._terms import Terms

RANKS = 10
"""Rows that a method treats as dependent differ by up to its tolerance; their right-hand sides may differ by this
factor more.
"""

OF_PULL = 0.25
"""Baumgarte terms of redundant rows agree only to first order in the violation that they correct."""


def inconsistent_rows(
    terms: Terms,
    acceleration: Float[Array | np.ndarray, " n"],
    method: AbstractMethod,
    pull: Any = 0.0,
    xp: Any = jnp,
) -> Bool[Array | np.ndarray, " m"]:
    """Which rows A q̈ = b the acceleration, a least-squares solution, does not satisfy.

    Each residual A q̈ − b is compared with the size of its own terms. ``pull`` is the part of b that corrects violated
    constraints. Rows that the method treats as rounding of 0 are ignored.
    """
    eps = float(np.finfo(terms.b.dtype).eps)
    rtol = getattr(method, "rtol", None)
    size = xp.abs(terms.A) @ xp.abs(acceleration) + xp.abs(terms.b)
    residual = xp.abs(terms.A @ acceleration - terms.b)
    unit = coordinate_scale(terms.M) if xp is jnp else coordinate_scale_by_numpy(np.asarray(terms.M))
    length = xp.sum((terms.A * unit) ** 2, axis=1)
    least = getattr(method, "least", None)
    counted = length > (rounding(terms.A.dtype) if least is None else least) ** 2 * xp.max(length, initial=0)
    return counted & (residual > RANKS * (eps**0.5 if rtol is None else rtol) * size + OF_PULL * pull)


def acceleration_only_rows(
    model: Any, projection: bool, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]
) -> Any:
    """The rows whose contradictions show only in accelerations: True for all of them, or a mask (m,).

    Without projection these are all rows. With projection, which restores positions and velocities, they are those that
    constrain neither.
    """
    if not projection or not isinstance(model, AbstractSystem):
        return True
    structure = structure_of(model)
    if all(constraint.level != "acceleration" for constraint in structure):
        return False
    sizes = [eqx.filter_eval_shape(constraint.rows, t, q, v)[1].shape[0] for constraint in structure]
    return np.repeat([constraint.level == "acceleration" for constraint in structure], sizes)


def pull_of(model: Any, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Any:
    """The part of each entry of b that corrects a violated constraint."""
    if not isinstance(model, AbstractSystem):
        return 0.0
    pulls = []
    for constraint in structure_of(model):
        rows = eqx.filter_eval_shape(constraint.rows, t, q, v)[1].shape
        pulls.append(jnp.broadcast_to(jnp.asarray(constraint.pull(t, q, v), q.dtype), rows))
    return jnp.concatenate(pulls) if pulls else 0.0
