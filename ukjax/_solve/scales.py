"""Units do not decide: factors that give coordinates unit mass and rows unit length."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def coordinate_scale(M: Float[Array, "n n"]) -> Float[Array, " n"]:
    """Factors that give every coordinate unit mass, so that units do not decide ranks: 1/√M_ii, and for a coordinate
    without mass that of the mean mass."""
    mass = jnp.diagonal(M)
    mean = jnp.mean(jnp.abs(mass))
    mean = jnp.where(mean > 0, mean, 1)
    return jax.lax.rsqrt(jnp.where(mass > jnp.finfo(M.dtype).eps * mean, mass, mean))


def row_scale(A: Float[Array, "m n"], coordinate: Float[Array, " n"]) -> Float[Array, " m"]:
    """Factors that give every row unit length in the scaled coordinates. A row that is nothing but rounding, below
    eps^(3/4) of the largest, gets 0: scaled up it would be taken for a constraint."""
    square = jnp.sum((A * coordinate) ** 2, axis=1)
    real = square > jnp.finfo(A.dtype).eps ** 1.5 * jnp.max(square, initial=0)
    return jnp.where(real, jax.lax.rsqrt(jnp.where(real, square, 1)), 0)
