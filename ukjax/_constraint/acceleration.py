"""Constraints given at the level of accelerations, as the papers print them."""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array, Float

from .._functions import as_function, vector_of
from .._names import name_of_rows
from .base import AbstractConstraint, Level, nothing
from .pfaffian import matrix_of_rows


class AccelerationConstraint(AbstractConstraint):
    """A(t, q, v) q̈ = b(t, q, v), as it stands.

    ``A`` (m, n) and ``b`` (m,) are functions of (t, q, v) or constant arrays. Nothing says what their integrals are,
    so there is no position or velocity to check or to project onto: drift stays.
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
        return nothing(q)

    def velocity(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " 0"]:
        return nothing(q)
