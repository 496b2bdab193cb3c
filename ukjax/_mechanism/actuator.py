"""The record of a motor on a joint."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from .._check import as_number, as_numpy, kind_of, repr_of
from .._errors import InputError
from .._names import did_you_mean
from ..joints import AbstractActing


class Actuator(NamedTuple):
    """A motor on a joint of a mechanism.

    An actuator is a record: it exerts no force by itself. The force or torque u of the motor acts as ``gear * u`` along
    the coordinate of the joint, so that the motor is a column of ``mechanism.along(joint)``.

    Parameters
    ----------
    name : str
        Name of the motor.
    joint : str
        Name of the joint on which the motor acts.
    gear : float
        Gear ratio: force or torque along the coordinate per unit of u.
    limits : tuple of float, optional
        Lower and upper limit of u [N or N m]; None means that u is unlimited.
    """

    name: str
    joint: str
    gear: float = 1.0
    limits: tuple[float, float] | None = None


def actuators_of(values: Any, joints: Mapping[str, Any]) -> tuple[Actuator, ...]:
    """Validate the actuators that a user passed for a mechanism with these joints.

    Raises ``InputError`` if an entry is not an ``Actuator``, if its joint does not exist or has no coordinate along
    which a motor can act, if a name occurs twice, if a gear is not finite, or if limits are not in ascending order.
    """
    if not isinstance(values, Iterable) or isinstance(values, str | Actuator):
        raise InputError(f"actuators must be a list of ukjax.Actuator, got {repr_of(values)}")
    actuators = []
    for i, actuator in enumerate(values):
        if not isinstance(actuator, Actuator):
            raise InputError(f"actuators[{i}] must be a ukjax.Actuator, got {kind_of(actuator)}")
        name, joint, gear, limits = actuator
        if not isinstance(name, str) or not name:
            raise InputError(f"name of actuators[{i}] must be a word, got {repr_of(name)}")
        if name in [other.name for other in actuators]:
            raise InputError(f"actuators must have a name each, got {name!r} twice")
        if not isinstance(joint, str) or joint not in joints:
            hint = did_you_mean(joint, joints) if isinstance(joint, str) else "."
            raise InputError(f"actuator {name!r} is on a joint {repr_of(joint)} that is not there{hint}")
        if not isinstance(joints[joint], AbstractActing) or joints[joint].quaternion is not None:
            raise InputError(
                f"actuator {name!r} is on {joint!r}, which has no angles or lengths that it could act along"
            )
        as_number(f"gear of actuator {name!r}", gear, above=-math.inf, below=math.inf)
        if limits is not None:
            low_high = as_numpy(f"limits of actuator {name!r}", limits)
            if low_high.shape != (2,) or not low_high[0] <= low_high[1]:
                raise InputError(
                    f"limits of actuator {name!r} must be two numbers, the lower first, or None, got {repr_of(limits)}"
                )
        actuators.append(actuator)
    return tuple(actuators)
