"""The joints of textbooks: lower pairs, the universal joint and the free joint."""

from dataclasses import KW_ONLY
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._check import as_number
from .._errors import InputError
from .._jaxpr.tracing import is_concrete
from .._rotation import cross, of_quaternion, unskew
from .axis import Axis, as_axis, axis
from .base import AbstractAxial, AbstractJoint, Number, Relative, nearest_turn


class Fixed(AbstractAxial):
    """A rigid connection without relative motion. Parameters are those of ``AbstractJoint``."""

    coordinates: ClassVar[Any] = ()
    neutral: ClassVar[Any] = ()
    rows: ClassVar[Any] = ("x", "y", "z", "turn x", "turn y", "turn z")

    def columns(self) -> tuple[Array, Array]:
        return jnp.zeros((3, 0)), jnp.zeros((3, 0))

    def rotation(self, q: Float[Array, " 0"]) -> Array:
        return jnp.eye(3)

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " 6"]:
        return jnp.concatenate([p, _rotation_residual(R)])

    def coordinates_of(self, R: Array, p: Array) -> Float[Array, " 0"]:
        return jnp.zeros(0)


class Revolute(AbstractAxial):
    """A hinge: the child rotates about one axis.

    Its coordinate is the angle [rad]. Other parameters are those of ``AbstractJoint``.

    Parameters
    ----------
    axis : str or (3,)
        Axis of rotation: ``"x"``, ``"-z"``, ... or three numbers. Default: ``"z"``.
    """

    _: KW_ONLY
    axis: Axis = axis()

    coordinates: ClassVar[Any] = (("", "rad"),)
    neutral: ClassVar[Any] = (0.0,)
    rows: ClassVar[Any] = ("x", "y", "z", "tilt 1", "tilt 2")
    within_half_a_turn: ClassVar[bool] = True

    def columns(self) -> tuple[Array, Array]:
        return self.axis.vector()[:, None], jnp.zeros((3, 1))

    def rotation(self, q: Float[Array, " 1"]) -> Array:
        return self.axis.turn(q[0])

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " 5"]:
        return jnp.concatenate([p, _tilt_residual(self.axis, R)])

    def coordinates_of(self, R: Array, p: Array) -> Float[Array, " 1"]:
        return self.axis.angle_of(R)[None]


class Prismatic(AbstractAxial):
    """A slider: the child translates along one axis without rotation.

    Its coordinate is the displacement [m]. Other parameters are those of ``AbstractJoint``.

    Parameters
    ----------
    axis : str or (3,)
        Direction of translation: ``"x"``, ``"-z"``, ... or three numbers. Default: ``"z"``.
    """

    _: KW_ONLY
    axis: Axis = axis()

    coordinates: ClassVar[Any] = (("", "m"),)
    neutral: ClassVar[Any] = (0.0,)
    rows: ClassVar[Any] = ("across 1", "across 2", "turn x", "turn y", "turn z")

    def columns(self) -> tuple[Array, Array]:
        return jnp.zeros((3, 1)), self.axis.vector()[:, None]

    def rotation(self, q: Float[Array, " 1"]) -> Array:
        return jnp.eye(3)

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " 5"]:
        return jnp.concatenate([self.axis.across() @ p, _rotation_residual(R)])

    def coordinates_of(self, R: Array, p: Array) -> Float[Array, " 1"]:
        return (self.axis.vector() @ p)[None]


class Cylindrical(AbstractAxial):
    """The child rotates about an axis and translates along it.

    Its coordinates are the angle [rad] and the displacement [m]. Other parameters are those of ``AbstractJoint``.

    Parameters
    ----------
    axis : str or (3,)
        Axis of rotation and translation: ``"x"``, ``"-z"``, ... or three numbers. Default: ``"z"``.
    """

    _: KW_ONLY
    axis: Axis = axis()

    coordinates: ClassVar[Any] = (("angle", "rad"), ("slide", "m"))
    neutral: ClassVar[Any] = (0.0, 0.0)
    rows: ClassVar[Any] = ("across 1", "across 2", "tilt 1", "tilt 2")
    within_half_a_turn: ClassVar[bool] = True

    def columns(self) -> tuple[Array, Array]:
        axis, zero = self.axis.vector(), jnp.zeros(3)
        return jnp.stack([axis, zero], axis=1), jnp.stack([zero, axis], axis=1)

    def rotation(self, q: Float[Array, " 2"]) -> Array:
        return self.axis.turn(q[0])

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " 4"]:
        return jnp.concatenate([self.axis.across() @ p, _tilt_residual(self.axis, R)])

    def coordinates_of(self, R: Array, p: Array) -> Float[Array, " 2"]:
        return jnp.stack([self.axis.angle_of(R), self.axis.vector() @ p])


def _lead(value):
    lead = as_number("lead", value, "m")
    if is_concrete(lead) and not lead:
        raise InputError("lead must not be 0 [m]: a screw that does not advance is a Revolute")
    return lead


class Screw(AbstractAxial):
    """The child rotates about an axis and translates along it by ``lead`` per turn.

    Its coordinate is the angle [rad]. Other parameters are those of ``AbstractJoint``.

    Parameters
    ----------
    lead : float
        Translation per turn [m], not 0.
    axis : str or (3,)
        Axis of the screw: ``"x"``, ``"-z"``, ... or three numbers. Default: ``"z"``.

    Raises
    ------
    InputError
        If ``lead`` is 0.
    """

    _: KW_ONLY
    lead: Number = eqx.field(converter=_lead)
    axis: Axis = axis()

    coordinates: ClassVar[Any] = (("", "rad"),)
    neutral: ClassVar[Any] = (0.0,)
    rows: ClassVar[Any] = ("across 1", "across 2", "tilt 1", "tilt 2", "thread")

    def columns(self) -> tuple[Array, Array]:
        axis = self.axis.vector()[:, None]
        return axis, self.lead / (2 * jnp.pi) * axis

    def rotation(self, q: Float[Array, " 1"]) -> Array:
        return self.axis.turn(q[0])

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " 5"]:
        # The translation determines the turn of the angle, so that the row has no second root half a turn away.
        thread = self.axis.vector() @ p - self.lead / (2 * jnp.pi) * self._angle(R, p)
        return jnp.concatenate([self.axis.across() @ p, _tilt_residual(self.axis, R), thread[None]])

    def coordinates_of(self, R: Array, p: Array) -> Float[Array, " 1"]:
        return self._angle(R, p)[None]

    def _angle(self, R, p):
        """The angle, in the turn that the translation determines."""
        return nearest_turn(self.axis.angle_of(R), 2 * jnp.pi / self.lead * (self.axis.vector() @ p))


class Planar(AbstractAxial):
    """The child translates in a plane and rotates about its normal.

    Its coordinates are the displacements x and y [m] and the angle [rad]. The directions of x and y form a right-handed
    frame with the normal; for the normal z they are the axes x and y of the joint frame. Other parameters are those of
    ``AbstractJoint``.

    Parameters
    ----------
    axis : str or (3,)
        Normal of the plane: ``"x"``, ``"-z"``, ... or three numbers. Default: ``"z"``.
    """

    _: KW_ONLY
    axis: Axis = axis()

    coordinates: ClassVar[Any] = (("x", "m"), ("y", "m"), ("angle", "rad"))
    neutral: ClassVar[Any] = (0.0, 0.0, 0.0)
    rows: ClassVar[Any] = ("height", "tilt 1", "tilt 2")
    within_half_a_turn: ClassVar[bool] = True

    def columns(self) -> tuple[Array, Array]:
        (first, second), axis, zero = self.axis.across(), self.axis.vector(), jnp.zeros(3)
        return jnp.stack([zero, zero, axis], axis=1), jnp.stack([first, second, zero], axis=1)

    def rotation(self, q: Float[Array, " 3"]) -> Array:
        return self.axis.turn(q[2])

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " 3"]:
        return jnp.concatenate([(self.axis.vector() @ p)[None], _tilt_residual(self.axis, R)])

    def coordinates_of(self, R: Array, p: Array) -> Float[Array, " 3"]:
        return jnp.concatenate([self.axis.across() @ p, self.axis.angle_of(R)[None]])


class Universal(AbstractJoint):
    """Two hinges with intersecting axes, usually at a right angle.

    Its coordinates are the two angles [rad]. Other parameters are those of ``AbstractJoint``.

    Parameters
    ----------
    axis : str or (3,)
        First axis, fixed in the parent: ``"x"``, ``"-z"``, ... or three numbers. Default: ``"x"``.
    second : str or (3,)
        Second axis, fixed in the child. Default: ``"y"``.

    Raises
    ------
    InputError
        If the axes are parallel.
    """

    _: KW_ONLY
    axis: Axis = axis("x")
    second: Axis = eqx.field(default="y", converter=lambda value: as_axis("second", value))

    coordinates: ClassVar[Any] = (("first", "rad"), ("second", "rad"))
    neutral: ClassVar[Any] = (0.0, 0.0)
    rows: ClassVar[Any] = ("x", "y", "z", "cross")
    within_half_a_turn: ClassVar[bool] = True

    def __check_init__(self):
        first, second = self.axis.vector(), self.second.vector()
        if is_concrete(first, second) and abs(float(first @ second)) > 1 - 1e-9:
            raise InputError(f"second must not be parallel to axis, got {second.tolist()} and {first.tolist()}")

    def transform(self, t: Array, q: Float[Array, " 2"]) -> tuple[Array, Array]:
        return self.axis.turn(q[0]) @ self.second.turn(q[1]), jnp.zeros(3)

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " 4"]:
        first, second = self.axis.vector(), self.second.vector()
        return jnp.concatenate([p, (first @ (R @ second) - first @ second)[None]])

    def coordinates_of(self, R: Array, p: Array) -> Float[Array, " 2"]:
        first, second = self.axis.vector(), self.second.vector()
        normal, cosine = cross(first, second), first @ second
        rotated_second, rotated_first = R @ second, R.T @ first
        # R second is second rotated about first, and Rᵀ first is first rotated back about second. Their components
        # along the axis of rotation do not affect the angle.
        return jnp.stack(
            [
                jnp.arctan2(normal @ rotated_second, (second - cosine * first) @ rotated_second),
                jnp.arctan2(normal @ rotated_first, (first - cosine * second) @ rotated_first),
            ]
        )


class Spherical(AbstractJoint):
    """A ball joint: the child rotates about a point.

    Its coordinates are a unit quaternion (w, x, y, z), which has no singular attitude. Its velocities are the
    angular velocities ω about the axes of the joint frame in the parent [rad/s]: u̇ = ω u/2. All results depend only on
    u/|u|: a drift of the quaternion's length has no effect. Parameters are those of ``AbstractJoint``.
    """

    coordinates: ClassVar[Any] = (("w", ""), ("x", ""), ("y", ""), ("z", ""))
    neutral: ClassVar[Any] = (1.0, 0.0, 0.0, 0.0)
    rows: ClassVar[Any] = ("x", "y", "z")
    quaternion: ClassVar[int] = 0

    def transform(self, t: Array, q: Float[Array, " 4"]) -> tuple[Array, Array]:
        return of_quaternion(q), jnp.zeros(3)

    def relative(self, t: Array, q: Float[Array, " 4"], v: Float[Array, " 3"]) -> Relative:
        zeros = jnp.zeros(3)
        return Relative(of_quaternion(q), zeros, jnp.eye(3), jnp.zeros((3, 3)), v, zeros, zeros, zeros)

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " 3"]:
        return p


class Free(AbstractJoint):
    """No constraint: the child moves freely relative to the parent.

    Its coordinates are the position (x, y, z) [m] and a unit quaternion (w, x, y, z) in the parent's joint frame. Its
    velocities are those of the origin [m/s] and the angular velocities about the parent's axes [rad/s]. Parameters are
    those of ``AbstractJoint``.
    """

    coordinates: ClassVar[Any] = (("x", "m"), ("y", "m"), ("z", "m"), ("qw", ""), ("qx", ""), ("qy", ""), ("qz", ""))
    neutral: ClassVar[Any] = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)
    rows: ClassVar[Any] = ()
    quaternion: ClassVar[int] = 3

    def transform(self, t: Array, q: Float[Array, " 7"]) -> tuple[Array, Array]:
        return of_quaternion(q[3:]), q[:3]

    def relative(self, t: Array, q: Float[Array, " 7"], v: Float[Array, " 6"]) -> Relative:
        zeros, (linear, angular) = jnp.zeros(3), jnp.split(jnp.eye(6), 2)
        return Relative(of_quaternion(q[3:]), q[:3], angular, linear, v[3:], v[:3], zeros, zeros)

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " 0"]:
        return jnp.zeros(0)


def _tilt_residual(axis, R):
    """The tilt of the child's axis relative to the parent's axis, 2 tan(θ/2) along the two directions across it.

    It is 0 for the same direction, and unbounded near the opposite direction, which is a wrong closure of a loop.
    """
    child_axis = R @ axis.vector()
    return 2 * (axis.across() @ child_axis) / (1 + axis.vector() @ child_axis)


def _rotation_residual(R):
    """2 tan(θ/2) along the axis of the rotation R by θ: 0 for no rotation, and unbounded near half a turn."""
    return 4 * unskew(R) / (1 + jnp.trace(R))
