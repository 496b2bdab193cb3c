"""Euclidean norm with a defined derivative at 0."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def length(x: Float[Array, " m"]) -> Float[Array, ""]:
    """Return |x|. Its derivative at 0 is zero, not NaN."""
    square = jnp.sum(x**2)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)
