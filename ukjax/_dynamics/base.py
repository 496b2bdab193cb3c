"""Abstract base class of the dynamics of the unconstrained system."""

import abc

import equinox as eqx
from jaxtyping import Array, Float

from .._compressed import Seeds
from .._kinematic_map import KinematicMap


class AbstractDynamics(eqx.Module):
    """Dynamics M(t, q) q̈ = Q(t, q, v) of the unconstrained system.

    Subclasses define ``terms`` and ``energy``. In the shapes below, q is (nq,) and v is (n,).
    """

    @abc.abstractmethod
    def terms(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        """Return M (n, n) and Q (n,). Q contains the applied forces and the inertial terms that are quadratic in v."""

    def mass(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "n n"]:
        """Return M (n, n). It depends on v only if the kinetic energy is not quadratic in v."""
        return self.terms(t, q, v)[0]

    def by_seeds(
        self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], seeds: Seeds
    ) -> tuple[Float[Array, "n seeds"], Float[Array, " n"]]:
        """Return the product of M and the seed matrix (n, seeds), and Q (n,)."""
        M, Q = self.terms(t, q, v)
        return M @ seeds.matrix, Q

    def under(self, kinematic_map: KinematicMap | None) -> "AbstractDynamics":
        """Return these dynamics in the form M v̇ = Q, for q̇ = N(q) v = ``kinematic_map(q, v)``."""
        return self

    @abc.abstractmethod
    def energy(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, ""] | None:
        """Return the energy T + V [J], or None if the dynamics are not given by energies."""
