"""Couplings between joint coordinates: gears, cams and prescribed motions."""

import abc
from dataclasses import KW_ONLY
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from .._check import as_array, as_number, call, check_function
from .._errors import InputError
from .._jaxpr.tracing import is_concrete
from .base import Name, Number


def value_of(name: str, function: Any, x: Array) -> Float[Array, " 1"]:
    """The value of a user's function of one number, as an array (1,).

    Raises ``InputError`` if it does not return one number.
    """
    value = as_array(name, call(name, function, x), "one number", "return")
    if value.size != 1:
        raise InputError(f"{name} must return one number, got shape {value.shape}")
    return value.reshape(1)


def _name_of_joint(name):
    def convert(value: Any) -> str:
        if not isinstance(value, str):
            raise InputError(f"{name} must be the name of a joint, got {value!r}")
        return value

    return eqx.field(static=True, converter=convert)


class AbstractCoupling(eqx.Module):
    """One equation between the coordinates of joints that have one coordinate each.

    The equation is a constraint on positions, also for joints that close loops and in absolute coordinates. An
    additional coordinate at the end of q, with the name of the joint, counts the turns of such a joint. To add a kind
    of coupling, subclass this and define ``joints`` and ``residual``.
    """

    @property
    @abc.abstractmethod
    def joints(self) -> tuple[str, ...]:
        """The names of the coupled joints."""

    @property
    def has_play(self) -> bool:
        """Whether the residual may be as large as half a ``backlash``, limited by contacts."""
        return False

    @abc.abstractmethod
    def residual(self, t: Array, x: Float[Array, " joints"]) -> Float[Array, " 1"]:
        """The residual φ(t, x) (1,), which is 0 where the coupling holds.

        Parameters
        ----------
        t : ()
            Time [s].
        x : (joints,)
            Coordinates of the joints in ``joints`` [rad or m].
        """


class Gear(AbstractCoupling):
    """A linear coupling q = ``ratio`` q_other + ``offset``, such as a gear or a joint that mimics another.

    Parameters
    ----------
    joint : str
        Name of the joint with the coordinate q.
    other : str
        Name of the joint with the coordinate q_other.
    ratio : float
        Ratio of the coordinates; negative for gears with external teeth.
    offset : float
        Value of q at q_other = 0 [rad or m].
    backlash : float, optional
        Play β > 0 between the teeth, in the unit of q: \\|q − ``ratio`` q_other − ``offset``\\| ≤ β/2, by two contacts
        as those of ``ukjax.Unilateral``. Default: no play; the coupling is an equation.
    restitution : float
        Coefficient of restitution of the teeth, from 0 to 1, with ``backlash``.
    """

    joint: Name = _name_of_joint("joint")
    other: Name = _name_of_joint("other")
    _: KW_ONLY
    ratio: Number = eqx.field(default=1.0, converter=lambda value: as_number("ratio", value))
    offset: Number = eqx.field(default=0.0, converter=lambda value: as_number("offset", value))
    backlash: Number | None = eqx.field(
        default=None, converter=lambda value: None if value is None else as_number("backlash", value, above=0)
    )
    restitution: Number = eqx.field(
        default=0.0, converter=lambda value: as_number("restitution", value, least=0, most=1)
    )

    def __check_init__(self):
        if self.backlash is None and is_concrete(self.restitution) and np.any(np.asarray(self.restitution) != 0):
            raise InputError("restitution of a Gear needs backlash: teeth without play do not collide")

    @property
    def joints(self) -> tuple[str, str]:
        return self.joint, self.other

    @property
    def has_play(self) -> bool:
        return self.backlash is not None

    def residual(self, t: Array, x: Float[Array, " 2"]) -> Float[Array, " 1"]:
        return (x[0] - self.ratio * x[1] - self.offset)[None]


class Cam(AbstractCoupling):
    """A nonlinear coupling, ``q = profile(q_other)``.

    Parameters
    ----------
    joint : str
        Name of the follower, with the coordinate q.
    other : str
        Name of the cam, with the coordinate q_other.
    profile : callable
        Function of one number that returns one number.
    """

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
    """A prescribed motion, ``q = motion(t)``.

    Parameters
    ----------
    joint : str
        Name of the joint with the coordinate q.
    motion : callable
        Function of time [s] that returns the coordinate [rad or m].
    """

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
