"""Bonds between two bodies that carry none of them."""

from dataclasses import KW_ONLY
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._check import as_number, check_function
from .._functions import vector_of
from .axis import Axis, axis
from .base import AbstractActing, AbstractConnection, Number


class Distance(AbstractConnection):
    """Two points stay ``length`` [m] apart, as by a massless rod with a ball at each end: (p² − l²)/(2l) = 0."""

    _: KW_ONLY
    length: Number = eqx.field(converter=lambda value: as_number("length", value, "m", above=0))
    rows: ClassVar[Any] = ("length",)

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " 1"]:
        return ((p @ p / self.length - self.length) / 2)[None]


class Strut(AbstractActing):
    """A spring, a damper or a cylinder between two points: its coordinate is their distance [m], along which
    ``stiffness``, ``rest``, ``damping`` and a motor act. It binds nothing. Where the points meet it has no
    direction."""

    coordinates: ClassVar[Any] = (("", "m"),)
    rows: ClassVar[Any] = ()

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " 0"]:
        return jnp.zeros(0)

    def coordinates_of(self, R: Array, p: Array) -> Float[Array, " 1"]:
        return jnp.sqrt(p @ p)[None]


class PointOnLine(AbstractConnection):
    """The child's point stays on the line through the parent's along ``axis``."""

    _: KW_ONLY
    axis: Axis = axis()
    rows: ClassVar[Any] = ("across 1", "across 2")

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " 2"]:
        return self.axis.across() @ p


class PointOnSurface(AbstractConnection):
    """The child's point stays where ``surface(t, p)`` is 0, a function of its place p (3,) [m] in the parent's joint
    frame: ``lambda t, p: p[2]`` is a plane."""

    _: KW_ONLY
    surface: Any = eqx.field()  # a function, as is checked below
    rows: ClassVar[Any] = ("surface",)

    def __check_init__(self):
        check_function("surface", self.surface, "t, p")

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " 1"]:
        return vector_of(1, "surface", "surface", self.surface, t, p)
