"""The direction of a joint."""

import abc
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._check import as_numbers, is_concrete, repr_of
from .._rotation import skew


class AbstractAxis(eqx.Module):
    """A direction in a joint's frame."""

    @abc.abstractmethod
    def vector(self) -> Float[Array, " 3"]:
        """Of unit length."""

    @abc.abstractmethod
    def across(self) -> Float[Array, "2 3"]:
        """Two unit vectors that make a right-handed frame with it: it is the cross product of them."""

    @abc.abstractmethod
    def turn(self, angle: Float[Array, ""]) -> Float[Array, "3 3"]:
        """The rotation about it."""

    def angle_of(self, R: Float[Array, "3 3"]) -> Float[Array, ""]:
        """The angle of R about it, within half a turn. Of an R that also tilts the axis: the angle of its twist (the
        rotation is a twist about the axis, then a tilt), undefined only where the axis is turned over."""
        across = self.across()
        (cc, minus_s), (s, c) = across @ R @ across.T
        return jnp.arctan2(s - minus_s, cc + c)


class CoordinateAxis(AbstractAxis):
    """One of x, y and z, or its opposite, known beforehand: a rotation about it has five entries less to compute."""

    index: int = eqx.field(static=True)
    sign: int = eqx.field(static=True)

    def vector(self) -> Float[Array, " 3"]:
        return jnp.asarray(self.sign * np.eye(3)[self.index])

    def across(self) -> Float[Array, "2 3"]:
        first, second = np.eye(3)[(self.index + 1) % 3], np.eye(3)[(self.index + 2) % 3]
        return jnp.asarray(np.stack([first, self.sign * second]))

    def turn(self, angle: Float[Array, ""]) -> Float[Array, "3 3"]:
        c, s = jnp.cos(angle), self.sign * jnp.sin(angle)
        rows = {0: [[1, 0, 0], [0, c, -s], [0, s, c]], 1: [[c, 0, s], [0, 1, 0], [-s, 0, c]]}
        return jnp.array(rows.get(self.index, [[c, -s, 0], [s, c, 0], [0, 0, 1]]))


class Direction(AbstractAxis):
    """Any other: ``direction`` (3,), of whatever length."""

    direction: Float[Array, " 3"]

    def vector(self) -> Float[Array, " 3"]:
        return self.direction / jnp.sqrt(self.direction @ self.direction)

    def across(self) -> Float[Array, "2 3"]:
        x, y, z = self.vector()
        # Duff et al., J. Comput. Graph. Tech. 6 (2017): smooth but where z changes its sign.
        sign = jnp.where(z < 0, -1.0, 1.0)
        a = -1 / (sign + z)
        b = x * y * a
        return jnp.array([[1 + sign * x * x * a, sign * b, -sign * x], [b, sign + y * y * a, -y]])

    def turn(self, angle: Float[Array, ""]) -> Float[Array, "3 3"]:
        axis, c, s = self.vector(), jnp.cos(angle), jnp.sin(angle)
        return c * jnp.eye(3) + s * skew(axis) + (1 - c) * jnp.outer(axis, axis)


def as_axis(name: str, given: Any) -> AbstractAxis:
    """``"x"``, ``"-z"`` or three numbers; numbers of Python that point along a coordinate axis are that axis, a JAX
    array stays one, to be differentiated by. ``ValueError`` for anything else."""
    if isinstance(given, AbstractAxis):
        return given
    words = {f"{sign}{letter}": (i, int(f"{sign}1")) for i, letter in enumerate("xyz") for sign in ("", "-")}
    if isinstance(given, str) and given in words:
        return CoordinateAxis(*words[given])
    if isinstance(given, str):
        raise ValueError(f"{name} must be x, y, z, -x, -y, -z or three numbers, got {repr_of(given)}")
    value = as_numbers(name, given)
    if value.shape != (3,):
        raise ValueError(f"{name} must be x, y, z, -x, -y, -z or three numbers, got shape {value.shape}")
    if is_concrete(value):
        entries = np.asarray(value)
        if not np.any(entries):
            raise ValueError(f"{name} must point somewhere, got (0, 0, 0)")
        if not isinstance(given, jax.Array) and np.count_nonzero(entries) == 1:
            index = int(np.flatnonzero(entries)[0])
            return CoordinateAxis(index, int(np.sign(entries[index])))
    return Direction(value)


if TYPE_CHECKING:
    Axis = Any  # a word or three numbers
else:
    Axis = AbstractAxis


def axis(default: str = "z") -> Any:
    """A field that holds one."""
    return eqx.field(default=default, converter=lambda given: as_axis("axis", given))
