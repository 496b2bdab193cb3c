"""The three two-link chains that the planar parallel robots of the gallery are made of."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

# Han et al. 2020, table 2: a chain per column, chains 2 and 3 alike.
LENGTH = 0.244
CENTRE_A, CENTRE_B = (0.1150, 0.0657, 0.0657), (0.1621, 0.1096, 0.1096)
MASS_A, MASS_B = (1.2525, 1.3663, 1.3663), (1.0771, 0.4132, 0.4132)
INERTIA_A, INERTIA_B = (0.0124, 0.0122, 0.0122), (0.0098, 0.0036, 0.0036)
# The start of section 4.1: active and passive angles, and the bases.
ACTIVE, PASSIVE = (1.3015, 2.9105, 2.981), (-2.1752, -1.4593, 1.8776)
BASE_X, BASE_Y = (0.0, 0.43, 0.4269), (0.25, 0.0, 0.5005)


class Inertia(NamedTuple):
    """The numbers that the mass matrices of the chains (eq. 14) are made of, one per chain, and the products in which
    they enter."""

    ra: Array
    rb: Array
    ma: Array
    mb: Array
    Ia: Array
    Ib: Array
    L: Array

    @property
    def first(self) -> Array:
        """Of link a about its base, link b's mass at its end."""
        return self.Ia + self.ma * self.ra**2 + self.mb * self.L**2

    @property
    def second(self) -> Array:
        """Of link b about its joint."""
        return self.Ib + self.mb * self.rb**2

    @property
    def coupling(self) -> Array:
        return self.mb * self.L * self.rb

    def joint_matrix(self, qb: Float[Array, " 3"]) -> tuple[Array, Array, Array]:
        """M11, M12 and M22 of every chain."""
        bent = self.coupling * jnp.cos(qb)
        return self.first + self.second + 2 * bent, self.second + bent, self.second + 0 * bent

    def joint_load(self, qb: Float[Array, " 3"], va: Float[Array, " 3"], vb: Float[Array, " 3"]) -> tuple[Array, Array]:
        """The first two entries of C q̇ of every chain."""
        bent = self.coupling * jnp.sin(qb)
        return -bent * (2 * va + vb) * vb, bent * va**2


def direction(angle: Array) -> Float[Array, "*k 2"]:
    """(cos, sin)."""
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=-1)


def end_points(
    qa: Float[Array, " 3"], qb: Float[Array, " 3"], base: Float[Array, "3 2"], L: Float[Array, ""]
) -> Float[Array, "3 2"]:
    """Where each chain ends, E_i."""
    return base + L * (direction(qa) + direction(qa + qb))


def chain_lines(
    qa: Float[Array, " 3"], qb: Float[Array, " 3"], base: Float[Array, "3 2"], L: Float[Array, ""]
) -> tuple[Float[Array, "3 2"], ...]:
    """Base, elbow and end of each chain."""
    elbow = base + L * direction(qa)
    return tuple(jnp.stack([base, elbow, end_points(qa, qb, base, L)], axis=1))
