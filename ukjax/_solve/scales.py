"""Units do not decide: factors that give coordinates unit mass and rows unit length."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compressed import Compressed


def coordinate_scale(M: Float[Array, "n n"] | Compressed) -> Float[Array, "n *#members"]:
    """Factors that give every coordinate unit mass, so that units do not decide ranks: 1/√M_ii, and for a coordinate
    without mass that of the mean mass."""
    return jax.lax.rsqrt(_masses(jnp, M.diagonal()))


def coordinate_scale_by_numpy(M: Float[np.ndarray, "n n"]) -> Float[np.ndarray, " n"]:
    """The same, of an M whose values are known: JAX would take it operation by operation."""
    return 1 / np.sqrt(_masses(np, np.diagonal(M)))


def _masses(xp, mass):
    mean = xp.mean(xp.abs(mass), axis=0)
    mean = xp.where(mean > 0, mean, 1)
    return xp.where(mass > xp.finfo(mass.dtype).eps * mean, mass, mean)


def row_length(A: Float[Array, "m n"], coordinate: Float[Array, " n"]) -> Float[Array, " m"]:
    """The length of every row in the scaled coordinates."""
    return lengths(A * coordinate)


def lengths(rows: Float[Array, "m n *#members"]) -> Float[Array, "m *#members"]:
    """The length of every row, right for entries of any size."""
    largest = jnp.max(jnp.abs(rows), axis=1, initial=0)
    size = jnp.where(largest > 0, largest, 1)
    return size * jnp.sqrt(jnp.sum((rows / size[:, None]) ** 2, axis=1))


def row_scale(A: Float[Array, "m n"], coordinate: Float[Array, " n"], least: float | None = None) -> Float[Array, " m"]:
    """Factors that give every row unit length in the scaled coordinates.

    A row that is no more than ``least`` of the largest, if not given ``rounding``, gets 0: it may be all that rounding
    left of a row that vanishes, and scaled up it would be taken for a constraint.
    """
    square = jnp.sum((A * coordinate) ** 2, axis=1)
    least = rounding(A.dtype) if least is None else least
    real = square > least**2 * jnp.max(square, initial=0)
    return jnp.where(real, jax.lax.rsqrt(jnp.where(real, square, 1)), 0)


def rounding(dtype: np.dtype) -> float:
    """A row that is so small beside another (8e-15 in float64, 6e-7 in float32, a few eps) cannot be told from what
    rounding makes of 0 by anybody who sees the numbers alone."""
    return float(jnp.finfo(dtype).eps) ** 0.9


def doubtful(dtype: np.dtype) -> float:
    """A row that is so small beside another (2e-12 in float64, 6e-6 in float32) may be what rounding has made of 0: who
    knows what it was computed from may want to look."""
    return float(jnp.finfo(dtype).eps) ** 0.75
