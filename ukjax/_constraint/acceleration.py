"""Constraints given directly as A q̈ = b."""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array, Float

from .._functions import as_function, vector_of
from .._names import name_of_rows
from .base import AbstractConstraint, Level, no_rows
from .pfaffian import matrix_of_rows


class AccelerationConstraint(AbstractConstraint):
    """Constraint on accelerations, A(t, q, v) q̈ = b(t, q, v).

    Its integrals φ or ψ are unknown, so positions and velocities can neither be checked nor projected: numerical drift
    is not removed.

    Parameters
    ----------
    A
        Matrix (m, n), or (n,) for a single row: a function of (t, q, v) or a constant array.
    b
        Right-hand side (m,): a function of (t, q, v) or a constant array.
    name
        Name of the constraint in messages and tables: one for all rows, or one per row.

    Raises
    ------
    InputError
        If an argument has the wrong type. Wrong shapes are reported when the constraint is evaluated.
    """

    A: Callable
    b: Callable
    name: str | tuple[str, ...] = eqx.field(static=True)
    level: ClassVar[Level] = "acceleration"

    def __init__(self, A: Any, b: Any, *, name: str | Iterable[str] = "acceleration"):
        self.A, self.b = as_function("A", A, "t, q, v"), as_function("b", b, "t, q, v")
        self.name = name_of_rows(name)

    def rows(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        A = matrix_of_rows(f"A of {self.name!r}", self.A, v, t, q, v)
        return A, vector_of(A.shape[0], "row of A", f"b of {self.name!r}", self.b, t, q, v)

    def position(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, " 0"]:
        return no_rows(q)

    def velocity(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " 0"]:
        return no_rows(q)
