"""The simplest walker: Garcia, Chatterjee, Ruina & Coleman, J. Biomech. Eng. 120 (1998) 281."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from .._constraint import Unilateral
from .._dynamics import Lagrangian
from .base import AbstractMechanism, Parameter, parameter


class SimplestWalker(AbstractMechanism):
    """Two rigid legs with a hinge at the hip walk down a slope without any motor::

              o  hip (x, y), along and across the slope, M
             / \\
            /   \\  legs, length 1, turned by a1 and a2 from the normal, backwards
        ___.     \\___
             '--___. '--___  feet, m; slope gamma          feet: 0 ≤ height + trench ⊥ λ ≥ 0,   friction

    Straight legs scuff at mid-stance: the swing foot is then lower than the slope. The paper ignores that; here, as in
    experiments, the walker walks on stones, one per step and 2 sin θ apart. A leg has its stones at every other place,
    with a trench between them: a foot that is d from the nearest stone of its leg may be
    4 max(0, d − ``stone``)²/l deep. The feet are so light (the paper: m/M → 0) that the stance leg is a pendulum
    upside down, and the swing leg a pendulum on a moving hip. At heel strike the front foot sticks and the rear foot
    leaves. ``M``, ``m`` [kg], ``length``, ``apart`` and ``stone`` [m], ``g`` [m/s²], ``gamma`` [rad]. The paper's
    units: M, length and g are 1. The start is the stable gait for gamma = 0.009 just after heel strike, for m = 0: the
    stance leg at θ = 0.20031090049483 with θ̇ = −0.19983247291764.
    """

    M: Parameter = parameter(1.0)
    m: Parameter = parameter(1e-6)
    length: Parameter = parameter(1.0)
    g: Parameter = parameter(1.0)
    gamma: Parameter = parameter(0.009)
    friction: Parameter = parameter(1.0)
    apart: Parameter = parameter(0.3979480487451373)
    stone: Parameter = parameter(0.12)

    end: ClassVar[float] = 20.0
    constraints: ClassVar[tuple[()]] = ()
    coordinates: ClassVar[Any] = (("x", "m"), ("y", "m"), ("a1", "rad"), ("a2", "rad"))

    @property
    def dynamics(self) -> Lagrangian:
        def kinetic(t, q, v):
            feet = jax.jvp(self.feet, (q,), (v,))[1]
            return (self.M * v[:2] @ v[:2] + self.m * jnp.sum(feet**2)) / 2

        def potential(t, q):
            masses = jnp.stack([self.M, self.m, self.m])
            points = jnp.concatenate([q[None, :2], self.feet(q)])
            return self.g * masses @ (jnp.cos(self.gamma) * points[:, 1] - jnp.sin(self.gamma) * points[:, 0])

        return Lagrangian(kinetic, potential)

    @property
    def nonsmooth(self) -> tuple[Unilateral]:
        slip = lambda t, q, v: jax.jvp(lambda q: self.feet(q)[:, 0], (q,), (v,))[1]
        return (Unilateral(self.gap, friction=self.friction, slip=slip, name=("foot 1", "foot 2")),)

    def gap(self, t: ScalarLike, q: Float[Array, " 4"]) -> Float[Array, " 2"]:
        """Height of the feet above stones and trenches [m]."""
        x, y = self.feet(q).T
        place = x - self.apart * jnp.array([0.0, 1.0])
        off = jnp.abs(place - 2 * self.apart * jax.lax.stop_gradient(jnp.round(place / (2 * self.apart))))
        return y + 4 * jnp.maximum(off - self.stone, 0) ** 2 / self.length

    def feet(self, q: Float[Array, " 4"]) -> Float[Array, "2 2"]:
        """The feet, along and across the slope [m]."""
        return q[:2] - self.length * jnp.stack([jnp.sin(q[2:]), jnp.cos(q[2:])], axis=1)

    def start(self) -> tuple[Array, Array]:
        theta, rate, other = 0.20031090049483, -0.19983247291764, 2 * 0.20031090049483
        c, s = self.length * jnp.cos(theta), self.length * jnp.sin(theta)
        swing = -rate + rate * (1 - jnp.cos(other))
        pace = jnp.sqrt(self.g / self.length)
        v = jnp.stack([-rate * c, -rate * s, -rate + 0 * c, swing + 0 * c])
        return jnp.stack([-s, c, -theta + 0 * c, theta + 0 * c]), pace * v

    def outline(self, t: ScalarLike, q: Float[Array, " 4"]) -> tuple[Float[Array, "points 2"], ...]:
        down = self._down().T
        places = self.apart * jnp.arange(-1, 6)
        ends = self.stone / 2 * jnp.array([[-1.0, 0], [1, 0]])
        stones = [(jnp.stack([place, 0 * place]) + ends) @ down for place in places]
        hip, (first, second) = q[:2], self.feet(q)
        return (*stones, jnp.stack([first, hip]) @ down, jnp.stack([second, hip]) @ down)

    def contact_points(self, t: ScalarLike, q: Float[Array, " 4"]) -> Float[Array, "2 2"]:
        return self.feet(q) @ self._down().T

    def _down(self):
        """Turns vectors along and across the slope to horizontal and vertical ones."""
        c, s = jnp.cos(self.gamma), jnp.sin(self.gamma)
        return jnp.stack([jnp.stack([c, s]), jnp.stack([-s, c])])
