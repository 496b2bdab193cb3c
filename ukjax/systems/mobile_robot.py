"""A wheeled robot that follows a path: nonholonomic rolling and a servo task together."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, ScalarLike

from .._constraint import Holonomic, Pfaffian
from .._dynamics import MassForce
from ..control import Servo
from .base import AbstractMechanism, Parameter, parameter


class MobileRobot(AbstractMechanism):
    """Two driven wheels on one axle; a point ahead of the axle follows a figure of eight.

    q = (x, y, theta, right, left): middle of the axle, heading, turns of the wheels::

              |==|  right         ẋ sin θ − ẏ cos θ = 0                       no side slip
              +--+-.              ẋ cos θ + ẏ sin θ + b θ̇ = r ṙight            right wheel rolls
        (x,y) o  |  * point       ẋ cos θ + ẏ sin θ − b θ̇ = r l̇eft             left wheel rolls
              +--+-'
              |==|  left          task:  (x, y) + d (cos θ, sin θ) = (width sin ωt, height sin 2ωt)

    The centre of mass is on the axle. Mass ``m`` [kg] and inertia ``J`` [kg m²] of the whole, wheel inertia ``Jw``
    [kg m²], radius ``r``, half the track ``b``, ``d``, ``width``, ``height`` [m], ``omega`` [rad/s]. The control is the
    torques of the two wheels. The middle of the axle (d = 0) cannot follow this path, because it cannot move sideways.
    Path following by the Udwadia–Kalaba equation: Sun et al., Nonlinear Dyn. 83 (2016) 1.
    """

    m: Parameter = parameter(10.0)
    J: Parameter = parameter(0.4)
    Jw: Parameter = parameter(0.005)
    r: Parameter = parameter(0.05)
    b: Parameter = parameter(0.15)
    d: Parameter = parameter(0.1)
    width: Parameter = parameter(1.0)
    height: Parameter = parameter(0.5)
    omega: Parameter = parameter(0.5)

    end: ClassVar[float] = 12.0
    coordinates: ClassVar[Any] = (("x", "m"), ("y", "m"), ("theta", "rad"), ("right", "rad"), ("left", "rad"))

    @property
    def dynamics(self) -> MassForce:
        mass = jnp.diag(jnp.stack([self.m, self.m, self.J, self.Jw, self.Jw]))
        return MassForce(mass, jnp.zeros(5))

    @property
    def constraints(self) -> tuple[Pfaffian]:
        return (Pfaffian(self.rolling, name=("side slip", "right wheel", "left wheel")),)

    @property
    def control(self) -> Servo:
        task = Holonomic(lambda t, q: self.point(q) - self.path(t), name=("path x", "path y"))
        wheels = np.eye(5)[:, 3:]
        return Servo(wheels, task, inputs=(("right torque", "N m"), ("left torque", "N m")))

    def rolling(self, t: ScalarLike, q: Float[Array, " 5"]) -> Float[Array, "3 5"]:
        """Return A(q) of the three rolling conditions."""
        s, c, zero = jnp.sin(q[2]), jnp.cos(q[2]), 0 * q[0]
        return jnp.stack(
            [
                jnp.stack([s, -c, zero, zero, zero]),
                jnp.stack([c, s, self.b, -self.r, zero]),
                jnp.stack([c, s, -self.b, zero, -self.r]),
            ]
        )

    def point(self, q: Float[Array, " 5"]) -> Float[Array, " 2"]:
        """Return the point that follows the path [m]."""
        return q[:2] + self.d * jnp.stack([jnp.cos(q[2]), jnp.sin(q[2])])

    def path(self, t: ScalarLike) -> Float[Array, " 2"]:
        """Return the desired position of the point [m]."""
        return jnp.stack([self.width * jnp.sin(self.omega * t), self.height * jnp.sin(2 * self.omega * t)])

    def start(self) -> tuple[Array, Array]:
        """Return the start: at the crossing of the path, with its direction and speed."""
        speed = jax.jacfwd(self.path)(jnp.zeros(()))
        forward = jnp.sqrt(speed @ speed)
        heading, zero = jnp.arctan2(speed[1], speed[0]), 0 * forward
        middle = -self.d * speed / forward
        turning = forward / self.r
        return jnp.stack([*middle, heading, zero, zero]), jnp.stack([*speed, zero, turning, turning])

    def outline(self, t: ScalarLike, q: Float[Array, " 5"]) -> tuple[Float[Array, "points 2"], ...]:
        along = jnp.stack([jnp.cos(q[2]), jnp.sin(q[2])])
        across = jnp.stack([-along[1], along[0]])
        wheels = [
            jnp.stack([q[:2] + side * self.b * across + end * self.r * along for end in (-1, 1)]) for side in (-1, 1)
        ]
        return jnp.stack([q[:2], self.point(q)]), *wheels
