"""A skate on an inclined plane: Bloch, Nonholonomic Mechanics and Control (2003), section 1.6."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from .._constraint import Pfaffian
from .._dynamics import Lagrangian
from .base import AbstractMechanism, Parameter, parameter


class KnifeEdge(AbstractMechanism):
    """A skate on a slope, which can move along its edge, but not across. It spins, and so moves sideways.

    q = (x, y, theta): x down the slope, y along it, theta the direction of the edge from x::

        o-------- y         T = m (ẋ² + ẏ²)/2 + J θ̇²/2
        | \\                 V = −m g x sin(slope)
        |  \\ edge, theta    edge:  ẋ sin θ − ẏ cos θ = 0
        x

    At the start it only spins. It then moves down and up again and drifts along y for ever (``reference``). Mass
    [kg], inertia ``J`` [kg m²], ``slope`` [rad], ``spin`` [rad/s].
    """

    m: Parameter = parameter(1.0)
    J: Parameter = parameter(0.3)
    g: Parameter = parameter(9.81)
    slope: Parameter = parameter(jnp.pi / 6)
    spin: Parameter = parameter(2.0)

    end: ClassVar[float] = 3.0
    coordinates: ClassVar[Any] = (("x", "m"), ("y", "m"), ("theta", "rad"))

    @property
    def dynamics(self) -> Lagrangian:
        return Lagrangian(self.kinetic, lambda t, q: -self.m * self.g * q[0] * jnp.sin(self.slope))

    @property
    def constraints(self) -> tuple[Pfaffian]:
        edge = lambda t, q: jnp.stack([jnp.sin(q[2]), -jnp.cos(q[2]), 0 * q[2]])
        return (Pfaffian(edge, name="edge"),)

    def kinetic(self, t: ScalarLike, q: Float[Array, " 3"], v: Float[Array, " 3"]) -> Array:
        return self.m * (v[0] ** 2 + v[1] ** 2) / 2 + self.J * v[2] ** 2 / 2

    def start(self) -> tuple[Array, Array]:
        return jnp.zeros(3), jnp.stack([0 * self.spin, 0 * self.spin, self.spin])

    def reference(self, t: ScalarLike) -> Float[Array, " 3"]:
        size, turn = self.g * jnp.sin(self.slope) / (2 * self.spin**2), self.spin * t
        return jnp.stack([size * jnp.sin(turn) ** 2, size * (turn - jnp.sin(2 * turn) / 2), turn])

    def outline(self, t: ScalarLike, q: Float[Array, " 3"]) -> tuple[Float[Array, "points 2"], ...]:
        """Seen from above, y to the right and x down."""
        middle, along = jnp.stack([q[1], -q[0]]), 0.15 * jnp.stack([jnp.sin(q[2]), -jnp.cos(q[2])])
        return jnp.stack([middle - along, middle + along]), middle[None]
