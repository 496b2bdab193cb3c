"""A constraint on the first coordinates of a larger system."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .base import AbstractConstraint, Level


class OnPart(AbstractConstraint):
    """A constraint of a subsystem, whose coordinates are the first ``size(n)`` of the n coordinates of the system."""

    constraint: AbstractConstraint
    size: Callable[[int], int] = eqx.field(static=True)
    name: str | tuple[str, ...] = eqx.field(static=True)
    level: Level = eqx.field(static=True)
    linear: bool = eqx.field(static=True)  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, constraint: AbstractConstraint, size: Callable[[int], int]):
        self.constraint, self.size, self.name = constraint, size, constraint.name
        self.level, self.linear = constraint.level, constraint.linear

    def rows(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        A, b = self.constraint.rows(t, self._part(q), self._part(v))
        return jnp.pad(A, ((0, 0), (0, v.size - A.shape[1]))), b

    def position(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, " k"]:
        return self.constraint.position(t, self._part(q))

    def velocity(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " k"]:
        return self.constraint.velocity(t, self._part(q), self._part(v))

    def pull(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " m"] | float:
        return self.constraint.pull(t, self._part(q), self._part(v))

    def _part(self, x):
        return x[: self.size(x.size)]
