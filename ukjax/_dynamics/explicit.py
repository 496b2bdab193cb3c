"""Dynamics given by their mass matrix and force, as papers print them."""

from collections.abc import Callable
from typing import Any

from jaxtyping import Array, Float

from .._functions import array, as_function, vector_of
from .base import AbstractDynamics


class MassForce(AbstractDynamics):
    """M(t, q) q̈ = Q(t, q, v), both given.

    ``mass_matrix(t, q)`` (n, n) and ``force(t, q, v)`` (n,) are functions or constant arrays. The force is all of
    the right-hand side: applied forces, gravity, and the terms −C(q, v) v of inertia. In a system with a
    ``kinematic_map``, q̇ = N(q) v, they are those of M v̇ = Q: Newton's and Euler's equations, say, in the rates about
    a body's axes.
    """

    mass_matrix: Callable
    force: Callable

    def __init__(self, mass_matrix: Any, force: Any):
        self.mass_matrix = as_function("mass_matrix", mass_matrix, "t, q")
        self.force = as_function("force", force, "t, q, v")

    def mass(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "n n"]:
        M, n = array("mass_matrix", self.mass_matrix, t, q), v.size
        if M.shape != (n, n):
            raise ValueError(f"mass_matrix must return shape ({n}, {n}) for v of shape ({n},), got shape {M.shape}")
        return M

    def terms(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        return self.mass(t, q, v), vector_of(v.size, "velocity", "force", self.force, t, q, v)

    def energy(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> None:
        return None
