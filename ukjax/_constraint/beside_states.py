"""Constraints of systems whose velocities have further entries at the end, first-order states."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._kinematic_map import KinematicMap, StateMap
from .base import AbstractConstraint, Level, Rows
from .unilateral import AbstractNonsmooth, NonsmoothRows


class BesideStates(AbstractConstraint):
    """A ``constraint`` of the velocities without the last ``states`` entries, which have zero columns in A."""

    constraint: AbstractConstraint
    states: int = eqx.field(static=True)
    name: str | tuple[str, ...] = eqx.field(static=True)
    level: Level = eqx.field(static=True)
    linear: bool = eqx.field(static=True)  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, constraint: AbstractConstraint, states: int):
        self.constraint, self.states, self.name = constraint, states, constraint.name
        self.level, self.linear = constraint.level, constraint.linear

    def at(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Rows:
        evaluated = self.constraint.at(t, q, self._apart(v))
        return evaluated._replace(A=self._padded(evaluated.A))

    def rows(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        A, b = self.constraint.rows(t, q, self._apart(v))
        return self._padded(A), b

    def position(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, " k"]:
        return self.constraint.position(t, q)

    def slope(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "k n"]:
        return self._padded(self.constraint.slope(t, q, self._apart(v)))

    def velocity_slope(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "k n"]:
        return self._padded(self.constraint.velocity_slope(t, q, self._apart(v)))

    def pull(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " m"] | float:
        return self.constraint.pull(t, q, self._apart(v))

    def velocity(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " k"]:
        return self.constraint.velocity(t, q, self._apart(v))

    def _apart(self, v):
        return v[: v.size - self.states]

    def _padded(self, A):
        return jnp.pad(A, ((0, 0), (0, self.states)))


class NonsmoothBesideStates(AbstractNonsmooth):
    """Contacts or dry friction of the velocities without the last ``states`` entries."""

    constraint: AbstractNonsmooth
    states: int = eqx.field(static=True)
    name: str | tuple[str, ...] = eqx.field(static=True)

    def __init__(self, constraint: AbstractNonsmooth, states: int):
        self.constraint, self.states, self.name = constraint, states, constraint.name

    def gaps(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, " m"]:
        return self.constraint.gaps(t, q)

    def slips(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "groups d"]:
        return self.constraint.slips(t, q, self._apart(v))

    def restitutions(self, m: int) -> Float[Array, " m"]:
        return self.constraint.restitutions(m)

    def coefficients(self, groups: int) -> Float[Array, " groups"]:
        return self.constraint.coefficients(groups)

    def limits(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], groups: int) -> Float[Array, " groups"]:
        return self.constraint.limits(t, q, self._apart(v), groups)

    @property
    def has_static(self) -> bool:
        return self.constraint.has_static

    def static_coefficients(self, groups: int) -> Float[Array, " groups"]:
        return self.constraint.static_coefficients(groups)

    def static_limits(
        self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], groups: int
    ) -> Float[Array, " groups"]:
        return self.constraint.static_limits(t, q, self._apart(v), groups)

    def rows(
        self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], kinematic_map: KinematicMap | None
    ) -> NonsmoothRows:
        others = kinematic_map.without(self.states) if isinstance(kinematic_map, StateMap) else kinematic_map
        rows = self.constraint.rows(t, q, self._apart(v), others)
        padded = lambda J: jnp.pad(J, (*((0, 0),) * (J.ndim - 1), (0, self.states)))
        return rows._replace(J=padded(rows.J), slip_J=padded(rows.slip_J))

    def _apart(self, v):
        return v[: v.size - self.states]
