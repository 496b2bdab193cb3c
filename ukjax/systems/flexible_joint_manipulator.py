"""The flexible-joint manipulator of Zhao et al., Chin. J. Mech. Eng. 31, 106 (2018), section 8.3."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, ScalarLike

from .._constraint import AccelerationConstraint
from .._dynamics import MassForce
from .._equation import constrained_motion
from .._terms import Terms
from ..control import Feedback, Servo
from .base import AbstractMechanism, Parameter, parameter

A = (1.0, 1.0)  # eq. 70
LINKS, MOTORS = (1, 3), (0, 2)


class FlexibleJointManipulator(AbstractMechanism):
    """Two hanging links in a row, each pulled by its motor through a torsion spring.

    q = (q1, q2, q3, q4): motor 1, link 1, motor 2, link 2 [rad], link 2 measured from link 1::

        ----+----
             \\  q2, q1            D(q_l) q̈_l + C q̇_l + G + K (q_l − q_m) = 0
              \\                   J q̈_m − K (q_l − q_m) = u                       (66)
               o
              /  q4, q3            task:  β = q̇2 + q̇4,   β̇ = −P⁻¹ β               (69), (72)
             /

    Because of the springs, the motors do not act on the accelerations of the links. Eq. 72 is the required value of
    K q_m, not the motor torque as stated in the paper. Therefore the motors are controlled to the angles where K q_m
    equals it: a servo task for the motors that differentiates (72) twice along the motion, with the decay rate ``rate``
    [1/s]. They start at these angles. ``published`` applies eq. 72 as the torque of the motors ("torque"): β does not
    decay.

    Masses [kg], lengths [m], inertias [kg m²], springs K [N m/rad]. P [s] is not given in the paper; 0.2 brings β
    below 1e-4 of its start within 2 s.
    """

    m1: Parameter = parameter(1.0)
    m2: Parameter = parameter(1.0)
    l1: Parameter = parameter(1.0)
    lc1: Parameter = parameter(0.5)
    lc2: Parameter = parameter(0.5)
    I1: Parameter = parameter(1.0)
    I2: Parameter = parameter(1.0)
    J1: Parameter = parameter(1.0)
    J2: Parameter = parameter(1.0)
    K1: Parameter = parameter(1.0)
    K2: Parameter = parameter(1.0)
    g: Parameter = parameter(9.81)
    P: Parameter = parameter(0.2)
    rate: Parameter = parameter(20.0)
    as_torque: bool = eqx.field(default=False, static=True)

    end: ClassVar[float] = 5.0
    constraints: ClassVar[tuple[()]] = ()
    coordinates: ClassVar[Any] = tuple((f"q{i}", "rad") for i in range(1, 5))

    @property
    def dynamics(self) -> MassForce:
        return MassForce(self.mass_matrix, self.force)

    @property
    def control(self) -> Servo | Feedback:
        motors = np.eye(4)[:, MOTORS]
        inputs = (("u1", "N m"), ("u2", "N m"))
        if self.as_torque:
            return Feedback(motors, lambda t, q, v: self.spring_torque(q, v), inputs=inputs)
        task = AccelerationConstraint(motors.T, self.motor_acceleration, name=("motor 1", "motor 2"))
        return Servo(motors, task, projected=False, inputs=inputs)

    def link_mass_matrix(self, q: Float[Array, " 4"]) -> Float[Array, "2 2"]:
        """D, eq. 68."""
        h = self.m2 * self.l1 * self.lc2 * jnp.cos(q[3])
        d22 = self.m2 * self.lc2**2 + self.I2
        d12 = d22 + h
        d11 = self.m2 * self.l1**2 + self.m1 * self.lc1**2 + self.I1 + d22 + 2 * h
        return jnp.stack([jnp.stack([d11, d12]), jnp.stack([d12, d22])])

    def link_load(self, q: Float[Array, " 4"], v: Float[Array, " 4"]) -> Float[Array, " 2"]:
        """C q̇ + G of the links, eqs. 67 and 68 (c11 with m2, where m1 is printed)."""
        h = self.m2 * self.l1 * self.lc2 * jnp.sin(q[3])
        lower = self.m2 * self.lc2 * self.g * jnp.sin(q[1] + q[3])
        upper = (self.m1 * self.lc1 + self.m2 * self.l1) * self.g * jnp.sin(q[1])
        return jnp.stack([-h * (2 * v[1] + v[3]) * v[3] + upper + lower, h * v[1] ** 2 + lower])

    def mass_matrix(self, t: ScalarLike, q: Float[Array, " 4"]) -> Float[Array, "4 4"]:
        links = jnp.array(LINKS)
        rotors = jnp.diag(jnp.stack([self.J1, 0 * self.J1, self.J2, 0 * self.J2]))
        return rotors.at[links[:, None], links].set(self.link_mass_matrix(q))

    def force(self, t: ScalarLike, q: Float[Array, " 4"], v: Float[Array, " 4"]) -> Float[Array, " 4"]:
        load, (s1, s2) = self.link_load(q, v), self.K * (q[jnp.array(LINKS)] - q[jnp.array(MOTORS)])
        return jnp.stack([s1, -load[0] - s1, s2, -load[1] - s2])

    @property
    def K(self) -> Float[Array, " 2"]:
        return jnp.stack([self.K1, self.K2])

    def spring_torque(self, q: Float[Array, " 4"], v: Float[Array, " 4"]) -> Float[Array, " 2"]:
        """Return the required K q_m, eq. 72: the constraint force of β̇ = 0 on the links, and −D Aᵀ (A Aᵀ)⁻¹ P⁻¹ β."""
        row, D = jnp.array([A]), self.link_mass_matrix(q)
        links = jnp.array(LINKS)
        links_alone = Terms(D, -self.link_load(q, v) - self.K * q[links], row, jnp.zeros(1))
        follow = constrained_motion(links_alone).constraint_force
        return follow - D @ row[0] / (row[0] @ row[0]) * (row[0] @ v[links]) / self.P

    def motor_goal(self, q: Float[Array, " 4"], v: Float[Array, " 4"]) -> Float[Array, " 2"]:
        """Return the desired angles of the motors [rad]."""
        return self.spring_torque(q, v) / self.K

    def motor_goal_rate(self, q: Float[Array, " 4"], v: Float[Array, " 4"]) -> Float[Array, " 2"]:
        """Return the rates of the desired angles of the motors [rad/s]."""
        return self._along(self.motor_goal)(q, v)

    def motor_acceleration(self, t: ScalarLike, q: Float[Array, " 4"], v: Float[Array, " 4"]) -> Float[Array, " 2"]:
        """Return q̈_m that tracks the desired angles; errors decay with ``rate``."""
        motors = jnp.array(MOTORS)
        position_error = q[motors] - self.motor_goal(q, v)
        velocity_error = v[motors] - self.motor_goal_rate(q, v)
        return self._along(self.motor_goal_rate)(q, v) - 2 * self.rate * velocity_error - self.rate**2 * position_error

    def start(self) -> tuple[Array, Array]:
        return self.placed(jnp.zeros(4), jnp.array([0.0, 1.0, 0.0, -0.1]))

    def placed(self, q: Float[Array, " 4"], v: Float[Array, " 4"]) -> tuple[Array, Array]:
        """Set the motors to their desired angles and rates."""
        motors = jnp.array(MOTORS)
        q = q.at[motors].set(self.motor_goal(q, v))
        return q, v.at[motors].set(self.motor_goal_rate(q, v))

    def task_error(self, t: ScalarLike, q: Float[Array, " 4"], v: Float[Array, " 4"]) -> Float[Array, " 1"]:
        """β, eq. 69."""
        return v[1:2] + v[3:4]

    def outline(self, t: ScalarLike, q: Float[Array, " 4"]) -> tuple[Float[Array, "points 2"], ...]:
        def below(angle, length):
            return length * jnp.stack([jnp.sin(angle), -jnp.cos(angle)])

        elbow = below(q[1], self.l1)
        return (jnp.stack([jnp.zeros(2), elbow, elbow + below(q[1] + q[3], 2 * self.lc2)]),)

    def published(self) -> "dict[str, FlexibleJointManipulator]":
        return {"torque": replace(self, as_torque=True), "goal": self}

    def _along(self, function: Callable) -> Callable:
        """Return the derivative along the motion of a function of the state of the links and the angles of the motors.

        It does not depend on the acceleration of the motors, and so not on u.
        """

        def rate(q, v):
            D, (s1, s2) = self.link_mass_matrix(q), self.force(jnp.zeros(()), q, v)[jnp.array(LINKS)]
            determinant = D[0, 0] * D[1, 1] - D[0, 1] ** 2
            a1, a2 = (D[1, 1] * s1 - D[0, 1] * s2) / determinant, (D[0, 0] * s2 - D[0, 1] * s1) / determinant
            acceleration = jnp.stack([0 * a1, a1, 0 * a2, a2])
            return jax.jvp(function, (q, v), (v, acceleration))[1]

        return rate
