"""Functions that the kinematic analyses of mechanisms share: sizes of lengths and angles, and a check."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._errors import InputError
from .._mechanism import Mechanism
from .._mechanism.reactions import square_length


def refuse_flexible(what: str, mechanism: Mechanism) -> None:
    """Raise ``InputError`` for a mechanism with flexible bodies, whose deformation depends on forces."""
    if mechanism.tree.modal:
        name = mechanism.tree.modal[0].body
        raise InputError(
            f"ukjax.{what} is for rigid bodies, and {name!r} is flexible: its deformation follows from forces, "
            "not from poses. Make the mechanism with a ukjax.Body in its place"
        )


def characteristic_length(mechanism: Mechanism, t: Array, q: Float[Array, " nq"]) -> Float[Array, ""]:
    """The root mean square distance [m] of the joints and centres of mass from their centroid; 1 if they coincide."""
    return jnp.sqrt(square_length(mechanism.dynamics, t, q))


def units_of_velocities(mechanism: Mechanism, length: Float[Array, ""]) -> Float[Array, " n"]:
    """The units of displacements: 1 for angles, and ``length`` for lengths."""
    return jnp.stack([jnp.ones_like(length) if unit.startswith("rad") else length for _, unit in mechanism.velocities])
