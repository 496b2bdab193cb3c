"""Bonds between the coordinates of joints: gears, cams, motions that are given."""

import abc
from dataclasses import KW_ONLY
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from .._check import as_array, as_number, call, check_function
from .base import Name, Number


def value_of(name: str, function: Any, x: Array) -> Float[Array, " 1"]:
    """What a user's function of one number returns: one number, or ``ValueError``."""
    value = as_array(name, call(name, function, x), "one number", "return")
    if value.size != 1:
        raise ValueError(f"{name} must return one number, got shape {value.shape}")
    return value.reshape(1)


def _name_of_joint(name):
    def convert(value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError(f"{name} must be the name of a joint, got {value!r}")
        return value

    return eqx.field(static=True, converter=convert)


class AbstractCoupling(eqx.Module):
    """One equation between the coordinates of joints with one coordinate each.

    It is an equation of positions, also for a joint that closes a loop and in absolute coordinates: the turns of such a
    joint are counted by a coordinate of its own, at the end of q, named as the joint is.
    """

    @property
    @abc.abstractmethod
    def joints(self) -> tuple[str, ...]:
        """The names of the joints that it is about."""

    @abc.abstractmethod
    def residual(self, t: Array, x: Float[Array, " joints"]) -> Float[Array, " 1"]:
        """φ(t, x), which is 0, of the coordinates x (joints,) of its joints."""


class Gear(AbstractCoupling):
    """q = ``ratio`` q_other + ``offset``: of ``joint`` and the joint named ``other``. Gears that mesh on the outside
    have a negative ratio; a joint that mimics another is one of these."""

    joint: Name = _name_of_joint("joint")
    other: Name = _name_of_joint("other")
    _: KW_ONLY
    ratio: Number = eqx.field(default=1.0, converter=lambda value: as_number("ratio", value))
    offset: Number = eqx.field(default=0.0, converter=lambda value: as_number("offset", value))

    @property
    def joints(self) -> tuple[str, str]:
        return self.joint, self.other

    def residual(self, t: Array, x: Float[Array, " 2"]) -> Float[Array, " 1"]:
        return (x[0] - self.ratio * x[1] - self.offset)[None]


class Cam(AbstractCoupling):
    """q = ``profile``(q_other), a function of a number: of ``joint``, the follower, and the joint named ``other``."""

    joint: Name = _name_of_joint("joint")
    other: Name = _name_of_joint("other")
    _: KW_ONLY
    profile: Any = eqx.field()

    def __check_init__(self):
        check_function("profile", self.profile, "x")

    @property
    def joints(self) -> tuple[str, str]:
        return self.joint, self.other

    def residual(self, t: Array, x: Float[Array, " 2"]) -> Float[Array, " 1"]:
        return x[:1] - value_of("profile", self.profile, x[1])


class Drive(AbstractCoupling):
    """q = ``motion``(t) [s]: the ``joint`` moves as it is told, whatever that takes."""

    joint: Name = _name_of_joint("joint")
    _: KW_ONLY
    motion: Any = eqx.field()

    def __check_init__(self):
        check_function("motion", self.motion, "t")

    @property
    def joints(self) -> tuple[str]:
        return (self.joint,)

    def residual(self, t: Array, x: Float[Array, " 1"]) -> Float[Array, " 1"]:
        return x - value_of("motion", self.motion, t)
