"""Bonds on velocities: rolling and knife edges."""

import abc
from dataclasses import KW_ONLY
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._check import as_number
from .._rotation import cross
from .axis import Axis, as_axis, axis
from .base import AbstractConnection, Number


class AbstractContact(AbstractConnection):
    """What binds the velocities of two bodies, and perhaps their positions: rows of ``slip`` and of
    ``residual``."""

    slip_rows: ClassVar[tuple[str, ...]]
    """A name for each row of ``slip``."""

    @abc.abstractmethod
    def slip(self, t: Array, R: Array, p: Array, omega: Array, velocity: Array) -> Float[Array, " k"]:
        """What vanishes, of the child's joint frame in the parent's and of its angular velocity and velocity there."""


class KnifeEdge(AbstractContact):
    """A blade, or a wheel without inertia: the child's point has no velocity along ``axis`` of the child."""

    _: KW_ONLY
    axis: Axis = axis("y")
    rows: ClassVar[Any] = ()
    slip_rows: ClassVar[Any] = ("sideways",)

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " 0"]:
        return jnp.zeros(0)

    def slip(self, t: Array, R: Array, p: Array, omega: Array, velocity: Array) -> Float[Array, " 1"]:
        return ((R @ self.axis.vector()) @ velocity)[None]


class Rolling(AbstractContact):
    """A disc, or a ball, that rolls without slipping on the plane through the parent's point, across ``normal``.

    The child's joint frame has its origin in the centre of the disc, whose rim has the ``radius`` [m] about ``axis``;
    None for a ball. A disc that lies flat has no one point of contact.
    """

    _: KW_ONLY
    radius: Number = eqx.field(converter=lambda value: as_number("radius", value, "m", above=0))
    axis: Axis | None = eqx.field(
        default="y", converter=lambda given: None if given is None else as_axis("axis", given)
    )
    normal: Axis = eqx.field(default="z", converter=lambda given: as_axis("normal", given))
    rows: ClassVar[Any] = ("height",)
    slip_rows: ClassVar[Any] = ("slip 1", "slip 2")

    def lowest(self, R: Array) -> Float[Array, " 3"]:
        """From the centre to where it touches the plane."""
        normal = self.normal.vector()
        if self.axis is None:
            return -self.radius * normal
        axis = R @ self.axis.vector()
        up = normal - (normal @ axis) * axis
        return -self.radius * up / jnp.sqrt(up @ up)

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " 1"]:
        return (self.normal.vector() @ (p + self.lowest(R)))[None]

    def slip(self, t: Array, R: Array, p: Array, omega: Array, velocity: Array) -> Float[Array, " 2"]:
        return self.normal.across() @ (velocity + cross(omega, self.lowest(R)))
