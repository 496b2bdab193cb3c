"""A ball that bounces on a floor until its impacts accumulate."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from .._constraint import Unilateral
from .._dynamics import MassForce
from .base import AbstractMechanism, Parameter, parameter


class BouncingBall(AbstractMechanism):
    """A ball thrown horizontally above a floor, without air and without friction::

        z
        |  o---> speed                  m [ẍ; z̈] = [0; −m g]
        |     .         .-.
        |      .      .     .           floor:  0 ≤ z − radius ⊥ λ ≥ 0,   ż⁺ = −restitution ż⁻
        +--------.--.--------.-- x

    The first impact is at t₁ = √(2 (height − radius)/g). Each flight is shorter than the last by the factor
    ``restitution``, so that infinitely many impacts end at t₁ (1 + e)/(1 − e), 8.1387 s; then the ball rolls. ``m``
    [kg], ``g`` [m/s²], ``radius`` and ``height`` of the centre at the start [m], ``speed`` [m/s]. The example with
    these numbers is standard; Acary & Brogliato, Numerical Methods for Nonsmooth Dynamical Systems (2008), treat it.
    """

    m: Parameter = parameter(1.0)
    g: Parameter = parameter(9.81)
    radius: Parameter = parameter(0.1)
    height: Parameter = parameter(1.0)
    speed: Parameter = parameter(0.3)
    restitution: Parameter = parameter(0.9)

    end: ClassVar[float] = 10.0
    constraints: ClassVar[tuple[()]] = ()
    coordinates: ClassVar[Any] = (("x", "m"), ("z", "m"))

    @property
    def dynamics(self) -> MassForce:
        return MassForce(self.m * jnp.eye(2), self.m * self.g * jnp.array([0.0, -1.0]))

    @property
    def nonsmooth(self) -> tuple[Unilateral]:
        return (Unilateral(lambda t, q: q[1] - self.radius, self.restitution, name="floor"),)

    def start(self) -> tuple[Array, Array]:
        zero = 0 * self.height
        return jnp.stack([zero, self.height]), jnp.stack([self.speed, zero])

    def reference(self, t: ScalarLike) -> Float[Array, " 2"]:
        """Parabolas between the instants t₁ (1 + 2 (e + ... + eᵏ)), for 0 < e < 1; then rest on the floor."""
        e, g = self.restitution, self.g
        first = jnp.sqrt(2 * (self.height - self.radius) / g)
        left = 1 - (t - first) * (1 - e) / (2 * first * e)  # eᵏ after k flights, 0 where the impacts accumulate
        bounces, rests = t >= first, left <= 0
        k = jnp.floor(jnp.log(jnp.where(bounces & ~rests, left, 1.0)) / jnp.log(e))
        begin = first + 2 * first * e * (1 - e**k) / (1 - e)
        since, upwards = t - begin, g * first * e ** (k + 1)
        fall = self.height - g * t**2 / 2
        flight = self.radius + upwards * since - g * since**2 / 2
        z = jnp.where(bounces, jnp.where(rests, self.radius, flight), fall)
        return jnp.stack([self.speed * t, z])

    def outline(self, t: ScalarLike, q: Float[Array, " 2"]) -> tuple[Float[Array, "points 2"], ...]:
        angle = jnp.linspace(-0.5 * jnp.pi, 1.5 * jnp.pi, 25)
        rim = q + self.radius * jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)
        floor = jnp.stack([jnp.zeros(2), self.speed * self.end * jnp.array([1.0, 0.0])])
        return floor, rim

    def contact_points(self, t: ScalarLike, q: Float[Array, " 2"]) -> Float[Array, "1 2"]:
        return (q - self.radius * jnp.array([0.0, 1.0]))[None]
