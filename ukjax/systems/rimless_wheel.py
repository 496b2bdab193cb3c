"""The rimless wheel, which walks down a slope on its spokes: McGeer, Int. J. Robotics Research 9(2) (1990)."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from .._constraint import Unilateral
from .._dynamics import MassForce
from .base import AbstractMechanism, Parameter, parameter

QUARTER = jnp.pi / 2


class RimlessWheel(AbstractMechanism):
    """Eight spokes without a rim roll down a slope from spoke to spoke::

              \\ | /
             ---o---  hub (x, y), along and across the slope      M = diag(m, m, inertia)
              / | \\                Q = m g [sin slope; −cos slope; 0]
        ___--'     '--___
                 spokes: 0 ≤ y − length cos(angle from the normal) ⊥ λ ≥ 0,   friction, no rebound

    At each impact the next spoke takes over, and the turning speed changes by the factor
    η = (inertia + m l² cos π/4)/(inertia + m l²). Between impacts the energy is constant. So the wheel comes to a
    steady speed, and differences from its square decrease by the factor η² per step. The gaps are those of the nearest
    of the spokes 0, 2, 4, 6 and of the spokes 1, 3, 5, 7: one of each pair is near the ground. ``m`` [kg], ``length``
    [m], ``inertia`` about the hub [kg m²], ``g`` [m/s²], ``slope`` [rad], ``friction``, and ``speed`` after the impact
    before the start [rad/s]. McGeer's wheel; the numbers are the gallery's own.
    """

    m: Parameter = parameter(1.0)
    length: Parameter = parameter(1.0)
    inertia: Parameter = parameter(0.1)
    g: Parameter = parameter(9.81)
    slope: Parameter = parameter(0.08)
    friction: Parameter = parameter(3.0)
    speed: Parameter = parameter(1.6)

    end: ClassVar[float] = 6.0
    constraints: ClassVar[tuple[()]] = ()
    coordinates: ClassVar[Any] = (("x", "m"), ("y", "m"), ("theta", "rad"))

    @property
    def dynamics(self) -> MassForce:
        weight = self.m * self.g * jnp.stack([jnp.sin(self.slope), -jnp.cos(self.slope), 0 * self.slope])
        return MassForce(jnp.diag(jnp.stack([self.m, self.m, self.inertia])), weight)

    @property
    def nonsmooth(self) -> tuple[Unilateral]:
        gap = lambda t, q: q[1] - self.length * jnp.cos(self.spokes(q))
        x = lambda q: q[0] - self.length * jnp.sin(self.spokes(q))
        slip = lambda t, q, v: jax.jvp(x, (q,), (v,))[1]
        return (Unilateral(gap, friction=self.friction, slip=slip, name=("even spoke", "odd spoke")),)

    def spokes(self, q: Float[Array, " 3"]) -> Float[Array, " 2"]:
        """Angles of the lowest even and odd spoke from the normal of the slope, backwards [rad]."""
        angles = q[2] + jnp.array([0.0, QUARTER / 2])
        return angles - QUARTER * jax.lax.stop_gradient(jnp.round(angles / QUARTER))

    def start(self) -> tuple[Array, Array]:
        half = jnp.pi / 8
        q = jnp.stack([-self.length * jnp.sin(half), self.length * jnp.cos(half), 0 * self.length - half])
        return q, self.speed * jnp.stack(
            [self.length * jnp.cos(half), self.length * jnp.sin(half), 1.0 + 0 * self.slope]
        )

    def outline(self, t: ScalarLike, q: Float[Array, " 3"]) -> tuple[Float[Array, "points 2"], ...]:
        hub = q[:2]
        angles = q[2] + QUARTER / 2 * jnp.arange(4)
        along = self.length * jnp.stack([-jnp.sin(angles), -jnp.cos(angles)], axis=1)
        last = self.length * jnp.array([6.0, 0.0])
        ground = jnp.stack([-0.1 * last, last])
        spokes = [jnp.stack([hub + arm, hub - arm, hub]) for arm in along]
        return tuple(line @ self._down().T for line in (ground, *spokes))

    def contact_points(self, t: ScalarLike, q: Float[Array, " 3"]) -> Float[Array, "2 2"]:
        angles = self.spokes(q)
        tips = q[:2] - self.length * jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=1)
        return tips @ self._down().T

    def _down(self):
        """Turns vectors along and across the slope to horizontal and vertical ones."""
        c, s = jnp.cos(self.slope), jnp.sin(self.slope)
        return jnp.stack([jnp.stack([c, s]), jnp.stack([-s, c])])
