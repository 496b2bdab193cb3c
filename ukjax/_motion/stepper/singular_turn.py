"""Steps near singular poses that give wrong velocities: sudden turns of adaptive steps, and fixed steps.

At a singular pose rows of A are dependent, and the motion has several branches. A rounding error δ of the constraints
joins them: the exact motion on φ = δ approaches the pose to about √δ and turns onto another branch, in the time in
which it moves by √δ. Adaptive steps resolve this turn, and its velocities are wrong.

Fixed steps hardly see the turn, and pass the pose. But the rounding errors of a state that is almost at the pose are
divided by the small part of a row that is independent of the others. The acceleration there is wrong, and the step that
begins there changes the energy of the motion, by any amount.
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

DOUBT_POWER = 1 / 4
"""A fixed step is in doubt if it starts where the independence of the rows is below eps to this power (1.2e-4 in
float64), and the drift correction at its end changes q by more than the same share of the distance travelled. The
relative error of v is about as large."""


def undecided_limit(dtype: np.dtype) -> float:
    """Limit of the dependence of rows, below which the branch of the motion is not determined."""
    return float(UNDECIDED_ROUNDINGS * np.finfo(dtype).eps) ** 0.5


def turned(
    independence: Float[Array, ""], h: Array, v: Float[Array, " n"], v_end: Float[Array, " n"], scale: Scale
) -> Bool[Array, ""]:
    """Whether a step of h from v to v_end is part of a turn onto another branch: at its end, with this ``independence``
    of the rows, the state is near a singular pose.

    Other changes of the velocity take a time that does not depend on rounding errors.
    """
    limit = undecided_limit(v.dtype)
    size = lambda x: jnp.max(jnp.abs(x) / scale.unit)
    changed = limit * scale.shortest_time * size(v_end - v)
    return (independence < limit) & (changed > h * (TURN * size(v) + REST * limit * size(scale.v)))


def is_close(independence: Float[Array, "*batch"]) -> Bool[Array, "*batch"]:
    """Whether a fixed step that starts at a state may be in doubt, from the independence of its rows."""
    return independence < _doubt_limit(independence.dtype)


def in_doubt(
    close: Bool[Array, "*batch"],
    moved: Float[Array, " nq *batch"],
    q: Float[Array, " nq *batch"],
    q_end: Float[Array, " nq *batch"],
    scale: Scale,
) -> Bool[Array, "*batch"]:
    """Whether the velocity after a fixed step from q to q_end is in doubt. ``close``: see ``is_close``, at its start;
    ``moved``: change of q by the drift correction at its end."""
    size = lambda x: jnp.max(jnp.abs(x) / scale.q, axis=0)
    return close & (size(moved) > _doubt_limit(q.dtype) * size(q_end - q))


def _doubt_limit(dtype):
    return float(jnp.finfo(dtype).eps) ** DOUBT_POWER
