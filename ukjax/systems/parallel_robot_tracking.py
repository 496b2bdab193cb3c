"""Trajectory tracking of the planar parallel robot, Han et al., Appl. Math. Mech. 41 (2020), section 4.2."""

from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, ScalarLike

from .._constraint import Holonomic
from .._dynamics import MassForce
from .._equation import constrained_motion
from .._precision import as_float
from .._terms import Terms
from ..control import Servo
from .base import Parameter, parameter
from .parallel_robot import AbstractParallelRobot


class ParallelRobotTracking(AbstractParallelRobot):
    """The parallel robot (``AbstractParallelRobot``), whose three motors move the end point along a line.

    The path is a servo constraint on the end of the first chain, in addition to the structure::

        x_E = xe + amplitude cos t,   y_E = ye             (26)
        u = G⁺ b̄,   G = A W B,   b̄ = b − A a              W, a: with the structure, the motors off

    u are the torques of least norm of the three motors [N m]; ``amplitude`` [m]. (xe, ye) is such that the printed
    start is on the path: the paper's xe would have to be x_E(0) − 0.01.

    ``published`` runs the paper's cascade (25), which imposes the path with the unconstrained M: its force also acts
    on bases and passive joints, and the loops open by 4.6 mm in the first second.
    """

    amplitude: Parameter = parameter(0.01)
    printed_cascade: bool = eqx.field(default=False, static=True)

    end: ClassVar[float] = 10.0

    @property
    def dynamics(self) -> MassForce:
        return MassForce(self.mass_matrix, self.force_with_structure if self.printed_cascade else self.force)

    @property
    def constraints(self) -> tuple[Holonomic, ...]:
        return (self.path,) if self.printed_cascade else self.structure

    @property
    def control(self) -> Any:
        if self.printed_cascade:
            return None
        motors = np.eye(12)[:, [0, 4, 8]]
        return Servo(motors, self.path, inputs=[(f"tau{i}", "N m") for i in (1, 2, 3)])

    @property
    def enforced(self) -> tuple[Holonomic, ...]:
        return *self.structure, self.path

    @property
    def path(self) -> Holonomic:
        return Holonomic(self.path_error, name=("path x", "path y"))

    def path_error(self, t: ScalarLike, q: Float[Array, " 12"]) -> Float[Array, " 2"]:
        """φ of eq. 26, at the end of chain 1."""
        return self.line_error(t, q, self.amplitude)

    def force_with_structure(self, t: ScalarLike, q: Float[Array, " 12"], v: Float[Array, " 12"]) -> Array:
        """The force of eq. 22: Q and the constraint force of the structure alone."""
        M, Q = self.mass_matrix(t, q), self.force(t, q, v)
        A, b = (jnp.concatenate(x) for x in zip(*(c.rows(as_float(t), q, v) for c in self.structure), strict=True))
        return Q + constrained_motion(Terms(M, Q, A, b)).constraint_force

    def published(self) -> "dict[str, ParallelRobotTracking]":
        return {"printed_cascade": replace(self, printed_cascade=True), "motors": self}
