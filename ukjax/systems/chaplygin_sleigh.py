"""Chaplygin's sleigh (1911); Neimark & Fufaev, Dynamics of Nonholonomic Systems (1972)."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from .._constraint import Pfaffian
from .._dynamics import MassForce
from .base import AbstractMechanism, Parameter, parameter


class ChaplyginSleigh(AbstractMechanism):
    """A sleigh on ice that rests on two sliding feet and a knife edge behind its centre of mass.

    q = (x, y, theta), the centre of mass and the heading::

               .-------.
        edge  =|=  a    o (x, y)      m ẍ = m ÿ = J θ̈ = 0 without the edge
               '-------'  -> theta    edge:  −ẋ sin θ + ẏ cos θ − a θ̇ = 0

    From nearly every start the sleigh ends up gliding straight ahead, with the edge behind. The energy is conserved,
    and yet this motion is asymptotically stable, which is not possible in a holonomic system. A start with pure turning
    has the forward speed v = V tanh kt and the rate ω = V √(m/I) sech kt, with I = J + m a² and k = a V m/I.
    Mass ``m`` [kg], ``J`` [kg m²], ``a`` [m], ``turn`` [rad/s].
    """

    m: Parameter = parameter(1.0)
    J: Parameter = parameter(0.5)
    a: Parameter = parameter(0.3)
    turn: Parameter = parameter(1.0)

    end: ClassVar[float] = 5.0
    coordinates: ClassVar[Any] = (("x", "m"), ("y", "m"), ("theta", "rad"))

    @property
    def dynamics(self) -> MassForce:
        return MassForce(jnp.diag(jnp.stack([self.m, self.m, self.J])), jnp.zeros(3))

    @property
    def constraints(self) -> tuple[Pfaffian]:
        edge = lambda t, q: jnp.stack([-jnp.sin(q[2]), jnp.cos(q[2]), -self.a])
        return (Pfaffian(edge, name="edge"),)

    def start(self) -> tuple[Array, Array]:
        """The edge at rest, the sleigh turning about it."""
        return jnp.zeros(3), jnp.stack([0 * self.turn, self.a * self.turn, self.turn])

    def outline(self, t: ScalarLike, q: Float[Array, " 3"]) -> tuple[Float[Array, "points 2"], ...]:
        along, across = jnp.stack([jnp.cos(q[2]), jnp.sin(q[2])]), jnp.stack([-jnp.sin(q[2]), jnp.cos(q[2])])
        contact = q[:2] - self.a * along
        edge = jnp.stack([contact - self.a / 4 * along, contact + self.a / 4 * along])
        body = jnp.stack([q[:2] + self.a * across / 2, contact, q[:2] - self.a * across / 2, q[:2]])
        return edge, body
