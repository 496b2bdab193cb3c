"""The cart-pole of control textbooks under servo control: an underactuated system."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from .._constraint import Holonomic
from .._dynamics import Lagrangian
from ..control import Servo
from .base import AbstractMechanism, Parameter, parameter


class CartPole(AbstractMechanism):
    """A pole hinged on a cart, and one force on the cart that makes the pole swing about upright as prescribed.

    q = (x, theta), theta from the upright::

               o m        T = (M + m) ẋ²/2 + m l ẋ θ̇ cos θ + m l² θ̇²/2
              /  theta    V = m g l cos θ
             / l
         [  M  ] <- F     task:  θ = swing sin(omega t)
         --o-o------ x

    The one actuator acts on the coordinate that is not in the task. G = A W B is the coupling through the hinge; it is
    zero where the pole is level. The motion of the cart follows from the swing of the pole, and need not be periodic.
    Masses [kg], ``l`` [m], ``swing`` [rad], ``omega`` [rad/s].
    """

    M: Parameter = parameter(1.0)
    m: Parameter = parameter(0.1)
    l: Parameter = parameter(0.5)
    g: Parameter = parameter(9.81)
    swing: Parameter = parameter(0.2)
    omega: Parameter = parameter(3.0)

    end: ClassVar[float] = 4.0
    coordinates: ClassVar[Any] = (("x", "m"), ("theta", "rad"))
    constraints: ClassVar[tuple[()]] = ()

    @property
    def dynamics(self) -> Lagrangian:
        return Lagrangian(self.kinetic, lambda t, q: self.m * self.g * self.l * jnp.cos(q[1]))

    @property
    def control(self) -> Servo:
        task = Holonomic(lambda t, q: q[1] - self.swing * jnp.sin(self.omega * t), name="swing")
        return Servo([[1.0], [0.0]], task, inputs=(("F", "N"),))

    def kinetic(self, t: ScalarLike, q: Float[Array, " 2"], v: Float[Array, " 2"]) -> Array:
        cart = (self.M + self.m) * v[0] ** 2 / 2
        return cart + self.m * self.l * v[0] * v[1] * jnp.cos(q[1]) + self.m * self.l**2 * v[1] ** 2 / 2

    def start(self) -> tuple[Array, Array]:
        """Return the start with the cart speed of the oscillation in linear theory."""
        rate = self.swing * self.omega
        sway = -(self.g / self.omega + self.l * self.omega) * self.swing
        return jnp.zeros(2), jnp.stack([sway, rate])

    def outline(self, t: ScalarLike, q: Float[Array, " 2"]) -> tuple[Float[Array, "points 2"], ...]:
        x, zero, side = q[0], 0 * q[0], self.l / 4
        pole = jnp.stack([jnp.stack([x, zero]), jnp.stack([x + self.l * jnp.sin(q[1]), self.l * jnp.cos(q[1])])])
        corners = side * jnp.array([[-1.0, 0.0], [1.0, 0.0], [1.0, -0.6], [-1.0, -0.6], [-1.0, 0.0]])
        return pole, corners + jnp.stack([x, zero])
