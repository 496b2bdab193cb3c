"""A thin disk that rolls without slipping: Neimark & Fufaev, Dynamics of Nonholonomic Systems (1972)."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from .._constraint import Holonomic, Nonholonomic
from .._dynamics import Lagrangian
from .base import AbstractMechanism, Parameter, parameter


class RollingDisk(AbstractMechanism):
    """A coin on a table: six coordinates, one contact, two rolling conditions.

    q = (x, y, z, psi, theta, phi): the centre, the yaw ψ, the tilt θ of the axis n from the vertical (π/2: upright),
    the spin φ about n. With u the upward direction in the disk's plane::

             .-u-.
            /  |  \\          T = m |ẋ|²/2 + A (θ̇² + ψ̇² sin²θ)/2 + C (φ̇ + ψ̇ cos θ)²/2
           |   o---|-> n      V = m g z
            \\  |  /          contact:  z = r sin θ
             '-+-'           rolling:  the horizontal part of ẋ − ω × r u is zero
        -------+-------

    A = m r²/4, C = m r²/2. The steady circles with tilt θ and precession W have the axial spin ω₃ of
    A W² sin θ cos θ − (C + m r²) ω₃ W sin θ = m g r cos θ. The start is such a circle, disturbed by ``wobble``. Mass
    [kg], radius [m], ``tilt`` [rad], ``precession`` and ``wobble`` [rad/s].
    """

    m: Parameter = parameter(1.0)
    r: Parameter = parameter(0.2)
    g: Parameter = parameter(9.81)
    tilt: Parameter = parameter(1.2)
    precession: Parameter = parameter(1.5)
    wobble: Parameter = parameter(0.5)

    end: ClassVar[float] = 5.0
    coordinates: ClassVar[Any] = (
        ("x", "m"),
        ("y", "m"),
        ("z", "m"),
        ("psi", "rad"),
        ("theta", "rad"),
        ("phi", "rad"),
    )

    @property
    def dynamics(self) -> Lagrangian:
        return Lagrangian(self.kinetic, lambda t, q: self.m * self.g * q[2])

    @property
    def constraints(self) -> tuple[Holonomic, Nonholonomic]:
        contact = Holonomic(lambda t, q: q[2] - self.r * jnp.sin(q[4]), name="contact")
        return contact, Nonholonomic(self.slip, name=("rolling x", "rolling y"))

    def kinetic(self, t: ScalarLike, q: Float[Array, " 6"], v: Float[Array, " 6"]) -> Array:
        A, C = self.m * self.r**2 / 4, self.m * self.r**2 / 2
        across = v[4] ** 2 + (v[3] * jnp.sin(q[4])) ** 2
        along = v[5] + v[3] * jnp.cos(q[4])
        return (self.m * v[:3] @ v[:3] + A * across + C * along**2) / 2

    def slip(self, t: ScalarLike, q: Float[Array, " 6"], v: Float[Array, " 6"]) -> Float[Array, " 2"]:
        """The horizontal velocity of the disk's lowest point."""
        level, up, axis = self.frame(q)
        vertical = jnp.array([0.0, 0.0, 1.0])
        omega = v[3] * vertical + v[4] * level + v[5] * axis
        return (v[:3] - self.r * jnp.cross(omega, up))[:2]

    def frame(self, q: Float[Array, " 6"]) -> tuple[Float[Array, " 3"], Float[Array, " 3"], Float[Array, " 3"]]:
        """The level direction in the disk's plane, u, and n."""
        s, c, st, ct = jnp.sin(q[3]), jnp.cos(q[3]), jnp.sin(q[4]), jnp.cos(q[4])
        return jnp.stack([c, s, 0 * c]), jnp.stack([-ct * s, ct * c, st]), jnp.stack([st * s, -st * c, ct])

    def start(self) -> tuple[Array, Array]:
        A, C, W = self.m * self.r**2 / 4, self.m * self.r**2 / 2, self.precession
        s, c = jnp.sin(self.tilt), jnp.cos(self.tilt)
        axial = (A * W**2 * s * c - self.m * self.g * self.r * c) / ((C + self.m * self.r**2) * W * s)
        zero = 0 * axial
        q = jnp.stack([zero, zero, self.r * s, zero, self.tilt + zero, zero])
        # ẋ = ω × r u in the frame (level, u, n), ω = (wobble, W sin θ, ω₃)
        level, _, axis = self.frame(q)
        centre = self.r * (self.wobble * axis - axial * level)
        return q, jnp.concatenate([centre, jnp.stack([W, self.wobble, axial - W * c])])

    def outline(self, t: ScalarLike, q: Float[Array, " 6"]) -> tuple[Float[Array, "points 3"], ...]:
        level, up, _ = self.frame(q)
        angle = q[5] + jnp.linspace(0, 2 * jnp.pi, 25)
        rim = q[:3] + self.r * (jnp.cos(angle)[:, None] * level + jnp.sin(angle)[:, None] * up)
        return rim, jnp.stack([q[:3], rim[0]]), (q[:3] - self.r * up)[None]
