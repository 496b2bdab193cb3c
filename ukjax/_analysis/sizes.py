"""Sizes that make lengths and angles of a mechanism comparable."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._mechanism import Mechanism
from .._mechanism.reactions import square_length


def characteristic_length(mechanism: Mechanism, t: Array, q: Float[Array, " nq"]) -> Float[Array, ""]:
    """The root mean square distance [m] of the joints and centres of mass from their centroid; 1 if they coincide."""
    return jnp.sqrt(square_length(mechanism.dynamics, t, q))


def units_of_velocities(mechanism: Mechanism, length: Float[Array, ""]) -> Float[Array, " n"]:
    """The units of displacements: 1 for angles, and ``length`` for lengths."""
    return jnp.stack([jnp.ones_like(length) if unit.startswith("rad") else length for _, unit in mechanism.velocities])
