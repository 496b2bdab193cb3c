"""The particle on a logarithmic spiral of Zhao et al., Chin. J. Mech. Eng. 31, 106 (2018), section 8.1."""

from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from .._constraint import Holonomic
from .._dynamics import MassForce
from .base import AbstractMechanism, Parameter, parameter
from .projectile import cartesian, polar_particle


class SpiralParticle(AbstractMechanism):
    """A particle of unit mass that is driven inwards along a logarithmic spiral, against gravity.

    Two constraints determine both coordinates, so the motion is known in advance, and Qᶜ is the force that it needs::

        (r, θ):   r = exp(growth θ),   θ = turn − t          (53)

    Radius r [m], angle θ [rad], ``growth`` [1/rad], ``turn`` [rad]. The paper solves with the unit matrix for M
    (eq. 9), which is not the mass matrix in (r, θ). With as many constraints as coordinates the motion is correct but
    the constraint force is wrong: its torque has to be multiplied by r² (``published``: "unit_mass_matrix").
    """

    m: Parameter = parameter(1.0)
    g: Parameter = parameter(9.81)
    growth: Parameter = parameter(0.1)
    turn: Parameter = parameter(30.0)
    unit_mass_matrix: bool = eqx.field(default=False, static=True)

    end: ClassVar[float] = 40.0
    coordinates: ClassVar[Any] = (("r", "m"), ("theta", "rad"))

    @property
    def dynamics(self) -> MassForce:
        particle = polar_particle(self.m, self.g)
        if not self.unit_mass_matrix:
            return particle
        shape = lambda q: jnp.stack([jnp.ones_like(q[0]), q[0] ** 2])
        return MassForce(self.m * jnp.eye(2), lambda t, q, v: particle.force(t, q, v) / shape(q))

    @property
    def constraints(self) -> tuple[Holonomic]:
        return (Holonomic(self.spiral, name=("spiral", "turning")),)

    def spiral(self, t: ScalarLike, q: Float[Array, " 2"]) -> Float[Array, " 2"]:
        """φ(t, q) of eq. 53."""
        return jnp.stack([q[0] - jnp.exp(self.growth * q[1]), q[1] + t - self.turn])

    def errors(self, t: ScalarLike, q: Float[Array, " 2"], v: Float[Array, " 2"]) -> tuple[Array, Array]:
        """ε1 and ε2, eqs. 58 and 59: how far positions and velocities are from the constraints."""
        spiral = jnp.exp(self.growth * q[1])
        return (
            jnp.hypot(q[0] - spiral, q[1] + t - self.turn),
            jnp.hypot(v[0] - self.growth * spiral * v[1], v[1] + 1),
        )

    def start(self) -> tuple[Array, Array]:
        r = jnp.exp(self.growth * self.turn)
        return jnp.stack([r, self.turn]), jnp.stack([-self.growth * r, 0 * r - 1])

    def reference(self, t: ScalarLike) -> Float[Array, " 2"]:
        theta = self.turn - t
        return jnp.stack([jnp.exp(self.growth * theta), theta])

    def outline(self, t: ScalarLike, q: Float[Array, " 2"]) -> tuple[Float[Array, "points 2"], ...]:
        return (jnp.stack([jnp.zeros_like(q), cartesian(q)]),)

    def published(self) -> "dict[str, SpiralParticle]":
        return {"unit_mass_matrix": replace(self, unit_mass_matrix=True), "mass_matrix": self}
