"""Rows that contradict each other, so that no acceleration meets them all."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..._solve import AbstractMethod, coordinate_scale, coordinate_scale_by_numpy, rounding
from ..._system import AbstractSystem, structure_of
from ..._terms import Terms

RANKS = 10
"""Rows that a method takes for dependent differ by up to its tolerance: what they ask for may differ by a little more.
"""

OF_PULL = 0.25
"""What Baumgarte's gains ask of redundant rows agrees only to first order in the violation that they correct."""


def inconsistent_rows(
    terms: Terms,
    acceleration: Float[Array | np.ndarray, " n"],
    method: AbstractMethod,
    pull: Any = 0.0,
    xp: Any = jnp,
) -> Bool[Array | np.ndarray, " m"]:
    """Which rows the acceleration, which meets them as nearly as can be, does not meet: A q̈ − b beside the terms that
    it is made of, each row by itself. ``pull`` is the part of b that is a correction of violated constraints. A row
    that the method takes for rounding of 0 asks for nothing."""
    eps = float(np.finfo(terms.b.dtype).eps)
    rtol = getattr(method, "rtol", None)
    size = xp.abs(terms.A) @ xp.abs(acceleration) + xp.abs(terms.b)
    missed = xp.abs(terms.A @ acceleration - terms.b)
    coordinate = coordinate_scale(terms.M) if xp is jnp else coordinate_scale_by_numpy(np.asarray(terms.M))
    length = xp.sum((terms.A * coordinate) ** 2, axis=1)
    least = getattr(method, "least", None)
    counted = length > (rounding(terms.A.dtype) if least is None else least) ** 2 * xp.max(length, initial=0)
    return counted & (missed > RANKS * (eps**0.5 if rtol is None else rtol) * size + OF_PULL * pull)


def acceleration_only_rows(
    model: Any, projection: bool, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]
) -> Any:
    """The rows whose contradictions show in accelerations alone: all without projection, which brings positions and
    velocities back; else those that are no statement about either. True for all of them, or a mask (m,)."""
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
    found = []
    for constraint in structure_of(model):
        rows = eqx.filter_eval_shape(constraint.rows, t, q, v)[1].shape
        found.append(jnp.broadcast_to(jnp.asarray(constraint.pull(t, q, v), q.dtype), rows))
    return jnp.concatenate(found) if found else 0.0
