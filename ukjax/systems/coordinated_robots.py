"""The two coordinated robots of Liu et al., IEEE/CAA J. Autom. Sin. 2, 382 (2015), sections V and VI."""

from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from .._constraint import Holonomic
from .._dynamics import MassForce
from .._equation import constrained_motion
from .._precision import as_float
from .._terms import Terms
from ..control import Servo
from .base import AbstractMechanism, Parameter, parameter

ACTUATORS = (  # eq. 70: the motor of each joint turns the next link against the one before
    (1.0, -1.0, 0.0, 0.0, 0.0, 0.0),
    (0.0, 1.0, -1.0, 0.0, 0.0, 0.0),
    (0.0, 0.0, 1.0, 1.0, 0.0, 0.0),
    (0.0, 0.0, 0.0, -1.0, 1.0, 0.0),
    (0.0, 0.0, 0.0, 0.0, -1.0, 1.0),
)


class CoordinatedRobots(AbstractMechanism):
    """Two three-link robots that hold one bar between them, a closed chain of five links, and lift it.

    Three degrees of freedom, six motors: the torques of least norm are taken. Angles θ from the horizontal::

              3            link 3 is the load     M(q) q̈ + C(q, q̇) q̇ + G(q) = B u + Qᶜ        (16), (A2)-(A4)
          o-------o
         /         \\                             loop:  Σ l cos θ = L,   Σ l sin θ = 0         (60)
      2 o           o 4
         \\         /                             task:  x3 = 1.5 l,  y3 = l (1 − cos t)/2,  θ3 = 0    (64)
       1  \\       /  5
       ----+-----+----                            B: eq. 70
           0     L

    (drawn with the elbows out; the start (π/3, −π/3, 0, π/3, −π/3) has them up). Masses [kg], lengths [m], inertias
    about the centres [kg m²]. The paper's law (35) uses the loop force for u = 0, and A M⁻¹B for G: u then
    opens the loop, with 3.4 m/s² at the start (``published``: "printed_law").
    """

    m: Parameter = parameter([1.0] * 5)
    I: Parameter = parameter([1.0] * 5)
    l: Parameter = parameter([1.0] * 5)
    L: Parameter = parameter(3.0)
    g: Parameter = parameter(9.8)
    printed_law: bool = eqx.field(default=False, static=True)

    end: ClassVar[float] = 10.0
    coordinates: ClassVar[Any] = tuple((f"theta{i}", "rad") for i in range(1, 6))

    @property
    def dynamics(self) -> MassForce:
        return MassForce(self.mass_matrix, self.force_with_uncontrolled_loop if self.printed_law else self.force)

    @property
    def constraints(self) -> tuple[Holonomic, ...]:
        return () if self.printed_law else (self.closed,)

    @property
    def control(self) -> Servo:
        inputs = [(f"u{i}", "N m") for i in range(1, 7)]
        secondary = 0 if self.printed_law else None  # the printed law leaves the loop's two directions free
        return Servo(ACTUATORS, self.lift, projected=not self.printed_law, inputs=inputs, secondary=secondary)

    @property
    def enforced(self) -> tuple[Holonomic, ...]:
        return self.closed, self.lift

    @property
    def closed(self) -> Holonomic:
        return Holonomic(self.loop, name=("loop x", "loop y"))

    @property
    def lift(self) -> Holonomic:
        return Holonomic(self.load_error, name=("load x", "load y", "load angle"))

    def mass_matrix(self, t: ScalarLike, q: Float[Array, " 5"]) -> Float[Array, "5 5"]:
        """M(q), eq. A2."""
        M = self._mass_factors() * self.l[:, None] * self.l * jnp.cos(q[:, None] - q)
        return M + jnp.diag(self.I)

    def force(self, t: ScalarLike, q: Float[Array, " 5"], v: Float[Array, " 5"]) -> Float[Array, " 5"]:
        """Q = −C(q, v) v − G(q), eqs. A3 and A4."""
        C = self._mass_factors() * self.l[:, None] * self.l * jnp.sin(q[:, None] - q) * v
        return -C @ v - self._weight_factors() * self.g * self.l * jnp.cos(q)

    def force_with_uncontrolled_loop(self, t: ScalarLike, q: Float[Array, " 5"], v: Float[Array, " 5"]) -> Array:
        """Return Q + Qᶜ of eqs. 56 and 14, with Qᶜ the constraint force of the loop with the motors off."""
        M, Q, (A, b) = self.mass_matrix(t, q), self.force(t, q, v), self.closed.rows(as_float(t), q, v)
        return Q + constrained_motion(Terms(M, Q, A, b)).constraint_force

    def loop(self, t: ScalarLike, q: Float[Array, " 5"]) -> Float[Array, " 2"]:
        """The last link ends at the second base, eq. 60."""
        return jnp.stack([self.l @ jnp.cos(q) - self.L, self.l @ jnp.sin(q)])

    def load(self, q: Float[Array, " 5"]) -> Float[Array, " 3"]:
        """x3, y3 [m] and θ3 [rad] of the load, eq. 65."""
        l = self.l[:3] * jnp.array([1.0, 1.0, 0.5])
        return jnp.stack([l @ jnp.cos(q[:3]), l @ jnp.sin(q[:3]), q[2]])

    def load_error(self, t: ScalarLike, q: Float[Array, " 5"]) -> Float[Array, " 3"]:
        """Return the load minus its desired position, eq. 64, with l of link 3."""
        l = self.l[2]
        return self.load(q) - jnp.stack([1.5 * l, l / 2 * (1 - jnp.cos(t)), 0 * l])

    def start(self) -> tuple[Array, Array]:
        return jnp.array([1.0, -1.0, 0.0, 1.0, -1.0]) * jnp.pi / 3, jnp.zeros(5)

    def reference(self, t: ScalarLike) -> Float[Array, " 5"]:
        """Inverse kinematics of the load, with the elbows of the start, for links of one length."""
        y = (1 - jnp.cos(t)) / 2
        # The first two links reach from the base to the end of the load at (1, y) l.
        reach, bearing = jnp.hypot(1.0, y), jnp.arctan2(y, 1.0)
        half = jnp.arccos(reach / 2)
        first, second = bearing + half, bearing - half
        return jnp.stack([first, second, 0 * first, -second, -first])

    def outline(self, t: ScalarLike, q: Float[Array, " 5"]) -> tuple[Float[Array, "points 2"], ...]:
        steps = self.l[:, None] * jnp.stack([jnp.cos(q), jnp.sin(q)], axis=1)
        joints = jnp.concatenate([jnp.zeros((1, 2)), jnp.cumsum(steps, axis=0)])
        return joints[:3], joints[2:4], joints[:2:-1]

    def published(self) -> "dict[str, CoordinatedRobots]":
        return {"printed_law": replace(self, printed_law=True), "corrected": self}

    def _mass_factors(self):
        """Return the mass factors of eq. A2: all links beyond the later of the two, and that link by its centre."""
        beyond = jnp.cumsum(self.m[::-1])[::-1] - self.m
        i = jnp.arange(5)
        later = jnp.maximum(i[:, None], i)
        own = jnp.where(i[:, None] == i, self.m / 4, self.m[later] / 2)
        return beyond[later] + own

    def _weight_factors(self):
        return jnp.cumsum(self.m[::-1])[::-1] - self.m / 2
