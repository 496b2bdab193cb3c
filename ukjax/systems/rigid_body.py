"""A free rigid body in unit quaternions: Udwadia & Schutte, J. Appl. Mech. 77 (2010) 044505."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from .._constraint import Holonomic
from .._dynamics import Lagrangian
from .._rotation import of_quaternion
from .base import AbstractMechanism, Parameter, parameter


class RigidBody(AbstractMechanism):
    """A free body that tumbles about its intermediate axis; its attitude is a unit quaternion.

    q = u = (u0, u1, u2, u3)::

        ω = 2 E(u) u̇,   E = [−u1  u0  u3 −u2;  −u2 −u3  u0  u1;  −u3  u2 −u1  u0]
        T = ωᵀ J ω/2,   M = 4 Eᵀ J E:  4 × 4 of rank 3, since T does not depend on the rate of |u|
        unit:  (uᵀu − 1)/2 = 0

    rank [M; A] = 4, so that the motion is unique although M is singular. Components of ω in the body. Principal
    inertias ``J`` [kg m²], ``omega`` [rad/s] at the start.
    """

    J: Parameter = parameter([1.0, 2.0, 3.0])
    omega: Parameter = parameter([0.05, 2.0, 0.0])

    end: ClassVar[float] = 10.0
    coordinates: ClassVar[Any] = tuple((f"u{i}", "") for i in range(4))

    @property
    def dynamics(self) -> Lagrangian:
        return Lagrangian(self.kinetic)

    @property
    def constraints(self) -> tuple[Holonomic]:
        return (Holonomic(lambda t, q: (q @ q - 1) / 2, name="unit"),)

    def kinetic(self, t: ScalarLike, q: Float[Array, " 4"], v: Float[Array, " 4"]) -> Array:
        omega = self.angular_velocity(q, v)
        return omega @ (self.J * omega) / 2

    def angular_velocity(self, q: Float[Array, " 4"], v: Float[Array, " 4"]) -> Float[Array, " 3"]:
        """ω of the body, in its own axes."""
        return 2 * quaternion_matrix(q) @ v

    def start(self) -> tuple[Array, Array]:
        u = jnp.array([1.0, 0.0, 0.0, 0.0])
        return u, self.omega @ quaternion_matrix(u) / 2

    def outline(self, t: ScalarLike, q: Float[Array, " 4"]) -> tuple[Float[Array, "points 3"], ...]:
        """Return the axes of the body, with lengths proportional to their inertias."""
        length = self.J / jnp.max(self.J)
        return tuple(jnp.stack([jnp.zeros(3), length[i] * axis]) for i, axis in enumerate(of_quaternion(q).T))


def quaternion_matrix(u: Float[Array, " 4"]) -> Float[Array, "3 4"]:
    """E(u)."""
    u0, u1, u2, u3 = u
    return jnp.array([[-u1, u0, u3, -u2], [-u2, -u3, u0, u1], [-u3, u2, -u1, u0]])
