"""A mass on a rope that goes slack in an upswing, and taut again."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from .._constraint import Unilateral
from .._dynamics import Lagrangian
from .base import AbstractMechanism, Parameter, parameter


class SlackRope(AbstractMechanism):
    """A mass on a rope, which pulls but does not push::

               y     o slack
               |    .
               o----.---- x        T = m (ẋ² + ẏ²)/2,    V = m g y
              /| \\ length
               |   o taut          rope:  0 ≤ (length² − x² − y²)/2 ⊥ λ ≥ 0,   without rebound
               o---> speed

    With 2 g l < speed² < 5 g l the rope goes slack at the angle β from the upward vertical where
    cos β = (speed²/(g l) − 2)/3. The mass then flies along a parabola for 4 √(l cos β/g) sin β and loses its radial
    velocity where the rope becomes taut. ``m`` [kg], ``length`` [m], ``g`` [m/s²], ``speed`` at the lowest point [m/s]:
    standard; the numbers are the gallery's own, with cos β = 1/2.
    """

    m: Parameter = parameter(1.0)
    length: Parameter = parameter(1.0)
    g: Parameter = parameter(9.81)
    speed: Parameter = parameter((3.5 * 9.81) ** 0.5)

    end: ClassVar[float] = 4.0
    constraints: ClassVar[tuple[()]] = ()
    coordinates: ClassVar[Any] = (("x", "m"), ("y", "m"))

    @property
    def dynamics(self) -> Lagrangian:
        return Lagrangian(lambda t, q, v: self.m * v @ v / 2, lambda t, q: self.m * self.g * q[1])

    @property
    def nonsmooth(self) -> tuple[Unilateral]:
        return (Unilateral(lambda t, q: (self.length**2 - q @ q) / 2, name="rope"),)

    def start(self) -> tuple[Array, Array]:
        zero = 0 * self.length
        return jnp.stack([zero, -self.length]), jnp.stack([self.speed, zero])

    def outline(self, t: ScalarLike, q: Float[Array, " 2"]) -> tuple[Float[Array, "points 2"], ...]:
        missing = jnp.sqrt(jnp.maximum(self.length**2 - q @ q, 0))  # the slack rope hangs through
        s = jnp.linspace(0, 1, 12)[:, None]
        return (s * q - 2 * missing * s * (1 - s) * jnp.array([0.0, 1.0]), q[None])

    def contact_points(self, t: ScalarLike, q: Float[Array, " 2"]) -> Float[Array, "1 2"]:
        return q[None]
