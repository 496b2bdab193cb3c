"""Constraints linear in the velocities, such as rolling and knife edges."""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._errors import InputError
from .._functions import Zero, array, as_function, as_vector_function, vector_of
from .._kinematic_map import KinematicMap, rate
from .._names import name_of_rows
from .._precision import Numbers
from .base import AbstractConstraint, Level, no_rows, with_kinematic_map
from .baumgarte import as_gain, gain_for_rows


class Pfaffian(AbstractConstraint):
    """Constraint linear in the velocities, A(t, q) v = c(t, q), imposed as d/dt (A v − c) + α (A v − c) = 0.

    Then b = ċ − Ȧ v − α (A v − c), with Ȧ along q̇. Note that c is on the right-hand side: Zhao et al. 2018 write both
    A q̇ + c = 0 (eq. 22) and A q̇ = c (eq. 40).

    Parameters
    ----------
    A
        Matrix (m, n), or (n,) for a single row: a function of (t, q) or a constant array.
    c
        Right-hand side (m,): a function of (t, q) or a constant array.
    alpha
        Gain of A v − c [1/s]: a number, or (m,) with one entry per row.
    name
        Name of the constraint in messages and tables: one for all rows, or one per row.

    Raises
    ------
    InputError
        If an argument has the wrong type or the gain is negative. Wrong shapes are reported when the constraint is
        evaluated.
    """

    A: Callable
    c: Callable | Zero
    alpha: Array
    name: str | tuple[str, ...] = eqx.field(static=True)
    kinematic_map: KinematicMap | None
    level: ClassVar[Level] = "velocity"

    def __init__(self, A: Any, c: Any = 0.0, alpha: Numbers = 0.0, *, name: str | Iterable[str] = "Pfaffian"):
        self.A, self.c = as_function("A", A, "t, q"), as_vector_function("c", c, "t, q")
        self.alpha, self.name, self.kinematic_map = as_gain("alpha", alpha), name_of_rows(name), None

    def rows(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        A = self.matrix(t, q, v)
        psi, bias = jax.jvp(
            lambda t, q: self.velocity(t, q, v), (t, q), (jnp.ones_like(t), rate(self.kinematic_map, q, v))
        )
        return A, -bias - gain_for_rows("alpha", self.alpha, psi.shape[0]) * psi

    def pull(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " m"]:
        psi = self.velocity(t, q, v)
        return gain_for_rows("alpha", self.alpha, psi.shape[0]) * jnp.abs(psi)

    def under(self, kinematic_map: KinematicMap | None) -> AbstractConstraint:
        return with_kinematic_map(self, kinematic_map)

    def position(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, " 0"]:
        return no_rows(q)

    def velocity(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " m"]:
        A = self.matrix(t, q, v)
        return A @ v - vector_of(A.shape[0], "row of A", f"c of {self.name!r}", self.c, t, q)

    def matrix(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "m n"]:
        """Return A (m, n), with one column per velocity. A single row may be given as (n,)."""
        return matrix_of_rows(f"A of {self.name!r}", self.A, v, t, q)


def matrix_of_rows(name: str, function: Callable, v: Float[Array, " n"], *arguments: Any) -> Float[Array, "m n"]:
    """Evaluate a user's function for A and return (m, n). A single row may be given as (n,)."""
    A = jnp.atleast_2d(array(name, function, *arguments))
    if A.ndim != 2 or A.shape[1] != v.size:
        raise InputError(f"{name} must have shape (m, {v.size}), one column per coordinate, got shape {A.shape}")
    return A
