"""The joints of textbooks: one body slides and turns along the surface of another."""

from dataclasses import KW_ONLY
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._check import as_number, is_concrete
from .._rotation import cross, of_quaternion, unskew
from .axis import Axis, as_axis, axis
from .base import AbstractAxial, AbstractJoint, Number, Relative, nearest_turn


class Fixed(AbstractAxial):
    """No motion: a weld."""

    coordinates: ClassVar[Any] = ()
    neutral: ClassVar[Any] = ()
    rows: ClassVar[Any] = ("x", "y", "z", "turn x", "turn y", "turn z")

    def columns(self) -> tuple[Array, Array]:
        return jnp.zeros((3, 0)), jnp.zeros((3, 0))

    def turned(self, q: Float[Array, " 0"]) -> Array:
        return jnp.eye(3)

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " 6"]:
        return jnp.concatenate([p, _turned(R)])

    def coordinates_of(self, R: Array, p: Array) -> Float[Array, " 0"]:
        return jnp.zeros(0)


class Revolute(AbstractAxial):
    """A hinge: the child turns about ``axis``."""

    _: KW_ONLY
    axis: Axis = axis()

    coordinates: ClassVar[Any] = (("", "rad"),)
    neutral: ClassVar[Any] = (0.0,)
    rows: ClassVar[Any] = ("x", "y", "z", "tilt 1", "tilt 2")
    within_half_a_turn: ClassVar[bool] = True

    def columns(self) -> tuple[Array, Array]:
        return self.axis.vector()[:, None], jnp.zeros((3, 1))

    def turned(self, q: Float[Array, " 1"]) -> Array:
        return self.axis.turn(q[0])

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " 5"]:
        return jnp.concatenate([p, _tilt(self.axis, R)])

    def coordinates_of(self, R: Array, p: Array) -> Float[Array, " 1"]:
        return self.axis.angle_of(R)[None]


class Prismatic(AbstractAxial):
    """A slide: the child moves along ``axis`` and does not turn."""

    _: KW_ONLY
    axis: Axis = axis()

    coordinates: ClassVar[Any] = (("", "m"),)
    neutral: ClassVar[Any] = (0.0,)
    rows: ClassVar[Any] = ("across 1", "across 2", "turn x", "turn y", "turn z")

    def columns(self) -> tuple[Array, Array]:
        return jnp.zeros((3, 1)), self.axis.vector()[:, None]

    def turned(self, q: Float[Array, " 1"]) -> Array:
        return jnp.eye(3)

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " 5"]:
        return jnp.concatenate([self.axis.across() @ p, _turned(R)])

    def coordinates_of(self, R: Array, p: Array) -> Float[Array, " 1"]:
        return (self.axis.vector() @ p)[None]


class Cylindrical(AbstractAxial):
    """The child turns about ``axis`` and slides along it."""

    _: KW_ONLY
    axis: Axis = axis()

    coordinates: ClassVar[Any] = (("angle", "rad"), ("slide", "m"))
    neutral: ClassVar[Any] = (0.0, 0.0)
    rows: ClassVar[Any] = ("across 1", "across 2", "tilt 1", "tilt 2")
    within_half_a_turn: ClassVar[bool] = True

    def columns(self) -> tuple[Array, Array]:
        axis, zero = self.axis.vector(), jnp.zeros(3)
        return jnp.stack([axis, zero], axis=1), jnp.stack([zero, axis], axis=1)

    def turned(self, q: Float[Array, " 2"]) -> Array:
        return self.axis.turn(q[0])

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " 4"]:
        return jnp.concatenate([self.axis.across() @ p, _tilt(self.axis, R)])

    def coordinates_of(self, R: Array, p: Array) -> Float[Array, " 2"]:
        return jnp.stack([self.axis.angle_of(R), self.axis.vector() @ p])


def _lead(value):
    lead = as_number("lead", value, "m")
    if is_concrete(lead) and not lead:
        raise ValueError("lead must not be 0 [m]: a screw that does not advance is a Revolute")
    return lead


class Screw(AbstractAxial):
    """The child turns about ``axis`` and moves along it by ``lead`` [m] in each turn. Raises ``ValueError`` for a lead
    of 0."""

    _: KW_ONLY
    lead: Number = eqx.field(converter=_lead)
    axis: Axis = axis()

    coordinates: ClassVar[Any] = (("", "rad"),)
    neutral: ClassVar[Any] = (0.0,)
    rows: ClassVar[Any] = ("across 1", "across 2", "tilt 1", "tilt 2", "thread")

    def columns(self) -> tuple[Array, Array]:
        axis = self.axis.vector()[:, None]
        return axis, self.lead / (2 * jnp.pi) * axis

    def turned(self, q: Float[Array, " 1"]) -> Array:
        return self.axis.turn(q[0])

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " 5"]:
        # The slide says how many turns there are; half a turn from where it should be, the row has no second root.
        thread = self.axis.vector() @ p - self.lead / (2 * jnp.pi) * self._angle(R, p)
        return jnp.concatenate([self.axis.across() @ p, _tilt(self.axis, R), thread[None]])

    def coordinates_of(self, R: Array, p: Array) -> Float[Array, " 1"]:
        return self._angle(R, p)[None]

    def _angle(self, R, p):
        """Counted over turns: the one that is nearest to what the slide says."""
        return nearest_turn(self.axis.angle_of(R), 2 * jnp.pi / self.lead * (self.axis.vector() @ p))


class Planar(AbstractAxial):
    """The child slides in the plane across ``axis`` and turns about it: x and y are along the two directions that make
    a right-handed frame with the axis, of the joint's frame for the axis z."""

    _: KW_ONLY
    axis: Axis = axis()

    coordinates: ClassVar[Any] = (("x", "m"), ("y", "m"), ("angle", "rad"))
    neutral: ClassVar[Any] = (0.0, 0.0, 0.0)
    rows: ClassVar[Any] = ("height", "tilt 1", "tilt 2")
    within_half_a_turn: ClassVar[bool] = True

    def columns(self) -> tuple[Array, Array]:
        (first, second), axis, zero = self.axis.across(), self.axis.vector(), jnp.zeros(3)
        return jnp.stack([zero, zero, axis], axis=1), jnp.stack([first, second, zero], axis=1)

    def turned(self, q: Float[Array, " 3"]) -> Array:
        return self.axis.turn(q[2])

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " 3"]:
        return jnp.concatenate([(self.axis.vector() @ p)[None], _tilt(self.axis, R)])

    def coordinates_of(self, R: Array, p: Array) -> Float[Array, " 3"]:
        return jnp.concatenate([self.axis.across() @ p, self.axis.angle_of(R)[None]])


class Universal(AbstractJoint):
    """Two hinges that cross, as a rule at right angles: about ``axis``, fixed in the parent, then about ``second``,
    fixed in the child. Raises ``ValueError`` where both are parallel."""

    _: KW_ONLY
    axis: Axis = axis("x")
    second: Axis = eqx.field(default="y", converter=lambda given: as_axis("second", given))

    coordinates: ClassVar[Any] = (("first", "rad"), ("second", "rad"))
    neutral: ClassVar[Any] = (0.0, 0.0)
    rows: ClassVar[Any] = ("x", "y", "z", "cross")
    within_half_a_turn: ClassVar[bool] = True

    def __check_init__(self):
        first, second = self.axis.vector(), self.second.vector()
        if is_concrete(first, second) and abs(float(first @ second)) > 1 - 1e-9:
            raise ValueError(f"second must not be parallel to axis, got {second.tolist()} and {first.tolist()}")

    def transform(self, t: Array, q: Float[Array, " 2"]) -> tuple[Array, Array]:
        return self.axis.turn(q[0]) @ self.second.turn(q[1]), jnp.zeros(3)

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " 4"]:
        first, second = self.axis.vector(), self.second.vector()
        return jnp.concatenate([p, (first @ (R @ second) - first @ second)[None]])

    def coordinates_of(self, R: Array, p: Array) -> Float[Array, " 2"]:
        first, second = self.axis.vector(), self.second.vector()
        both, cosine = cross(first, second), first @ second
        one, other = R @ second, R.T @ first
        # R second is second turned about first, and Rᵀ first is first turned back about second: what of them is along
        # the axis of that turn does not count.
        return jnp.stack(
            [
                jnp.arctan2(both @ one, (second - cosine * first) @ one),
                jnp.arctan2(both @ other, (first - cosine * second) @ other),
            ]
        )


class Spherical(AbstractJoint):
    """A ball in its socket: the child turns about a point, its attitude a unit quaternion (w, x, y, z), which has no
    singular attitude; its velocities are the rates about the axes of the joint in the parent, u̇ = ω u/2.

    All depends on u/|u| alone, so that a quaternion whose length has drifted is no trouble.
    """

    coordinates: ClassVar[Any] = (("w", ""), ("x", ""), ("y", ""), ("z", ""))
    neutral: ClassVar[Any] = (1.0, 0.0, 0.0, 0.0)
    rows: ClassVar[Any] = ("x", "y", "z")
    quaternion: ClassVar[int] = 0

    def transform(self, t: Array, q: Float[Array, " 4"]) -> tuple[Array, Array]:
        return of_quaternion(q), jnp.zeros(3)

    def relative(self, t: Array, q: Float[Array, " 4"], v: Float[Array, " 3"]) -> Relative:
        nothing = jnp.zeros(3)
        return Relative(of_quaternion(q), nothing, jnp.eye(3), jnp.zeros((3, 3)), v, nothing, nothing, nothing)

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " 3"]:
        return p


class Free(AbstractJoint):
    """No bond: the child's place and its attitude, a unit quaternion, in the parent's frame; its velocities are that of
    its origin and the rates about the parent's axes."""

    coordinates: ClassVar[Any] = (("x", "m"), ("y", "m"), ("z", "m"), ("qw", ""), ("qx", ""), ("qy", ""), ("qz", ""))
    neutral: ClassVar[Any] = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)
    rows: ClassVar[Any] = ()
    quaternion: ClassVar[int] = 3

    def transform(self, t: Array, q: Float[Array, " 7"]) -> tuple[Array, Array]:
        return of_quaternion(q[3:]), q[:3]

    def relative(self, t: Array, q: Float[Array, " 7"], v: Float[Array, " 6"]) -> Relative:
        nothing, (linear, angular) = jnp.zeros(3), jnp.split(jnp.eye(6), 2)
        return Relative(of_quaternion(q[3:]), q[:3], angular, linear, v[3:], v[:3], nothing, nothing)

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " 0"]:
        return jnp.zeros(0)


def _tilt(axis, R):
    """How far the child's axis leans away from the parent's, 2 tan(θ/2) across it: 0 for the same direction, and not
    for the opposite one, in which a loop would be closed the wrong way round."""
    leaning = R @ axis.vector()
    return 2 * (axis.across() @ leaning) / (1 + axis.vector() @ leaning)


def _turned(R):
    """2 tan(θ/2) along the axis of a rotation: 0 where it is none, and not at half a turn."""
    return 4 * unskew(R) / (1 + jnp.trace(R))
