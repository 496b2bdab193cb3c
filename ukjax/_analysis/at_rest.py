"""First-order states as coordinates: the system whose equilibria have constant states."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._constraint import AbstractConstraint
from .._constraint.base import Level, Rows
from .._dynamics import AbstractDynamics
from .._kinematic_map import AbstractKinematicMap, StateMap, flow, rate, settled
from .._labels import Named, state_names
from .._system import AbstractSystem, structure_of


class StatesAsCoordinates(AbstractSystem):
    """The system ``plant`` with velocities (v, s), with its states s as coordinates z = (q, s) of unit mass:

        [M 0; 0 I] (v̇, s̈) = (Q(t, q, v, s), f(t, q, v, s)) + (Qᶜ, 0).

    Its equilibria have v = 0, ṡ = f = 0 and balanced forces. Its motions have no physical meaning.
    """

    plant: AbstractSystem
    nq: int = eqx.field(static=True)

    @property
    def dynamics(self) -> "Dynamics":
        return Dynamics(self)

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        return tuple(OfCoordinates(constraint, self.nq) for constraint in structure_of(self.plant))

    @property
    def kinematic_map(self) -> "CoordinateMap":
        return CoordinateMap(self.plant.kinematic_map, self.nq)  # pyright: ignore[reportArgumentType]

    @property
    def coordinates(self) -> Named | None:
        named = self.plant.coordinates
        return None if named is None else (*named, *state_names(self.plant))

    @property
    def velocities(self) -> Named | None:
        named, states = self.plant.velocities, state_names(self.plant)
        rates = ((f"d{name}", f"{unit}/s" if unit else "") for name, unit in states)
        return None if named is None else (*named[: len(named) - len(states)], *rates)

    def nonideal(self, t: Array, z: Float[Array, " nz"], w: Float[Array, " n"]) -> Float[Array, " n"]:
        """The non-ideal force c of the plant, 0 without one."""
        force = self.plant.nonideal
        return jnp.zeros_like(w) if force is None else force(t, *self.state(z, w))

    def state(self, z: Float[Array, " nz"], w: Float[Array, " n"]) -> tuple[Array, Array]:
        """q and (v, s) of the plant."""
        q, s = z[: self.nq], z[self.nq :]
        return q, jnp.concatenate([w[: w.size - s.size], s])


class Dynamics(AbstractDynamics):
    """M and Q of ``StatesAsCoordinates``, with the forces of the control."""

    system: StatesAsCoordinates

    def terms(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        terms = self.system.plant(t, *self.system.state(q, v))
        return terms.M, terms.Q

    def energy(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> None:
        return None


class OfCoordinates(AbstractConstraint):
    """A ``constraint`` of the first ``nq`` coordinates."""

    constraint: AbstractConstraint
    nq: int = eqx.field(static=True)
    name: str | tuple[str, ...] = eqx.field(static=True)
    level: Level = eqx.field(static=True)
    linear: bool = eqx.field(static=True)  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, constraint: AbstractConstraint, nq: int):
        self.constraint, self.nq, self.name = constraint, nq, constraint.name
        self.level, self.linear = constraint.level, constraint.linear

    def at(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Rows:
        return self.constraint.at(t, q[: self.nq], v)

    def rows(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        return self.constraint.rows(t, q[: self.nq], v)

    def position(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, " k"]:
        return self.constraint.position(t, q[: self.nq])

    def slope(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "k n"]:
        return self.constraint.slope(t, q[: self.nq], v)

    def velocity_slope(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "k n"]:
        return self.constraint.velocity_slope(t, q[: self.nq], v)

    def pull(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " m"] | float:
        return self.constraint.pull(t, q[: self.nq], v)

    def velocity(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " k"]:
        return self.constraint.velocity(t, q[: self.nq], v)


class CoordinateMap(AbstractKinematicMap):
    """The map of ``StatesAsCoordinates``: q̇ = N(q) v, and ṡ are the last velocities."""

    others: StateMap
    nq: int = eqx.field(static=True)

    def __call__(self, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " nq"]:
        return jnp.concatenate([rate(self.others, q[: self.nq], v), v[v.size - self.others.states :]])

    def settled(self, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
        return jnp.concatenate([settled(self.others, q[: self.nq]), q[self.nq :]])

    def flow(self, q: Float[Array, " nq"], x: Float[Array, " n"]) -> Float[Array, " nq"] | None:
        moved = flow(self.others, q[: self.nq], x)
        return None if moved is None else jnp.concatenate([moved, q[self.nq :] + x[x.size - self.others.states :]])
