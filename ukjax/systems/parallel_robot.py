"""The planar parallel robot of Han et al., Appl. Math. Mech. 41 (2020), section 4.1."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, ScalarLike

from .._constraint import Holonomic
from ..control import Feedback
from . import chain
from .base import Parameter, parameter


class AbstractParallelRobot(chain.AbstractThreeChains):
    """Three two-link chains, each with its base among its coordinates, tied to the ground and to one another::

            A2     A3                 chain i: (qa, qb, xa, ya) [rad, rad, m, m], qb relative to link a
             \\    /
              o  o                    M_i q̈_i + C_i q̇_i = τ_i + Qᶜ_i                       (13), (14)
              | /
        A1-o--E                       bases:  xa_i = x(A_i),  ya_i = y(A_i)                 (16)
                                      loops:  E_1 = E_2,  E_1 = E_3                          (18)

    No gravity. Twelve coordinates, ten constraints; parameters [m, kg, kg m²] of table 2: see ``AbstractThreeChains``.
    """

    coordinates: ClassVar[Any] = tuple(
        (f"{name}{i}", unit)
        for i in (1, 2, 3)
        for name, unit in (("qa", "rad"), ("qb", "rad"), ("xa", "m"), ("ya", "m"))
    )

    @property
    def constraints(self) -> tuple[Holonomic, ...]:
        return self.structure

    @property
    def structure(self) -> tuple[Holonomic, Holonomic]:
        bases = tuple(f"base {i} {axis}" for i in (1, 2, 3) for axis in "xy")
        return Holonomic(self.base_error, name=bases), self.loops

    def chains(self, q: Float[Array, " 12"]) -> tuple[Array, Array, Array]:
        qa, qb, xa, ya = q.reshape(3, 4).T
        return qa, qb, jnp.stack([xa, ya], axis=1)

    def mass_matrix(self, t: ScalarLike, q: Float[Array, " 12"]) -> Float[Array, "12 12"]:
        """M, eq. 14, a 4 × 4 block for each chain."""
        qa, qb = q.reshape(3, 4).T[:2]
        M11, M12, M22 = self.inertia.joint_matrix(qb)
        first = self.ma * self.ra + self.mb * self.L
        second = self.mb * self.rb
        M13 = -(first * jnp.sin(qa) + second * jnp.sin(qa + qb))
        M14 = first * jnp.cos(qa) + second * jnp.cos(qa + qb)
        M23, M24 = -second * jnp.sin(qa + qb), second * jnp.cos(qa + qb)
        M33, zero = self.ma + self.mb, 0 * qa
        blocks = jnp.array([[M11, M12, M13, M14], [M12, M22, M23, M24], [M13, M23, M33, zero], [M14, M24, zero, M33]])
        return jax.scipy.linalg.block_diag(*jnp.moveaxis(blocks, -1, 0))

    def force(self, t: ScalarLike, q: Float[Array, " 12"], v: Float[Array, " 12"]) -> Float[Array, " 12"]:
        """Q = −C(q, v) v."""
        (qa, qb), (va, vb) = q.reshape(3, 4).T[:2], v.reshape(3, 4).T[:2]
        load = self.inertia.joint_load(qb, va, vb)
        first = (self.ma * self.ra + self.mb * self.L) * va**2
        second = self.mb * self.rb * (va + vb) ** 2
        inertial = -(first[:, None] * chain.direction(qa) + second[:, None] * chain.direction(qa + qb))
        return -jnp.concatenate([jnp.stack(load, axis=1), inertial], axis=1).reshape(-1)

    def base_error(self, t: ScalarLike, q: Float[Array, " 12"]) -> Float[Array, " 6"]:
        """φ of eq. 16."""
        return (q.reshape(3, 4)[:, 2:] - self.bases).reshape(-1)

    def start(self) -> tuple[Array, Array]:
        """As printed: the chains meet to 3.5e-5 m."""
        q = jnp.stack([jnp.array(x) for x in (chain.ACTIVE, chain.PASSIVE, chain.BASE_X, chain.BASE_Y)], axis=1)
        return q.reshape(-1), jnp.zeros(12)


class ParallelRobot(AbstractParallelRobot):
    """The parallel robot under one torque, τ = ``torque`` cos(π t) [N m] on qa1; see ``AbstractParallelRobot``."""

    torque: Parameter = parameter(0.1)

    end: ClassVar[float] = 10.0

    @property
    def control(self) -> Feedback:
        motor = np.eye(12)[:, :1]
        return Feedback(motor, lambda t, q, v: self.torque * jnp.cos(jnp.pi * t), inputs=(("tau1", "N m"),))
