"""The length of a vector, with a derivative everywhere."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def length(x: Float[Array, " m"]) -> Float[Array, ""]:
    """|x|, with derivative zero rather than NaN at 0."""
    square = jnp.sum(x**2)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)
