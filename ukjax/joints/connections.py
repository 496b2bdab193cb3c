"""Bonds between two bodies that have no coordinates of their own: they only close loops."""

from collections.abc import Callable
from dataclasses import KW_ONLY
from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array, Float

from .._check import check_function, number
from .._functions import vector
from .axis import AbstractAxis, axis
from .base import AbstractConnection


class Distance(AbstractConnection):
    """Two points stay ``length`` [m] apart, as by a massless rod with a ball at each end: (p² − l²)/(2l) = 0."""

    _: KW_ONLY
    length: Float[Array, ""] = eqx.field(converter=lambda value: number("length", value, "m", above=0))
    rows: ClassVar[Any] = ("length",)

    def gap(self, t: Array, R: Array, p: Array) -> Float[Array, " 1"]:
        return ((p @ p / self.length - self.length) / 2)[None]


class PointOnLine(AbstractConnection):
    """The child's point stays on the line through the parent's along ``axis``."""

    _: KW_ONLY
    axis: AbstractAxis = axis()
    rows: ClassVar[Any] = ("across 1", "across 2")

    def gap(self, t: Array, R: Array, p: Array) -> Float[Array, " 2"]:
        return self.axis.across() @ p


class PointOnSurface(AbstractConnection):
    """The child's point stays where ``surface(t, p)`` is 0, a function of its place p (3,) [m] in the parent's joint
    frame: ``lambda t, p: p[2]`` is a plane."""

    _: KW_ONLY
    surface: Callable = eqx.field()
    rows: ClassVar[Any] = ("surface",)

    def __check_init__(self):
        check_function("surface", self.surface, "t, p")

    def gap(self, t: Array, R: Array, p: Array) -> Float[Array, " 1"]:
        return vector("surface", self.surface, t, p)
