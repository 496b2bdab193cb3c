"""What a start keeps of what it was given, while all else gives way to the constraints."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._constraint import AbstractConstraint
from .._constraint.base import Level, with_kinematic_map
from .._kinematic_map import KinematicMap, columns
from .._system import AbstractSystem, System


class FixedEntries(AbstractConstraint):
    """q[i] = q0[i] for i in ``of_q``, and v[i] = v0[i] for i in ``of_v``: for a start, not for a motion."""

    q0: Float[Array, " nq"]
    v0: Float[Array, " n"]
    q_entries: tuple[int, ...] = eqx.field(static=True)
    v_entries: tuple[int, ...] = eqx.field(static=True)
    kinematic_map: KinematicMap | None = None
    name: ClassVar[Any] = "what is held of the start"
    level: ClassVar[Level] = "velocity"

    def slope(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "j n"]:
        N = jnp.eye(q.size, dtype=q.dtype) if self.kinematic_map is None else columns(self.kinematic_map, q, v)
        return N[jnp.array(self.q_entries, int)]

    def under(self, kinematic_map: KinematicMap | None) -> AbstractConstraint:
        return with_kinematic_map(self, kinematic_map)

    def rows(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        A = jnp.eye(v.size, dtype=q.dtype)[jnp.array(self.v_entries, int)]
        return A, jnp.zeros(len(self.v_entries), q.dtype)

    def position(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, " k"]:
        at = jnp.array(self.q_entries, int)
        return q[at] - self.q0[at]

    def velocity(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " l"]:
        at = jnp.array(self.v_entries, int)
        return v[at] - self.v0[at]


def with_fixed_entries(
    model: AbstractSystem, q: Array, v: Array, q_entries: tuple[int, ...], v_entries: tuple[int, ...]
) -> AbstractSystem:
    """``model`` at its start, with entries of q and v that stay as they are."""
    if not q_entries and not v_entries:
        return model
    return System(
        model.dynamics, (*model.held, FixedEntries(q, v, q_entries, v_entries)), kinematic_map=model.kinematic_map
    )
