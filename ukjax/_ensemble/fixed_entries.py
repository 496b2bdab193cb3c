"""Constraints that fix swept entries of q0 and v0 while a start is projected onto the constraints."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._constraint import AbstractConstraint
from .._constraint.base import Level, with_kinematic_map
from .._kinematic_map import KinematicMap, columns
from .._system import AbstractSystem, System


class FixedEntries(AbstractConstraint):
    """q[i] = q0[i] for i in ``q_entries``, and v[i] = v0[i] for i in ``v_entries``; for projecting a start only."""

    q0: Float[Array, " nq"]
    v0: Float[Array, " n"]
    q_entries: tuple[int, ...] = eqx.field(static=True)
    v_entries: tuple[int, ...] = eqx.field(static=True)
    kinematic_map: KinematicMap | None = None
    name: ClassVar[Any] = "fixed entries of the start"
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
        entries = jnp.array(self.q_entries, int)
        return q[entries] - self.q0[entries]

    def velocity(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " l"]:
        entries = jnp.array(self.v_entries, int)
        return v[entries] - self.v0[entries]


def with_fixed_entries(
    model: AbstractSystem, q: Array, v: Array, q_entries: tuple[int, ...], v_entries: tuple[int, ...]
) -> AbstractSystem:
    """``model`` with constraints that fix these entries of q and v at their present values."""
    if not q_entries and not v_entries:
        return model
    return System(
        model.dynamics, (*model.enforced, FixedEntries(q, v, q_entries, v_entries)), kinematic_map=model.kinematic_map
    )
