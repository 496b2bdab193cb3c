"""The four-bar linkage: benchmark A02 of the IFToMM library of computational dynamics, with one window."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from .._constraint import Holonomic
from .._dynamics import Lagrangian
from .base import AbstractMechanism, Parameter, parameter


class FourBar(AbstractMechanism):
    """Two equal rockers and a coupler: a parallelogram that lies flat twice in a turn and can leave it in two ways::

        B0 o--theta2--o B1      q = (theta1, theta2, theta3), from the upright, clockwise
           |          |
         theta1     theta3      T = Σ m |ċ|²/2 + m l² θ̇²/24,    V = Σ m g c_y,    c the centres of the three rods
           |          |
           o          o --- x   loop:  l (n1 + n2) = (l, 0) + l n3,    n = (sin θ, cos θ)

    In the flat pose, theta1 = ±π/2, the two rows of the loop are dependent: the rank is 1 instead of 2 for an instant,
    and near it A has a small singular value. Adaptive steps shrink there, and may fail for rtol below 1e-10; fixed
    steps, dt = 0.01 s, pass. The motion from the start, upright and with ``speed`` at B0, keeps the rockers parallel,
    and θ1 is that of a pendulum: (5/3) l θ̈ = 2 g sin θ. ``m`` [kg] and ``l`` [m] of each rod, ``g`` [m/s²], ``speed``
    [m/s]; Gonzalez, Dopico, Lugris & Cuadrado, Multibody Syst. Dyn. 16 (2006).
    """

    m: Parameter = parameter(1.0)
    l: Parameter = parameter(1.0)
    g: Parameter = parameter(9.81)
    speed: Parameter = parameter(1.0)

    end: ClassVar[float] = 10.0
    step: ClassVar[float] = 0.01
    coordinates: ClassVar[Any] = (("theta1", "rad"), ("theta2", "rad"), ("theta3", "rad"))

    @property
    def dynamics(self) -> Lagrangian:
        return Lagrangian(self.kinetic, self.potential)

    @property
    def constraints(self) -> tuple[Holonomic]:
        return (Holonomic(self.loop_error, name=("loop x", "loop y")),)

    def kinetic(self, t: ScalarLike, q: Float[Array, " 3"], v: Float[Array, " 3"]) -> Array:
        rates = jax.jvp(self.centres, (q,), (v,))[1]
        return self.m * (jnp.sum(rates**2) / 2 + self.l**2 * v @ v / 24)

    def potential(self, t: ScalarLike, q: Float[Array, " 3"]) -> Array:
        return self.m * self.g * jnp.sum(self.centres(q)[:, 1])

    def rods(self, q: Float[Array, " 3"]) -> Float[Array, "3 2 2"]:
        """Both ends of the rocker, the coupler and the other rocker: rod, end, (x, y) [m]."""
        along = self.l * jnp.stack([jnp.sin(q), jnp.cos(q)], axis=-1)
        first = jnp.stack([jnp.zeros(2), along[0], self.l * jnp.array([1.0, 0.0])])
        return jnp.stack([first, first + along], axis=1)

    def centres(self, q: Float[Array, " 3"]) -> Float[Array, "3 2"]:
        return jnp.mean(self.rods(q), axis=1)

    def loop_error(self, t: ScalarLike, q: Float[Array, " 3"]) -> Float[Array, " 2"]:
        """Return the distance of the end of the coupler from the end of the other rocker, x and y [m]."""
        rods = self.rods(q)
        return rods[1, 1] - rods[2, 1]

    def start(self) -> tuple[Array, Array]:
        rate = self.speed / self.l
        return jnp.array([0.0, jnp.pi / 2, 0.0]), jnp.stack([rate, 0 * rate, rate])

    def outline(self, t: ScalarLike, q: Float[Array, " 3"]) -> tuple[Float[Array, "points 2"], ...]:
        rocker, coupler, other = self.rods(q)
        return jnp.concatenate([other[:1], coupler[::-1]]), rocker
