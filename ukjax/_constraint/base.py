"""Abstract base class of constraints, and the record of a constraint evaluated at one state."""

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
    """A constraint evaluated at one state.

    Attributes
    ----------
    position
        Position residual φ (k,); empty for a constraint on velocities or accelerations.
    velocity
        Velocity residual φ̇ or ψ (l,); empty for a constraint on accelerations.
    A, b
        Matrix (m, n) and right-hand side (m,) of A q̈ = b.
    """

    position: Float[Array, " k"]
    velocity: Float[Array, " l"]
    A: Float[Array, "m n"]
    b: Float[Array, " m"]

    def missed(self, acceleration: Float[Array, " n"]) -> Float[Array, " m"]:
        """Return the acceleration residual A q̈ − b (m,)."""
        return self.A @ acceleration - self.b

    def as_written(self, acceleration: Float[Array, " n"]) -> Float[Array, " m"]:
        """Return the residual of the equation as the user wrote it: φ, ψ or A q̈ − b."""
        return next((x for x in (self.position, self.velocity) if x.size), self.missed(acceleration))


class AbstractConstraint(eqx.Module):
    """Constraint that contributes rows A(t, q, v) q̈ = b(t, q, v).

    Subclasses define ``rows``, ``position`` and ``velocity``. In the shapes below, q is (nq,), v is (n,), and m is the
    number of rows.

    Attributes
    ----------
    name
        Name in messages and tables: one for all rows, or a tuple with one per row.
    level
        Level of the equation that the user writes: "position" (φ = 0), "velocity" (ψ = 0) or "acceleration".
    linear
        Whether the equation is linear in the velocities.
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
        """Return A (m, n) and b (m,). b includes the stabilisation of the constraint, if it has one."""

    def at(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Rows:
        """Evaluate residuals, A and b together, which shares common work."""
        return Rows(self.position(t, q), self.velocity(t, q, v), *self.rows(t, q, v))

    def by_seeds(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], seeds: Seeds) -> Rows:
        """Evaluate like ``at``, but with the compressed matrix A S (m, seeds) in the place of A, S the seed matrix."""
        evaluated = self.at(t, q, v)
        return evaluated._replace(A=evaluated.A @ seeds.matrix)

    @abc.abstractmethod
    def position(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, " k"]:
        """Return the position residual φ(t, q): (m,) for a holonomic constraint, (0,) for others."""

    def slope(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "k n"]:
        """Return the derivative of ``position`` along the velocities, φ_q N (k, n), for q̇ = N(q) v."""
        jacobian = jax.jacfwd(self.position, argnums=1)(t, q)
        return jacobian if jacobian.shape[0] else jnp.zeros((0, v.size), q.dtype)

    def velocity_slope(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "k n"]:
        """Return the derivative of ``velocity`` with respect to v. For position constraints it equals ``slope``."""
        return self.slope(t, q, v) if self.level == "position" else jax.jacfwd(self.velocity, argnums=2)(t, q, v)

    def under(self, kinematic_map: KinematicMap | None) -> "AbstractConstraint":
        """Return this constraint for a system whose coordinates move by q̇ = N(q) v = ``kinematic_map(q, v)``."""
        return self

    def pull(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " m"] | float:
        """Return the magnitude of the stabilisation terms in b, (m,); 0 without stabilisation."""
        return 0.0

    @abc.abstractmethod
    def velocity(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " k"]:
        """Return the velocity residual φ̇ or ψ: (m,), or (0,) for a constraint on accelerations."""


def no_rows(q: Float[Array, " nq"]) -> Float[Array, " 0"]:
    """Return an empty residual, in the precision of q."""
    return jnp.zeros((0,), q.dtype)


def with_kinematic_map(constraint: AbstractConstraint, kinematic_map: KinematicMap | None) -> AbstractConstraint:
    """Return ``constraint`` with its field ``kinematic_map`` replaced."""
    return eqx.tree_at(lambda c: c.kinematic_map, constraint, kinematic_map, is_leaf=lambda x: x is None)
