"""A block on a rough plane, a constraint that does work: Udwadia & Kalaba, J. Appl. Mech. 68 (2001)."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from .._constraint import Holonomic
from .._dynamics import Lagrangian
from .base import AbstractMechanism, Parameter, parameter


class RoughIncline(AbstractMechanism):
    """A particle that slides down a rough plane, in Cartesian coordinates of its vertical plane::

        y
        |
        o------------------ x      T = m (ẋ² + ẏ²)/2,    V = m g y
         ---___   alpha
               -o-___ (x, y)       plane:  x sin α + y cos α = 0
                     ---___
                                   c = −mu m g cos α v/|v|

    The ideal force of the plane is normal to it, N = m g cos α. The non-ideal force is Coulomb's friction, given by c:
    vᵀ Qᶜ = vᵀ c. Here N does not depend on c (A M⁻¹ c = 0), so that c is known beforehand. This is the law of sliding
    friction alone: at rest c is 0, so that the model is wrong for a particle that stays at rest or turns back. ``m``
    [kg], ``g`` [m/s²], ``mu``, ``alpha`` [rad], ``speed`` down the plane at the start [m/s]; the numbers are the
    gallery's own.
    """

    m: Parameter = parameter(1.0)
    g: Parameter = parameter(9.81)
    mu: Parameter = parameter(0.2)
    alpha: Parameter = parameter(jnp.pi / 6)
    speed: Parameter = parameter(0.1)

    end: ClassVar[float] = 2.0
    coordinates: ClassVar[Any] = (("x", "m"), ("y", "m"))

    @property
    def dynamics(self) -> Lagrangian:
        return Lagrangian(lambda t, q, v: self.m * v @ v / 2, lambda t, q: self.m * self.g * q[1])

    @property
    def constraints(self) -> tuple[Holonomic]:
        return (Holonomic(self.plane_error, name="plane"),)

    def nonideal(self, t: ScalarLike, q: Float[Array, " 2"], v: Float[Array, " 2"]) -> Float[Array, " 2"]:
        """The friction c."""
        square = v @ v
        moving = square > 0
        direction = jnp.where(moving, v / jnp.sqrt(jnp.where(moving, square, 1.0)), 0.0)
        return -self.mu * self.m * self.g * jnp.cos(self.alpha) * direction

    def plane_error(self, t: ScalarLike, q: Float[Array, " 2"]) -> Float[Array, ""]:
        """Height above the plane, at right angles to it [m]."""
        return q[0] * jnp.sin(self.alpha) + q[1] * jnp.cos(self.alpha)

    def start(self) -> tuple[Array, Array]:
        return jnp.zeros(2), self.speed * self._downhill()

    def reference(self, t: ScalarLike) -> Float[Array, " 2"]:
        """Constant acceleration g (sin α − mu cos α) down the plane."""
        acceleration = self.g * (jnp.sin(self.alpha) - self.mu * jnp.cos(self.alpha))
        return (self.speed * t + acceleration * t**2 / 2) * self._downhill()

    def outline(self, t: ScalarLike, q: Float[Array, " 2"]) -> tuple[Float[Array, "points 2"], ...]:
        bottom = jnp.linalg.norm(self.reference(self.end)) * self._downhill()
        side = 0.03 * jnp.linalg.norm(bottom)
        along = side * self._downhill()
        up = side * jnp.stack([jnp.sin(self.alpha), jnp.cos(self.alpha)])
        block = jnp.stack([q, q + along, q + along + 2 * up, q - along + 2 * up, q - along, q])
        return jnp.stack([bottom, jnp.zeros(2)]), block

    def _downhill(self):
        return jnp.stack([jnp.cos(self.alpha), -jnp.sin(self.alpha)])
