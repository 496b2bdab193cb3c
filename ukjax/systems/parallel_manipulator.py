"""The redundant 2-DOF RRR parallel manipulator, modelled by the Udwadia–Kalaba equation in Adv. Mech. Eng. (2017)."""

from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, ScalarLike

from .._constraint import Holonomic
from ..control import Servo
from . import chain
from .base import Parameter, parameter


class ParallelManipulator(chain.AbstractThreeChains):
    """Three two-link chains from fixed motors to one point, which traces a straight line along x::

            A2     A3                 q = (qa1, qb1, qa2, qb2, qa3, qb3) [rad], qb relative to link a
             \\    /
              o  o                    M(q) q̈ + C(q, q̇) q̇ = B u + Qᶜ
              | /
        A1-o--E                       loops:  E_1 = E_2,  E_1 = E_3
                                      path:   x_E = x_E(0) + amplitude (cos t − 1),   y_E = y_E(0)

    Two degrees of freedom, three motors: torques of least norm. ``published`` gives the paper's inverse dynamics
    ("uk_force"): loops and path together as constraints of the Udwadia–Kalaba equation, whose force acts on the
    passive joints as well, where there is no motor. Its formulas and tables are missing in the text available to us;
    links, bases and start are those of Han et al. 2020 (the same robot), the path is that of its section 4.2.
    """

    amplitude: Parameter = parameter(0.01)
    force_on_all_joints: bool = eqx.field(default=False, static=True)

    end: ClassVar[float] = 10.0
    coordinates: ClassVar[Any] = tuple((f"{name}{i}", "rad") for i in (1, 2, 3) for name in ("qa", "qb"))

    @property
    def constraints(self) -> tuple[Holonomic, ...]:
        return (self.loops, self.path) if self.force_on_all_joints else (self.loops,)

    @property
    def control(self) -> Any:
        if self.force_on_all_joints:
            return None
        motors = np.eye(6)[:, [0, 2, 4]]
        return Servo(motors, self.path, inputs=[(f"tau{i}", "N m") for i in (1, 2, 3)])

    @property
    def path(self) -> Holonomic:
        return Holonomic(self.path_error, name=("path x", "path y"))

    def chains(self, q: Float[Array, " 6"]) -> tuple[Array, Array, Array]:
        return q[::2], q[1::2], self.bases

    def mass_matrix(self, t: ScalarLike, q: Float[Array, " 6"]) -> Float[Array, "6 6"]:
        """M, a 2 × 2 block for each chain."""
        M11, M12, M22 = self.inertia.joint_matrix(q[1::2])
        blocks = jnp.array([[M11, M12], [M12, M22]])
        return jax.scipy.linalg.block_diag(*jnp.moveaxis(blocks, -1, 0))

    def force(self, t: ScalarLike, q: Float[Array, " 6"], v: Float[Array, " 6"]) -> Float[Array, " 6"]:
        """Q = −C(q, v) v."""
        return -jnp.stack(self.inertia.joint_load(q[1::2], v[::2], v[1::2]), axis=1).reshape(-1)

    def path_error(self, t: ScalarLike, q: Float[Array, " 6"]) -> Float[Array, " 2"]:
        """Return the distance of the end of chain 1 from the line, x and y [m]."""
        return self.line_error(t, q, self.amplitude)

    def start(self) -> tuple[Array, Array]:
        q = jnp.stack([jnp.array(chain.ACTIVE), jnp.array(chain.PASSIVE)], axis=1)
        return q.reshape(-1), jnp.zeros(6)

    def published(self) -> "dict[str, ParallelManipulator]":
        return {"uk_force": replace(self, force_on_all_joints=True), "motors": self}
