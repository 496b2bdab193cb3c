"""The SCARA robot of Xu & Liu, Adv. Mech. Eng. 9(10) (2017), doi 10.1177/1687814017728450."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, ScalarLike

from .._constraint import Holonomic
from .._dynamics import MassForce
from .base import AbstractMechanism, Parameter, parameter


class Scara(AbstractMechanism):
    """Three revolute joints and a sliding one, whose tool is made to climb along a circular helix.

    Seen from above, at q = 0 stretched along y; the tool slides along z::

              y                    q = (q1, q2, q3, q4) [rad, rad, rad, m]
              |     o tool, q3     M(q) q̈ + C(q, q̇) q̇ + G = Qᶜ           (11), (34)-(36)
              |    / l2
              |   o q2             φ1 = −l1 s1 − l2 s12 − radius sin ωt
              |  / l1              φ2 =  l1 c1 + l2 c12 − distance − radius cos ωt
              | /                  φ3 =  q1 + q2 + q3
          ----o q1 ---- x          φ4 =  q4 + l0 − rise t                 (48)

    The constraints are stabilised with the paper's α, β in φ̈ + α φ̇ + β φ = 0 (52). Four constraints determine four
    coordinates: the motion is known in advance (``reference``), and Qᶜ is the joint torque [N m] and force [N] that
    enforces it. Masses [kg], lengths [m], inertias about the links' centres [kg m²], ``omega`` [rad/s], ``rise`` [m/s].
    The paper's start angles lack two minus signs, restored here; see the notebook ``scara``.
    """

    m1: Parameter = parameter(20.0)
    m2: Parameter = parameter(15.0)
    m3: Parameter = parameter(15.0)
    m4: Parameter = parameter(0.5)
    l0: Parameter = parameter(0.0)
    l1: Parameter = parameter(0.2)
    l2: Parameter = parameter(0.25)
    r1: Parameter = parameter(0.1)
    r2: Parameter = parameter(0.125)
    Iz1: Parameter = parameter(0.27)
    Iz2: Parameter = parameter(0.31)
    Iz3: Parameter = parameter(0.02)
    Iz4: Parameter = parameter(0.0001)
    g: Parameter = parameter(9.81)
    radius: Parameter = parameter(0.05)
    distance: Parameter = parameter(0.35)
    omega: Parameter = parameter(0.4 * jnp.pi)
    rise: Parameter = parameter(0.02)
    alpha: Parameter = parameter(0.5)
    beta: Parameter = parameter(200.0)

    end: ClassVar[float] = 20.0
    coordinates: ClassVar[Any] = (("q1", "rad"), ("q2", "rad"), ("q3", "rad"), ("q4", "m"))

    @property
    def dynamics(self) -> MassForce:
        return MassForce(self.mass_matrix, self.force)

    @property
    def constraints(self) -> tuple[Holonomic]:
        names = ("tool x", "tool y", "tool orientation", "tool z")
        return (Holonomic(self.tool_error, self.alpha, self.beta, name=names),)

    def mass_matrix(self, t: ScalarLike, q: Float[Array, " 4"]) -> Float[Array, "4 4"]:
        """M(q), eq. 34."""
        alpha = self.Iz1 + self.r1**2 * self.m1 + self.l1**2 * (self.m2 + self.m3 + self.m4)
        beta = self.Iz2 + self.Iz3 + self.Iz4 + self.l2**2 * (self.m3 + self.m4) + self.m2 * self.r2**2
        gamma_c2 = self._gamma() * jnp.cos(q[1])
        delta = self.Iz3 + self.Iz4
        return jnp.array(
            [
                [alpha + beta + 2 * gamma_c2, beta + gamma_c2, delta, 0],
                [beta + gamma_c2, beta, delta, 0],
                [delta, delta, delta, 0],
                [0, 0, 0, self.m4],
            ]
        )

    def force(self, t: ScalarLike, q: Float[Array, " 4"], v: Float[Array, " 4"]) -> Float[Array, " 4"]:
        """Q = −C(q, v) v − G, eqs. 35 and 36."""
        gamma_s2 = self._gamma() * jnp.sin(q[1])
        coriolis = [-gamma_s2 * (2 * v[0] + v[1]) * v[1], gamma_s2 * v[0] ** 2, 0, self.m4 * self.g]
        return -jnp.array(coriolis)

    def tool(self, q: Float[Array, " 4"]) -> Float[Array, " 4"]:
        """Position x, y, z [m] and orientation [rad] of the tool, eq. 39."""
        s1, s12, c1, c12 = jnp.sin(q[0]), jnp.sin(q[0] + q[1]), jnp.cos(q[0]), jnp.cos(q[0] + q[1])
        x, y = -self.l1 * s1 - self.l2 * s12, self.l1 * c1 + self.l2 * c12
        return jnp.array([x, y, self.l0 + q[3], q[0] + q[1] + q[2]])

    def outline(self, t: ScalarLike, q: Float[Array, " 4"]) -> tuple[Float[Array, "points 3"], ...]:
        x, y, z, _ = self.tool(q)
        top = self.l0 + self.rise * self.end + 0.05  # the arm is drawn above the whole stroke of the tool
        elbow = (-self.l1 * jnp.sin(q[0]), self.l1 * jnp.cos(q[0]))
        return (jnp.array([(0, 0, 0), (0, 0, top), (*elbow, top), (x, y, top), (x, y, z)]),)

    def path(self, t: ScalarLike) -> Float[Array, " 4"]:
        """Return the desired position and orientation of the tool, eqs. 40 and 46."""
        phase = self.omega * t
        return jnp.array(
            [self.radius * jnp.sin(phase), self.distance + self.radius * jnp.cos(phase), self.rise * t, 0 * t]
        )

    def tool_error(self, t: ScalarLike, q: Float[Array, " 4"]) -> Float[Array, " 4"]:
        """φ(t, q), eq. 48, in the order x, y, orientation, z."""
        x, y, z, orientation = self.tool(q) - self.path(t)
        return jnp.stack([x, y, orientation, z])

    def start(self) -> tuple[Array, Array]:
        q0, v0 = np.append(np.deg2rad([-30.0, 55.0, -24.0]), 0.0), [-0.157, 1e-4, 0.157, 0.0195]
        return jnp.array(q0), jnp.array(v0)

    def reference(self, t: ScalarLike) -> Float[Array, " 4"]:
        """The inverse kinematics of the path, with the elbow as in the paper (q2 > 0); NaN where out of reach."""
        x, y, z, _ = self.path(t)
        c2 = (x**2 + y**2 - self.l1**2 - self.l2**2) / (2 * self.l1 * self.l2)
        q2 = jnp.arccos(c2)
        q1 = jnp.arctan2(-x, y) - jnp.arctan2(self.l2 * jnp.sin(q2), self.l1 + self.l2 * c2)
        return jnp.array([q1, q2, -q1 - q2, z - self.l0])

    def published(self) -> dict[str, "Scara"]:
        without = eqx.tree_at(lambda s: (s.alpha, s.beta), self, (0 * self.alpha, 0 * self.beta))
        return {"without": without, "baumgarte": self}

    def _gamma(self):
        return self.l1 * (self.l2 * (self.m3 + self.m4) + self.m2 * self.r2)
