"""A slider-crank whose slider has play in its guide: Flores, Leine & Glocker, Multibody Syst. Dyn. 23 (2010)."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from .._constraint import Unilateral
from .._dynamics import Lagrangian
from .base import AbstractMechanism, Parameter, parameter


class ClearanceSliderCrank(AbstractMechanism):
    """A crank and a rod move a slider of 100 mm × 50 mm, whose guide is 2 mm higher: the four corners hit it::

             ═══════════════════════════════   guide, at ±(b + clearance)
              l2    [1    2]
         l1 .-------[  o   ]                   angles of crank, rod and slider to the x axis
           o        [3    4]
             ═══════════════════════════════

    The centre of the slider is (l1 cos θ1 + l2 cos θ2, l1 sin θ1 + l2 sin θ2), the centres of crank and rod are in
    their middle. The distance of each of the four corners to the guide is a gap, with the restitution ``e`` and
    the friction ``mu``. No motor drives the crank: it has 150 rad/s at the start, and slows down. Lengths [m], masses
    [kg], inertias [kg m²], ``g`` [m/s²]; the numbers are those of the source.

    The motion has no closed form. Event-driven steps and an independent program agree on 2.878107
    revolutions after 0.2 s; a published file of another program, with steps of 0.1 ms, has 3.054, and 15 % more energy
    than the start, which no force supplies.
    """

    l1: Parameter = parameter(0.153)
    l2: Parameter = parameter(0.306)
    a: Parameter = parameter(0.05)
    b: Parameter = parameter(0.025)
    clearance: Parameter = parameter(0.001)
    m1: Parameter = parameter(0.038)
    m2: Parameter = parameter(0.038)
    m3: Parameter = parameter(0.076)
    J1: Parameter = parameter(7.4e-5)
    J2: Parameter = parameter(5.9e-4)
    J3: Parameter = parameter(2.7e-6)
    e: Parameter = parameter(0.4)
    mu: Parameter = parameter(0.01)
    g: Parameter = parameter(9.81)

    end: ClassVar[float] = 0.2
    constraints: ClassVar[tuple[()]] = ()
    coordinates: ClassVar[Any] = (("theta1", "rad"), ("theta2", "rad"), ("theta3", "rad"))

    @property
    def dynamics(self) -> Lagrangian:
        masses, inertias = jnp.stack([self.m1, self.m2, self.m3]), jnp.stack([self.J1, self.J2, self.J3])

        def kinetic(t, q, v):
            velocities = jax.jvp(self._centres, (q,), (v,))[1]
            return (masses @ jnp.sum(velocities**2, axis=1) + inertias @ v**2) / 2

        return Lagrangian(kinetic, lambda t, q: self.g * masses @ self._centres(q)[:, 1])

    @property
    def nonsmooth(self) -> tuple[Unilateral]:
        side = jnp.array([-1.0, -1.0, 1.0, 1.0])
        gap = lambda t, q: self.b + self.clearance + side * self._corners(q)[:, 1]
        slip = lambda t, q, v: jax.jvp(self._corners, (q,), (v,))[1][:, 0]
        return (Unilateral(gap, self.e, self.mu, slip, name=tuple(f"corner {i}" for i in range(1, 5))),)

    def start(self) -> tuple[Array, Array]:
        return jnp.zeros(3), jnp.array([150.0, -75.0, 0.0])

    def _centres(self, q):
        """Centres of crank, rod and slider (3, 2)."""
        crank = self.l1 * jnp.stack([jnp.cos(q[0]), jnp.sin(q[0])])
        rod = self.l2 * jnp.stack([jnp.cos(q[1]), jnp.sin(q[1])])
        return jnp.stack([crank / 2, crank + rod / 2, crank + rod])

    def _corners(self, q):
        """Corners of the slider (4, 2), the upper two first."""
        corners = jnp.array([[-1.0, 1.0], [1, 1], [-1, -1], [1, -1]]) * jnp.stack([self.a, self.b])
        c, s = jnp.cos(q[2]), jnp.sin(q[2])
        return self._centres(q)[2] + corners @ jnp.stack([jnp.stack([c, s]), jnp.stack([-s, c])])

    def outline(self, t: ScalarLike, q: Float[Array, " 3"]) -> tuple[Float[Array, "points 2"], ...]:
        crank, _, slider = self._centres(q)
        arms = jnp.stack([0 * crank, 2 * crank, slider])
        box = self._corners(q)[jnp.array([0, 1, 3, 2, 0])]
        ends = jnp.stack([self.l2 - self.l1 - 2 * self.a, self.l1 + self.l2 + 2 * self.a])
        guide = lambda side: jnp.stack([ends, side * (self.b + self.clearance) + 0 * ends], axis=1)
        return guide(1), guide(-1), arms, box

    def contact_points(self, t: ScalarLike, q: Float[Array, " 3"]) -> Float[Array, "4 2"]:
        return self._corners(q)
