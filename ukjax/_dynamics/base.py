"""What moves: the mass matrix and the forces of the unconstrained system."""

import abc

import equinox as eqx
from jaxtyping import Array, Float


class AbstractDynamics(eqx.Module):
    """M(t, q) q̈ = Q(t, q, v), before any constraint."""

    @abc.abstractmethod
    def terms(self, t: Array, q: Float[Array, " n"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        """M (n, n) and Q (n,), Q with the inertial terms quadratic in v on the right-hand side."""

    @abc.abstractmethod
    def energy(self, t: Array, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, ""] | None:
        """T + V [J], or None where the dynamics are not given by energies."""
