"""Rolling contacts: joints that constrain velocities and always hold. Contacts that open are in ``ukjax.contacts``."""

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
    """A rolling contact: a connection that constrains velocities by the rows of ``slip``.

    It may constrain positions by ``residual``. It never opens: contacts that open are those of ``ukjax.contacts``.
    """

    slip_rows: ClassVar[tuple[str, ...]]
    """A name for each row of ``slip``."""

    @abc.abstractmethod
    def slip(self, t: Array, R: Array, p: Array, omega: Array, velocity: Array) -> Float[Array, " k"]:
        """The slip velocity (k,) [m/s], which is 0 where the contact holds.

        Parameters
        ----------
        t : ()
            Time [s].
        R : (3, 3)
            Axes of the child's joint frame, as columns, in the parent's joint frame.
        p : (3,)
            Origin of the child's joint frame in the parent's joint frame [m].
        omega : (3,)
            Angular velocity of the child relative to the parent, in the parent's joint frame [rad/s].
        velocity : (3,)
            Velocity of the origin of the child's joint frame in the parent's joint frame [m/s].
        """


class KnifeEdge(AbstractContact):
    """A blade, or a wheel without inertia: the child's joint point has no velocity along an axis of the child.

    Other parameters are those of ``AbstractConnection``.

    Parameters
    ----------
    axis : str or (3,)
        Direction in the child's joint frame: ``"x"``, ``"-z"``, ... or three numbers. Default: ``"y"``.
    """

    _: KW_ONLY
    axis: Axis = axis("y")
    rows: ClassVar[Any] = ()
    slip_rows: ClassVar[Any] = ("sideways",)

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " 0"]:
        return jnp.zeros(0)

    def slip(self, t: Array, R: Array, p: Array, omega: Array, velocity: Array) -> Float[Array, " 1"]:
        return ((R @ self.axis.vector()) @ velocity)[None]


class Rolling(AbstractContact):
    """A disc or a ball that rolls without slipping on a plane.

    The plane passes through the parent's joint point. The origin of the child's joint frame is the centre of the disc.
    The point of contact is undefined for a disc that lies flat on the plane. Other parameters are those of
    ``AbstractConnection``.

    Parameters
    ----------
    radius : float
        Radius of the disc or ball [m], greater than 0.
    axis : str or (3,) or None
        Axis of the disc in the child's joint frame; None for a ball. Default: ``"y"``.
    normal : str or (3,)
        Normal of the plane in the parent's joint frame. Default: ``"z"``.
    """

    _: KW_ONLY
    radius: Number = eqx.field(converter=lambda value: as_number("radius", value, "m", above=0, below=float("inf")))
    axis: Axis | None = eqx.field(
        default="y", converter=lambda value: None if value is None else as_axis("axis", value)
    )
    normal: Axis = eqx.field(default="z", converter=lambda value: as_axis("normal", value))
    rows: ClassVar[Any] = ("height",)
    slip_rows: ClassVar[Any] = ("slip 1", "slip 2")

    def lowest(self, R: Array) -> Float[Array, " 3"]:
        """The vector from the centre to the point of contact [m]."""
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
