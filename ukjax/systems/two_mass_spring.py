"""The two masses of Liu et al., IEEE/CAA J. Autom. Sin. 2, 382 (2015), section IV."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from .._constraint import Holonomic
from .._dynamics import Lagrangian
from ..control import Servo
from .base import AbstractMechanism, Parameter, parameter


class TwoMassSpring(AbstractMechanism):
    """Two masses on a line, a spring between them, and one force, on the first, that keeps them 2 l apart.

    Underactuated: two coordinates, one force::

              x1              x2
         F -> [m1]---/\\/\\---[m2]        T = (m1 ẋ1² + m2 ẋ2²)/2,   V = k (x2 − x1 − l)²/2     (36)
                      k, l
                                        task: x2 − x1 = 2 l                                     (44)

    The control is F = −(1 + m1/m2) k (x2 − x1 − l), eq. 47: constant on the task, so that both masses accelerate
    together. Masses [kg], stiffness ``k`` [N/m], length ``l`` [m]. The paper has no numbers.
    """

    m1: Parameter = parameter(1.0)
    m2: Parameter = parameter(2.0)
    k: Parameter = parameter(5.0)
    l: Parameter = parameter(1.0)

    end: ClassVar[float] = 2.0
    coordinates: ClassVar[Any] = (("x1", "m"), ("x2", "m"))
    constraints: ClassVar[tuple[()]] = ()

    @property
    def dynamics(self) -> Lagrangian:
        return Lagrangian(self.kinetic, self.potential)

    @property
    def control(self) -> Servo:
        task = Holonomic(lambda t, q: q[1] - q[0] - 2 * self.l, name="distance")
        return Servo([[1.0], [0.0]], task, inputs=(("F", "N"),))

    def kinetic(self, t: ScalarLike, q: Float[Array, " 2"], v: Float[Array, " 2"]) -> Array:
        return (self.m1 * v[0] ** 2 + self.m2 * v[1] ** 2) / 2

    def potential(self, t: ScalarLike, q: Float[Array, " 2"]) -> Array:
        return self.k * (q[1] - q[0] - self.l) ** 2 / 2

    def start(self) -> tuple[Array, Array]:
        return jnp.stack([0 * self.l, 2 * self.l]), jnp.zeros(2)

    def reference(self, t: ScalarLike) -> Float[Array, " 2"]:
        """Return the exact motion: the spring force k l on the second mass accelerates both."""
        x1 = -self.k * self.l / self.m2 * t**2 / 2
        return jnp.stack([x1, x1 + 2 * self.l])

    def outline(self, t: ScalarLike, q: Float[Array, " 2"]) -> tuple[Float[Array, "points 2"], ...]:
        return (jnp.stack([q, jnp.zeros_like(q)], axis=1),)
