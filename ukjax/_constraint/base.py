"""What binds a motion: every constraint is rows A q̈ = b, and says at which level it can be checked."""

import abc
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._compressed import Seeds
from .._kinematic_map import KinematicMap

Level = Literal["position", "velocity", "acceleration"]


class Rows(NamedTuple):
    """A constraint at one state: its ``position`` and ``velocity`` residual, and A (m, n) and b (m,) in A q̈ = b."""

    position: Float[Array, " k"]
    velocity: Float[Array, " l"]
    A: Float[Array, "m n"]
    b: Float[Array, " m"]

    def missed(self, acceleration: Float[Array, " n"]) -> Float[Array, " m"]:
        """A q̈ − b."""
        return self.A @ acceleration - self.b

    def as_written(self, acceleration: Float[Array, " n"]) -> Float[Array, " m"]:
        """What was written: φ, or ψ, or A q̈ − b."""
        return next((x for x in (self.position, self.velocity) if x.size), self.missed(acceleration))


class AbstractConstraint(eqx.Module):
    """Rows A(t, q, v) q̈ = b(t, q, v), and the statement they come from.

    ``name`` is what errors and tables call it: one for all rows, or one for each. ``level`` says whether the statement
    is one about positions, velocities or accelerations, ``linear`` whether it is linear in the velocities.
    """

    name: eqx.AbstractVar[str | tuple[str, ...]]
    if TYPE_CHECKING:  # a field or a class attribute

        @property
        def level(self) -> Level: ...
        @property
        def linear(self) -> bool: ...
    else:
        level: eqx.AbstractVar[Level]
        linear: ClassVar[bool] = True

    @abc.abstractmethod
    def rows(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        """A (m, n) and b (m,), with whatever stabilisation the constraint carries."""

    def at(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Rows:
        """All of it at once, for those who need more than one of these."""
        return Rows(self.position(t, q), self.velocity(t, q, v), *self.rows(t, q, v))

    def by_seeds(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], seeds: Seeds) -> Rows:
        """The same with A times the seeds, (m, seeds), in the place of A."""
        found = self.at(t, q, v)
        return found._replace(A=found.A @ seeds.matrix)

    @abc.abstractmethod
    def position(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, " k"]:
        """What must vanish of t and q alone: (m,) for a holonomic constraint, (0,) for the others."""

    def slope(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "k n"]:
        """The derivative of ``position`` by what moves it, φ_q N."""
        found = jax.jacfwd(self.position, argnums=1)(t, q)
        return found if found.shape[0] else jnp.zeros((0, v.size), q.dtype)

    def velocity_slope(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "k n"]:
        """The derivative of ``velocity`` by v: of a statement about positions the same as the other."""
        return self.slope(t, q, v) if self.level == "position" else jax.jacfwd(self.velocity, argnums=2)(t, q, v)

    def under(self, kinematic_map: KinematicMap | None) -> "AbstractConstraint":
        """The same statement where q̇ = N(q) v is what ``kinematic_map(q, v)`` returns."""
        return self

    def pull(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " m"] | float:
        """The size of the part of b with which a stabilisation pulls a violated constraint back."""
        return 0.0

    @abc.abstractmethod
    def velocity(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " k"]:
        """What must vanish of t, q and v: (m,), or (0,) for a constraint given by A and b alone."""


def nothing(q: Float[Array, " nq"]) -> Float[Array, " 0"]:
    """No rows."""
    return jnp.zeros((0,), q.dtype)


def with_kinematic_map(constraint: AbstractConstraint, kinematic_map: KinematicMap | None) -> AbstractConstraint:
    """One with another ``kinematic_map``."""
    return eqx.tree_at(lambda c: c.kinematic_map, constraint, kinematic_map, is_leaf=lambda x: x is None)
