"""The double pendulum as two free rods and two pins."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from .._constraint import Holonomic
from .._dynamics import Lagrangian
from .base import AbstractMechanism, Parameter, parameter


class DoublePendulum(AbstractMechanism):
    """Two uniform rods as free bodies in the plane, with a pin to the ground and a pin between them::

            pivot o ------ x            q = (x1, y1, theta1, x2, y2, theta2): centres, angles from the vertical
                   \\
            (x1, y1) \\  theta1          T = Σ m (ẋ² + ẏ²)/2 + m l² θ̇²/24,    V = Σ m g y
                       o elbow
                       |                pivot:  c1 − l1 n1/2 = 0
                       | (x2, y2)       elbow:  c2 − l2 n2/2 = c1 + l1 n1/2,    n = (sin θ, −cos θ)
                       |

    The constraint force on (x2, y2) is the force of the elbow on the second rod. That on (x1, y1) is the force of the
    pivot minus that of the elbow. Both rods start at rest and level. ``m1``, ``m2`` [kg], ``l1``, ``l2`` [m], ``g``
    [m/s²]. A standard example; the numbers are the gallery's own.
    """

    m1: Parameter = parameter(1.0)
    m2: Parameter = parameter(0.5)
    l1: Parameter = parameter(1.0)
    l2: Parameter = parameter(0.7)
    g: Parameter = parameter(9.81)

    end: ClassVar[float] = 5.0
    coordinates: ClassVar[Any] = (
        ("x1", "m"),
        ("y1", "m"),
        ("theta1", "rad"),
        ("x2", "m"),
        ("y2", "m"),
        ("theta2", "rad"),
    )

    @property
    def dynamics(self) -> Lagrangian:
        return Lagrangian(self.kinetic, self.potential)

    @property
    def constraints(self) -> tuple[Holonomic, Holonomic]:
        pivot = Holonomic(self.pivot_error, name=("pivot x", "pivot y"))
        elbow = Holonomic(self.elbow_error, name=("elbow x", "elbow y"))
        return pivot, elbow

    def kinetic(self, t: ScalarLike, q: Float[Array, " 6"], v: Float[Array, " 6"]) -> Array:
        first, second = self.m1 * self.l1**2 / 12, self.m2 * self.l2**2 / 12
        return jnp.stack([self.m1, self.m1, first, self.m2, self.m2, second]) @ v**2 / 2

    def potential(self, t: ScalarLike, q: Float[Array, " 6"]) -> Array:
        return self.g * (self.m1 * q[1] + self.m2 * q[4])

    def ends(self, q: Float[Array, " 6"]) -> Float[Array, "2 2 2"]:
        """Upper and lower end of each rod: rod, end, (x, y) [m]."""
        return jnp.stack([self._ends(q[:3], self.l1), self._ends(q[3:], self.l2)])

    def pivot_error(self, t: ScalarLike, q: Float[Array, " 6"]) -> Float[Array, " 2"]:
        """The first rod's upper end."""
        return self.ends(q)[0, 0]

    def elbow_error(self, t: ScalarLike, q: Float[Array, " 6"]) -> Float[Array, " 2"]:
        """The second rod's upper end from the first one's lower end."""
        ends = self.ends(q)
        return ends[1, 0] - ends[0, 1]

    def start(self) -> tuple[Array, Array]:
        zero, level = 0 * self.l1, 0 * self.l1 + jnp.pi / 2
        q = jnp.stack([self.l1 / 2, zero, level, self.l1 + self.l2 / 2, zero, level])
        return q, jnp.zeros(6)

    def outline(self, t: ScalarLike, q: Float[Array, " 6"]) -> tuple[Float[Array, "points 2"], ...]:
        return tuple(self.ends(q))

    def _ends(self, rod, length):
        half = length / 2 * jnp.stack([jnp.sin(rod[2]), -jnp.cos(rod[2])])
        return jnp.stack([rod[:2] - half, rod[:2] + half])
