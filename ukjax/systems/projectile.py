"""Example 1 of Zhao et al., Chin. J. Mech. Eng. 31, 106 (2018): one motion in two sets of coordinates."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from .._dynamics import MassForce
from .base import AbstractMechanism, Parameter, parameter


class Projectile(AbstractMechanism):
    """A particle thrown horizontally, in (x, y) or, with ``polar``, in (r, θ).

    Cartesian, eq. 2, and polar::

        y
        |o---> v0        m [ẍ; ÿ] = [0; −m g]
        |   .
        |     .          [m 0; 0 m r²] [r̈; θ̈] = [m r θ̇² − m g sin θ; −2 m r ṙ θ̇ − m g r cos θ]
        +------.-- x

    In eq. 9 of the paper the accelerations of the second line are right, but its mass matrix is m I. Without
    constraints this makes no difference; with one the motion is wrong: see ``SpiralParticle`` and the notebook
    ``zhao2018``. The paper has no numbers; the example is a throw from ``height`` [m] with ``speed`` [m/s].
    """

    m: Parameter = parameter(1.0)
    g: Parameter = parameter(9.81)
    height: Parameter = parameter(10.0)
    speed: Parameter = parameter(5.0)
    polar: bool = eqx.field(default=False, static=True)

    end: ClassVar[float] = 1.4
    constraints: ClassVar[tuple[()]] = ()

    @property
    def coordinates(self) -> Any:
        return (("r", "m"), ("theta", "rad")) if self.polar else (("x", "m"), ("y", "m"))

    @property
    def dynamics(self) -> MassForce:
        return polar_particle(self.m, self.g) if self.polar else cartesian_particle(self.m, self.g)

    def start(self) -> tuple[Array, Array]:
        zero = 0 * self.height
        if self.polar:
            return jnp.stack([self.height, zero + jnp.pi / 2]), jnp.stack([zero, -self.speed / self.height])
        return jnp.stack([zero, self.height]), jnp.stack([self.speed, zero])

    def reference(self, t: ScalarLike) -> Float[Array, " 2"]:
        """The parabola."""
        x, y = self.speed * t, self.height - self.g * t**2 / 2
        return jnp.stack([jnp.hypot(x, y), jnp.arctan2(y, x)]) if self.polar else jnp.stack([x, y])

    def outline(self, t: ScalarLike, q: Float[Array, " 2"]) -> tuple[Float[Array, "points 2"], ...]:
        return (cartesian(q)[None] if self.polar else q[None],)


def cartesian_particle(m: Array, g: Array) -> MassForce:
    """A particle in (x, y), eq. 2."""
    return MassForce(m * jnp.eye(2), lambda t, q, v: jnp.stack([0 * m, -m * g]))


def polar_particle(m: Array, g: Array) -> MassForce:
    """A particle in (r, θ), with the mass matrix of these coordinates."""

    def force(t, q, v):
        (r, theta), (dr, dtheta) = q, v
        return m * jnp.stack(
            [r * dtheta**2 - g * jnp.sin(theta), -2 * r * dr * dtheta - g * r * jnp.cos(theta)],
        )

    return MassForce(lambda t, q: m * jnp.diag(jnp.stack([jnp.ones_like(q[0]), q[0] ** 2])), force)


def cartesian(q: Float[Array, " 2"]) -> Float[Array, " 2"]:
    """Return x, y for r, θ (eq. 3)."""
    return q[0] * jnp.stack([jnp.cos(q[1]), jnp.sin(q[1])])
