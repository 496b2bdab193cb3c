"""Sudden turns at singular poses, where adaptive steps would follow another branch of the motion.

At a singular pose rows of A are dependent, and the motion has several branches. A rounding error δ of the constraints
joins them: the exact motion on φ = δ approaches the pose to about √δ and turns onto another branch, in the time in
which it moves by √δ. Adaptive steps resolve this turn, and its velocities are wrong.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .scaling import Scale

UNDECIDED_ROUNDINGS = 64
"""Rows that are dependent within √(this many eps) (1.2e-7 in float64) are so near a singular pose that rounding errors
of the constraints decide on the branch: the distance between branches is the square root of a change of φ."""

TURN, REST = 0.1, 10.0
"""A turn changes the velocity by more than ``TURN`` of it plus ``REST`` · limit of its scale, in a time of limit times
the time scale of the motion. The second term is for motions that begin at rest."""


def undecided_limit(dtype: np.dtype) -> float:
    """Limit of the dependence of rows, below which the branch of the motion is not determined."""
    return float(UNDECIDED_ROUNDINGS * np.finfo(dtype).eps) ** 0.5


def turned(
    near: Bool[Array, ""], h: Array, v: Float[Array, " n"], v_end: Float[Array, " n"], scale: Scale
) -> Bool[Array, ""]:
    """Whether a step of h from v to v_end, which ends ``near`` a singular pose, is part of a turn onto another branch.

    Other changes of the velocity take a time that does not depend on rounding errors.
    """
    limit = undecided_limit(v.dtype)
    size = lambda x: jnp.max(jnp.abs(x) / scale.unit)
    changed = limit * scale.shortest_time * size(v_end - v)
    return near & (changed > h * (TURN * size(v) + REST * limit * size(scale.v)))
