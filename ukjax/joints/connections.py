"""Connections that carry no body: distances, struts, bushings, points on lines and surfaces."""

from dataclasses import KW_ONLY
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._check import as_number, check_function
from .._errors import InputError
from .._functions import vector_of
from .._rotation import quaternion_of, rotation_vector
from .axis import Axis, axis
from .base import AbstractActing, AbstractConnection, Number


class Distance(AbstractConnection):
    """Two points keep a constant distance, as by a massless rod with a ball joint at each end.

    The residual is (p² − l²)/(2l), where p connects the points. Other parameters are those of ``AbstractConnection``.

    Parameters
    ----------
    length : float
        Distance l of the points [m], greater than 0.
    """

    _: KW_ONLY
    length: Number = eqx.field(converter=lambda value: as_number("length", value, "m", above=0, below=float("inf")))
    rows: ClassVar[Any] = ("length",)

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " 1"]:
        return ((p @ p / self.length - self.length) / 2)[None]


class Strut(AbstractActing):
    """A spring, a damper or a linear actuator between two points.

    Its coordinate is the distance of the points [m], along which ``stiffness``, ``rest``, ``damping`` and a motor act.
    A strut imposes no constraint. Its direction is undefined if the points coincide, and its force is NaN there: for a
    spring without length, use a ``Bushing`` with three equal stiffnesses. Parameters are those of ``AbstractActing``
    and ``AbstractConnection``.
    """

    coordinates: ClassVar[Any] = (("", "m"),)
    rows: ClassVar[Any] = ()

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " 0"]:
        return jnp.zeros(0)

    def coordinates_of(self, R: Array, p: Array) -> Float[Array, " 1"]:
        return jnp.sqrt(p @ p)[None]


class Bushing(AbstractActing):
    """Six springs and six dampers between two bodies: a rubber mount.

    The deflection x (6,) is the position p [m] of the child's joint frame in the parent's joint frame, and the rotation
    vector θ e [rad] of its attitude: a rotation by the angle θ ≤ π about the unit vector e. Both are along the axes of
    the parent's joint frame. The potential energy is V = Σ k (x − rest)²/2 − preload (x − rest). The bushing exerts

        f = preload − k (x − rest) − d ẋ

    along each entry of x. The moment is that of V for any angle below π: for a small rotation, and for a rotation about
    a fixed axis, it is −k θ about this axis. At the angle π the axis e has two signs and the moment jumps. The force on
    the child acts at its joint point. The opposite force on the parent acts at the same point of space. A bushing
    imposes no constraint: a body that is connected only by bushings floats.

    Parameters are those of ``AbstractActing``, with six numbers each, and ``AbstractConnection``.

    Parameters
    ----------
    stiffness : (6,), optional
        Stiffness k of the springs along x, y and z [N/m], and of rotation about x, y and z [N m/rad].
    rest : (6,), optional
        Deflection at which the springs exert only the preload: a position [m] and a rotation vector [rad]. Default:
        both joint frames coincide.
    preload : (6,), optional
        Force [N] and generalised moment [N m] on the child at ``rest``.
    damping : (6,), optional
        Damping d [N s/m] and [N m s/rad].

    Raises
    ------
    InputError
        If one of them is not six numbers.
    """

    coordinates: ClassVar[Any] = (("x", "m"), ("y", "m"), ("z", "m"), ("rx", "rad"), ("ry", "rad"), ("rz", "rad"))
    rows: ClassVar[Any] = ()

    def __check_init__(self):
        for field in ("stiffness", "rest", "preload", "damping"):
            value = getattr(self, field)
            if value is not None and value.shape != (6,):
                raise InputError(
                    f"{field} must be six numbers, three of translation and three of rotation, got shape {value.shape}"
                )

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " 0"]:
        return jnp.zeros(0)

    def coordinates_of(self, R: Array, p: Array) -> Float[Array, " 6"]:
        return jnp.concatenate([p, rotation_vector(quaternion_of(R))])


class PointOnLine(AbstractConnection):
    """The child's joint point stays on a line through the parent's joint point.

    Other parameters are those of ``AbstractConnection``.

    Parameters
    ----------
    axis : str or (3,)
        Direction of the line in the parent's joint frame: ``"x"``, ``"-z"``, ... or three numbers. Default: ``"z"``.
    """

    _: KW_ONLY
    axis: Axis = axis()
    rows: ClassVar[Any] = ("across 1", "across 2")

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " 2"]:
        return self.axis.across() @ p


class PointOnSurface(AbstractConnection):
    """The child's joint point stays on a surface.

    Other parameters are those of ``AbstractConnection``.

    Parameters
    ----------
    surface : callable
        ``surface(t, p)``, which is 0 on the surface; p (3,) [m] is the point in the parent's joint frame. Example:
        ``lambda t, p: p[2]`` is a plane.
    """

    _: KW_ONLY
    surface: Any = eqx.field()  # a function; checked in __check_init__
    rows: ClassVar[Any] = ("surface",)

    def __check_init__(self):
        check_function("surface", self.surface, "t, p")

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " 1"]:
        return vector_of(1, "surface", "surface", self.surface, t, p)
