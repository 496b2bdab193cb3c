"""Directions in the joint frame."""

import abc
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._check import as_numbers, repr_of
from .._errors import InputError
from .._jaxpr.tracing import is_concrete
from .._rotation import skew


class AbstractAxis(eqx.Module):
    """A direction in the joint frame."""

    @abc.abstractmethod
    def vector(self) -> Float[Array, " 3"]:
        """The unit vector."""

    @abc.abstractmethod
    def across(self) -> Float[Array, "2 3"]:
        """Two unit vectors whose cross product is the direction; the three are a right-handed frame."""

    @abc.abstractmethod
    def turn(self, angle: Float[Array, ""]) -> Float[Array, "3 3"]:
        """The rotation matrix for a rotation about the direction by an angle [rad]."""

    def angle_of(self, R: Float[Array, "3 3"]) -> Float[Array, ""]:
        """The angle of the rotation R about the direction, in (−π, π].

        If R also tilts the direction, it is the angle of the twist in the decomposition into a twist about the
        direction and a tilt. The angle is undefined only if R reverses the direction.
        """
        across = self.across()
        (cc, minus_s), (s, c) = across @ R @ across.T
        return jnp.arctan2(s - minus_s, cc + c)


class CoordinateAxis(AbstractAxis):
    """One of the axes x, y and z, or its opposite.

    The axis is static: a rotation about it has five constant entries, which are not computed.
    """

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
    """A direction with components (3,) of any length except 0."""

    direction: Float[Array, " 3"]

    def vector(self) -> Float[Array, " 3"]:
        return self.direction / jnp.sqrt(self.direction @ self.direction)

    def across(self) -> Float[Array, "2 3"]:
        x, y, z = self.vector()
        # Duff et al., J. Comput. Graph. Tech. 6 (2017): smooth except where z changes its sign.
        sign = jnp.where(z < 0, -1.0, 1.0)
        a = -1 / (sign + z)
        b = x * y * a
        return jnp.array([[1 + sign * x * x * a, sign * b, -sign * x], [b, sign + y * y * a, -y]])

    def turn(self, angle: Float[Array, ""]) -> Float[Array, "3 3"]:
        axis, c, s = self.vector(), jnp.cos(angle), jnp.sin(angle)
        return c * jnp.eye(3) + s * skew(axis) + (1 - c) * jnp.outer(axis, axis)


def as_axis(name: str, value: Any) -> AbstractAxis:
    """Convert ``"x"``, ``"-z"``, ... or three numbers to an axis.

    Python numbers along a coordinate axis become a ``CoordinateAxis``. A JAX array becomes a ``Direction``, so that it
    can be differentiated. Raises ``InputError`` for anything else.
    """
    if isinstance(value, AbstractAxis):
        return value
    words = {f"{sign}{letter}": (i, int(f"{sign}1")) for i, letter in enumerate("xyz") for sign in ("", "-")}
    if isinstance(value, str) and value in words:
        return CoordinateAxis(*words[value])
    if isinstance(value, str):
        raise InputError(f"{name} must be x, y, z, -x, -y, -z or three numbers, got {repr_of(value)}")
    array = as_numbers(name, value)
    if array.shape != (3,):
        raise InputError(f"{name} must be x, y, z, -x, -y, -z or three numbers, got shape {array.shape}")
    if is_concrete(array):
        entries = np.asarray(array)
        if not np.any(entries):
            raise InputError(f"{name} must not be zero, got (0, 0, 0)")
        if not isinstance(value, jax.Array) and np.count_nonzero(entries) == 1:
            index = int(np.flatnonzero(entries)[0])
            return CoordinateAxis(index, int(np.sign(entries[index])))
    return Direction(array)


if TYPE_CHECKING:
    Axis = Any  # a word or three numbers
else:
    Axis = AbstractAxis


def axis(default: str = "z") -> Any:
    """A field for an axis."""
    return eqx.field(default=default, converter=lambda value: as_axis("axis", value))
