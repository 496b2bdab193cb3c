"""Scale factors that give coordinates unit mass and rows unit length, so that ranks do not depend on units."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compressed import Compressed


def coordinate_scale(M: Float[Array, "n n"] | Compressed) -> Float[Array, "n *#members"]:
    """Return 1/√M_ii for each coordinate, and 1/√(mean mass) for a coordinate without mass."""
    return jax.lax.rsqrt(_masses(jnp, M.diagonal()))


def coordinate_scale_by_numpy(M: Float[np.ndarray, "n n"]) -> Float[np.ndarray, " n"]:
    """NumPy version of ``coordinate_scale``, for concrete M: JAX would dispatch each operation separately."""
    return 1 / np.sqrt(_masses(np, np.diagonal(M)))


def _masses(xp, mass):
    mean = xp.mean(xp.abs(mass), axis=0)
    mean = xp.where(mean > 0, mean, 1)
    return xp.where(mass > xp.finfo(mass.dtype).eps * mean, mass, mean)


def row_length(A: Any, coordinate: Any, xp: Any = jnp) -> Any:
    """Return the length of each row of A (m, n) in the scaled coordinates. ``xp`` is ``jax.numpy`` or ``numpy``."""
    return lengths(A * coordinate, xp)


def lengths(rows: Any, xp: Any = jnp) -> Any:
    """Return the length of each row of (m, n, ...), without overflow or underflow. ``xp`` is ``jax.numpy`` or
    ``numpy``."""
    largest = xp.max(xp.abs(rows), axis=1, initial=0)
    scale = xp.where(largest > 0, largest, 1)
    return scale * xp.sqrt(xp.sum((rows / scale[:, None]) ** 2, axis=1))


def row_scale(A: Float[Array, "m n"], coordinate: Float[Array, " n"], least: float | None = None) -> Float[Array, " m"]:
    """Return factors that give each row unit length in the scaled coordinates.

    The factor is 0 for a row no longer than ``least`` (default ``rounding``) of the longest row. Such a row may be the
    rounding error of a zero row, and scaling it up would turn it into a constraint.
    """
    squared_length = jnp.sum((A * coordinate) ** 2, axis=1)
    least = rounding(A.dtype) if least is None else least
    nonzero = squared_length > least**2 * jnp.max(squared_length, initial=0)
    return jnp.where(nonzero, jax.lax.rsqrt(jnp.where(nonzero, squared_length, 1)), 0)


def rounding(dtype: np.dtype) -> float:
    """Return eps^0.9: the relative length at which a row cannot be distinguished from the rounding error of a zero row.

    It is 8e-15 in float64 and 6e-7 in float32, a few eps.
    """
    return float(jnp.finfo(dtype).eps) ** 0.9


def doubtful(dtype: np.dtype) -> float:
    """Return eps^0.75: the relative length at which a row may be the rounding error of a zero row.

    It is 2e-12 in float64 and 6e-6 in float32. A caller that knows how the row was computed can check it further.
    """
    return float(jnp.finfo(dtype).eps) ** 0.75
