"""Dynamics given by a mass matrix and a force."""

from collections.abc import Callable
from typing import Any

from jaxtyping import Array, Float

from .._errors import InputError
from .._functions import array, as_function, vector_of
from .base import AbstractDynamics


class MassForce(AbstractDynamics):
    """Dynamics M(t, q) q̈ = Q(t, q, v) with M and Q given explicitly.

    In a system with a ``kinematic_map`` q̇ = N(q) v, the arguments are M and Q of M v̇ = Q. An example is a rigid body by
    the Newton–Euler equations, with its angular velocity in the body frame.

    Parameters
    ----------
    mass_matrix
        M (n, n): a function of (t, q) or a constant array.
    force
        Q (n,): a function of (t, q, v) or a constant array. It is the whole right-hand side: applied forces, gravity,
        and the inertial terms −C(q, v) v.

    Raises
    ------
    InputError
        If an argument has the wrong type. Wrong shapes are reported when the dynamics are evaluated.
    """

    mass_matrix: Callable
    force: Callable

    def __init__(self, mass_matrix: Any, force: Any):
        self.mass_matrix = as_function("mass_matrix", mass_matrix, "t, q")
        self.force = as_function("force", force, "t, q, v")

    def mass(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "n n"]:
        M, n = array("mass_matrix", self.mass_matrix, t, q), v.size
        if M.shape != (n, n):
            raise InputError(f"mass_matrix must return shape ({n}, {n}) for v of shape ({n},), got shape {M.shape}")
        return M

    def terms(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        return self.mass(t, q, v), vector_of(v.size, "velocity", "force", self.force, t, q, v)

    def energy(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> None:
        return None
