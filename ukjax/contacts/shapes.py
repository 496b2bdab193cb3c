"""Shapes on bodies for contact."""

import abc
from dataclasses import KW_ONLY
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._check import as_number, as_numbers, repr_of
from .._errors import InputError
from .._jaxpr.tracing import is_concrete
from .._rotation import as_quaternion, as_vector, of_quaternion
from ..joints.axis import Axis, as_axis, axis

if TYPE_CHECKING:
    Vector = Any  # the converters of fields accept any array-like value
    Ends = Any
    Turn = Any
    Number = Any
    Name = Any
else:
    Vector = Float[Array, " 3"]
    Ends = Float[Array, "2 3"]
    Turn = Float[Array, " 4"] | None
    Number = Float[Array, ""]
    Name = str

INSIDE = 0.99
"""Distance of the fixed points of a cylinder from its axis, divided by its radius."""


def _as_body(value: Any) -> str:
    if not isinstance(value, str):
        raise InputError(f"body must be the name of a body, or 'ground', got {repr_of(value)}")
    return value


def _as_ends(value: Any) -> Array:
    ends = as_numbers("ends", value)
    if ends.shape != (2, 3):
        raise InputError(f"ends must be two points of three numbers, shape (2, 3), got shape {ends.shape}")
    if is_concrete(ends) and np.array_equal(ends[0], ends[1]):
        raise InputError(f"ends must be two different points, got {repr_of(ends[0])} twice: use a Sphere")
    return ends


def _as_edges(value: Any) -> Array:
    size = as_numbers("size", value, above=0)
    if size.shape != (3,):
        raise InputError(f"size must be three edges (x, y, z) [m], got shape {size.shape}")
    return size


def _vector(name):
    return eqx.field(default=(0.0, 0.0, 0.0), converter=lambda value: as_vector(name, value))


def _length(name):
    return eqx.field(converter=lambda value: as_number(name, value, "m", above=0, below=np.inf))


class AbstractShape(eqx.Module):
    """A shape that is fixed to a body.

    Parameters
    ----------
    body : str
        Name of the body, or ``"ground"``.
    """

    body: eqx.AbstractVar[str]


class AbstractSolid(AbstractShape):
    """A shape that may touch a plane."""

    points: ClassVar[int]
    """Number of points that may touch a plane."""

    @abc.abstractmethod
    def lowest(self, normal: Float[Array, " 3"]) -> Float[Array, "points 3"]:
        """The points that may touch a plane with this normal, both in the body's frame."""


class AbstractRound(AbstractSolid):
    """All points within ``radius`` of a point or of a segment."""

    radius: eqx.AbstractVar[Number]

    @abc.abstractmethod
    def core(self) -> Float[Array, "ends 3"]:
        """The point, or both ends of the segment, in the body's frame."""

    def lowest(self, normal: Float[Array, " 3"]) -> Float[Array, "points 3"]:
        return self.core() - self.radius * normal


class Point(AbstractSolid):
    """A point of a body, such as a tip or a corner.

    Parameters
    ----------
    body : str
        Name of the body, or ``"ground"``.
    at : (3,)
        The point in the body's frame [m]. Default: its origin.

    Raises
    ------
    InputError
        If an argument has a wrong type or shape.
    """

    body: Name = eqx.field(static=True, converter=_as_body)
    _: KW_ONLY
    at: Vector = _vector("at")
    points: ClassVar[int] = 1

    def lowest(self, normal: Float[Array, " 3"]) -> Float[Array, "1 3"]:
        return self.at[None]


class Sphere(AbstractRound):
    """A ball.

    Parameters
    ----------
    body : str
        Name of the body, or ``"ground"``.
    centre : (3,)
        Its centre in the body's frame [m]. Default: the origin.
    radius : float
        Its radius [m], greater than 0.

    Raises
    ------
    InputError
        If an argument has a wrong type or shape, or the radius is not positive.
    """

    body: Name = eqx.field(static=True, converter=_as_body)
    _: KW_ONLY
    centre: Vector = _vector("centre")
    radius: Number = _length("radius")
    points: ClassVar[int] = 1

    def core(self) -> Float[Array, "1 3"]:
        return self.centre[None]


class Capsule(AbstractRound):
    """A cylinder with a half ball at each end. It touches a plane with the balls of its two ends.

    Parameters
    ----------
    body : str
        Name of the body, or ``"ground"``.
    ends : (2, 3)
        Centres of both balls in the body's frame [m].
    radius : float
        Its radius [m], greater than 0.

    Raises
    ------
    InputError
        If an argument has a wrong type or shape, the ends coincide, or the radius is not positive.
    """

    body: Name = eqx.field(static=True, converter=_as_body)
    _: KW_ONLY
    ends: Ends = eqx.field(converter=_as_ends)
    radius: Number = _length("radius")
    points: ClassVar[int] = 2

    def core(self) -> Float[Array, "2 3"]:
        return self.ends


class Box(AbstractSolid):
    """A cuboid. It touches a plane with its eight corners.

    Parameters
    ----------
    body : str
        Name of the body, or ``"ground"``.
    centre : (3,)
        Its centre in the body's frame [m]. Default: the origin.
    size : (3,)
        Lengths of its edges [m], greater than 0.
    turn : (3,) or (4,), optional
        Attitude of its edges in the body's frame: roll, pitch and yaw [rad], about x, then y, then z, or a quaternion
        (w, x, y, z). Default: the axes of the body.

    Raises
    ------
    InputError
        If an argument has a wrong type or shape, or an edge is not positive.
    """

    body: Name = eqx.field(static=True, converter=_as_body)
    _: KW_ONLY
    centre: Vector = _vector("centre")
    size: Vector = eqx.field(converter=_as_edges)
    turn: Turn = eqx.field(
        default=None, converter=lambda value: None if value is None else as_quaternion("turn", value)
    )
    points: ClassVar[int] = 8

    def lowest(self, normal: Float[Array, " 3"]) -> Float[Array, "8 3"]:
        signs = np.array([[x, y, z] for z in (-1, 1) for y in (-1, 1) for x in (-1, 1)])
        corners = signs * (self.size / 2)
        return self.centre + (corners if self.turn is None else corners @ of_quaternion(self.turn).T)


class Cylinder(AbstractSolid):
    """A circular cylinder. It touches a plane with ten points, five of each end.

    One point of each end is the lowest point of the circle. It supports a cylinder that lies, rolls or tilts. If the
    circle is parallel to the plane, this point is the centre of the circle. The other four points are fixed in the
    body, on two diameters, 1 % of the radius inside of the circle. They support a standing cylinder, as a square would,
    and do not touch otherwise.

    Parameters
    ----------
    body : str
        Name of the body, or ``"ground"``.
    centre : (3,)
        Its centre in the body's frame [m]. Default: the origin.
    axis : str or (3,)
        Direction of its axis in the body's frame: ``"x"``, ``"-z"``, ... or three numbers. Default: ``"z"``.
    radius, length : float
        Its radius and its length [m], greater than 0.

    Raises
    ------
    InputError
        If an argument has a wrong type or shape, or the radius or the length is not positive.
    """

    body: Name = eqx.field(static=True, converter=_as_body)
    _: KW_ONLY
    centre: Vector = _vector("centre")
    axis: Axis = axis()
    radius: Number = _length("radius")
    length: Number = _length("length")
    points: ClassVar[int] = 10

    def lowest(self, normal: Float[Array, " 3"]) -> Float[Array, "10 3"]:
        direction = self.axis.vector()
        up = normal - (normal @ direction) * direction
        square = up @ up
        tilted = square > 0
        down = -jnp.where(tilted, up / jnp.sqrt(jnp.where(tilted, square, 1)), 0)
        across = INSIDE * self.axis.across()
        rim = self.radius * jnp.concatenate([down[None], across, -across])
        half = self.length / 2 * direction
        return jnp.concatenate([self.centre - half + rim, self.centre + half + rim])


class Plane(AbstractShape):
    """A plane, such as a floor. The side of its normal is outside.

    Parameters
    ----------
    body : str
        Name of the body. Default: ``"ground"``.
    at : (3,)
        A point of the plane in the body's frame [m]. Default: the origin.
    normal : str or (3,)
        Its normal in the body's frame: ``"x"``, ``"-z"``, ... or three numbers. Default: ``"z"``.

    Raises
    ------
    InputError
        If an argument has a wrong type or shape.
    """

    body: Name = eqx.field(default="ground", static=True, converter=_as_body)
    _: KW_ONLY
    at: Vector = _vector("at")
    normal: Axis = eqx.field(default="z", converter=lambda value: as_axis("normal", value))
