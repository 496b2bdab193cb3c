"""What moves: the mass matrix and the forces of the unconstrained system."""

import abc

import equinox as eqx
from jaxtyping import Array, Float

from .._compressed import Seeds
from .._kinematic_map import KinematicMap


class AbstractDynamics(eqx.Module):
    """M(t, q) q̈ = Q(t, q, v), before any constraint."""

    @abc.abstractmethod
    def terms(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        """M (n, n) and Q (n,), Q with the inertial terms quadratic in v on the right-hand side."""

    def mass(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "n n"]:
        """M (n, n) alone, at velocity v where it depends on that."""
        return self.terms(t, q, v)[0]

    def by_seeds(
        self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], seeds: Seeds
    ) -> tuple[Float[Array, "n seeds"], Float[Array, " n"]]:
        """M times the seeds, and Q."""
        M, Q = self.terms(t, q, v)
        return M @ seeds.matrix, Q

    def under(self, kinematic_map: KinematicMap | None) -> "AbstractDynamics":
        """The same where q̇ = N(q) v is what ``kinematic_map(q, v)`` returns, and M v̇ = Q."""
        return self

    @abc.abstractmethod
    def energy(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, ""] | None:
        """T + V [J], or None where the dynamics are not given by energies."""
