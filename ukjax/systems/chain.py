"""Three two-link chains, the common part of the planar parallel robots in the gallery."""

import abc
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from .._constraint import Holonomic
from .._dynamics import MassForce
from .._precision import as_float
from .base import AbstractMechanism, Parameter, parameter

# Han et al. 2020, table 2: a chain per column, chains 2 and 3 alike.
LENGTH = 0.244
CENTRE_A, CENTRE_B = (0.1150, 0.0657, 0.0657), (0.1621, 0.1096, 0.1096)
MASS_A, MASS_B = (1.2525, 1.3663, 1.3663), (1.0771, 0.4132, 0.4132)
INERTIA_A, INERTIA_B = (0.0124, 0.0122, 0.0122), (0.0098, 0.0036, 0.0036)
# The start of section 4.1: active and passive angles, and the bases.
ACTIVE, PASSIVE = (1.3015, 2.9105, 2.981), (-2.1752, -1.4593, 1.8776)
BASE_X, BASE_Y = (0.0, 0.43, 0.4269), (0.25, 0.0, 0.5005)


class Inertia(NamedTuple):
    """Inertial parameters of the mass matrices of the chains (eq. 14), one per chain, and their combinations."""

    ra: Array
    rb: Array
    ma: Array
    mb: Array
    Ia: Array
    Ib: Array
    L: Array

    @property
    def first(self) -> Array:
        """Inertia of link a about its base, with the mass of link b at its end [kg m²]."""
        return self.Ia + self.ma * self.ra**2 + self.mb * self.L**2

    @property
    def second(self) -> Array:
        """Inertia of link b about its joint [kg m²]."""
        return self.Ib + self.mb * self.rb**2

    @property
    def coupling(self) -> Array:
        return self.mb * self.L * self.rb

    def joint_matrix(self, qb: Float[Array, " 3"]) -> tuple[Array, Array, Array]:
        """Return M11, M12 and M22 of every chain."""
        coupled = self.coupling * jnp.cos(qb)
        return self.first + self.second + 2 * coupled, self.second + coupled, self.second + 0 * coupled

    def joint_load(self, qb: Float[Array, " 3"], va: Float[Array, " 3"], vb: Float[Array, " 3"]) -> tuple[Array, Array]:
        """Return the first two entries of C q̇ of every chain."""
        coupled = self.coupling * jnp.sin(qb)
        return -coupled * (2 * va + vb) * vb, coupled * va**2


def direction(angle: Array) -> Float[Array, "*k 2"]:
    """Return the unit vector (cos, sin) at an angle."""
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=-1)


class AbstractThreeChains(AbstractMechanism):
    """Three two-link chains that end in one point, without gravity.

    Distances ``ra``, ``rb`` to the centres of the links and their common length ``L`` [m], masses [kg], inertias about
    the centres [kg m²], positions (``xA``, ``yA``) of the bases [m]: an entry per chain.
    """

    ra: Parameter = parameter(CENTRE_A)
    rb: Parameter = parameter(CENTRE_B)
    ma: Parameter = parameter(MASS_A)
    mb: Parameter = parameter(MASS_B)
    Ia: Parameter = parameter(INERTIA_A)
    Ib: Parameter = parameter(INERTIA_B)
    L: Parameter = parameter(LENGTH)
    xA: Parameter = parameter(BASE_X)
    yA: Parameter = parameter(BASE_Y)

    @abc.abstractmethod
    def chains(self, q: Float[Array, " n"]) -> tuple[Array, Array, Array]:
        """Return qa (3,), qb (3,) and the base (3, 2) of every chain."""

    @property
    def dynamics(self) -> MassForce:
        return MassForce(self.mass_matrix, self.force)

    @abc.abstractmethod
    def mass_matrix(self, t: ScalarLike, q: Float[Array, " n"]) -> Float[Array, "n n"]:
        """Return M(q), with a block per chain."""

    @abc.abstractmethod
    def force(self, t: ScalarLike, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return Q = −C(q, v) v."""

    @property
    def inertia(self) -> Inertia:
        return Inertia(self.ra, self.rb, self.ma, self.mb, self.Ia, self.Ib, self.L)

    @property
    def bases(self) -> Float[Array, "3 2"]:
        """Ground joints of the chains [m]."""
        return jnp.stack([self.xA, self.yA], axis=1)

    @property
    def loops(self) -> Holonomic:
        """Constraint that the chains end in one point."""
        return Holonomic(self.loop_error, name=tuple(f"loop 1-{i} {axis}" for i in (2, 3) for axis in "xy"))

    def ends(self, q: Float[Array, " n"]) -> Float[Array, "3 2"]:
        """Return the end E_i of each chain [m]."""
        qa, qb, base = self.chains(q)
        return base + self.L * (direction(qa) + direction(qa + qb))

    def loop_error(self, t: ScalarLike, q: Float[Array, " n"]) -> Float[Array, " 4"]:
        """Return φ = (E_1 − E_2, E_1 − E_3) [m]."""
        ends = self.ends(q)
        return (ends[0] - ends[1:]).reshape(-1)

    def line_error(self, t: ScalarLike, q: Float[Array, " n"], amplitude: Array) -> Float[Array, " 2"]:
        """Return the distance of the end of chain 1 from (x_E(0) + amplitude (cos t − 1), y_E(0)).

        E(0) is its end at the printed start.
        """
        start = self.ends(self.start()[0])[0]
        return self.ends(q)[0] - start - amplitude * jnp.stack([jnp.cos(t) - 1, 0 * as_float(t)])

    def outline(self, t: ScalarLike, q: Float[Array, " n"]) -> tuple[Float[Array, "points 2"], ...]:
        qa, _, base = self.chains(q)
        return tuple(jnp.stack([base, base + self.L * direction(qa), self.ends(q)], axis=1))
