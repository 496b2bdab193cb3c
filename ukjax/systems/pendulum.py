"""The simple pendulum in Cartesian coordinates, benchmark A01 of the IFToMM library of computational dynamics."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from .._constraint import Holonomic
from .._dynamics import Lagrangian
from .base import AbstractMechanism, Parameter, parameter


class Pendulum(AbstractMechanism):
    """A point mass on a massless rod, in Cartesian coordinates, with a redundant constraint::

                        y
                length  |                 T = m (ẋ² + ẏ²)/2,    V = m g y
        (x, y) o--------o ------ x
                                          rod:  (x² + y² − length²)/2 = 0,  written twice

    Two rows of rank 1: the motion and the force on the mass are unique, though the multipliers are not. Released level
    and at rest. ``m`` [kg], ``length`` [m], ``g`` [m/s²]; Gonzalez, Dopico, Lugris & Cuadrado, Multibody Syst. Dyn. 16
    (2006).
    """

    m: Parameter = parameter(1.0)
    length: Parameter = parameter(1.0)
    g: Parameter = parameter(9.81)

    end: ClassVar[float] = 10.0
    coordinates: ClassVar[Any] = (("x", "m"), ("y", "m"))

    @property
    def dynamics(self) -> Lagrangian:
        return Lagrangian(lambda t, q, v: self.m * v @ v / 2, lambda t, q: self.m * self.g * q[1])

    @property
    def constraints(self) -> tuple[Holonomic, Holonomic]:
        return Holonomic(self.rod_error, name="rod"), Holonomic(self.rod_error, name="rod again")

    def rod_error(self, t: ScalarLike, q: Float[Array, " 2"]) -> Float[Array, ""]:
        """φ(q)."""
        return (q @ q - self.length**2) / 2

    def start(self) -> tuple[Array, Array]:
        return jnp.stack([-self.length, 0 * self.length]), jnp.zeros(2)

    def outline(self, t: ScalarLike, q: Float[Array, " 2"]) -> tuple[Float[Array, "points 2"], ...]:
        return (jnp.stack([jnp.zeros_like(q), q]),)
