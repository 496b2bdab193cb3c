"""A motor of a mechanism: a record of what is there, which moves nothing by itself."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from .._check import as_number, as_numpy, kind_of, repr_of
from .._names import did_you_mean
from ..joints import AbstractActing


class Actuator(NamedTuple):
    """A motor ``name`` on the ``joint``: its force or torque u within ``limits`` (low, high), None where there are
    none, is ``gear`` u along the joint's coordinate, so that it is a column of ``mechanism.along(joint)``."""

    name: str
    joint: str
    gear: float = 1.0
    limits: tuple[float, float] | None = None


def actuators_of(given: Any, joints: Mapping[str, Any]) -> tuple[Actuator, ...]:
    """The actuators a user gave for a mechanism of these joints. Raises ``ValueError`` for what is none, for a joint
    that is not there or has no coordinate that a motor can act along, for a name that is given twice, for a gear that
    is not finite, and for limits that are not in order."""
    if not isinstance(given, Iterable) or isinstance(given, str | Actuator):
        raise ValueError(f"actuators must be a list of ukjax.Actuator, got {repr_of(given)}")
    found = []
    for i, each in enumerate(given):
        if not isinstance(each, Actuator):
            raise ValueError(f"actuators[{i}] must be a ukjax.Actuator, got {kind_of(each)}")
        name, joint, gear, limits = each
        if not isinstance(name, str) or not name:
            raise ValueError(f"name of actuators[{i}] must be a word, got {repr_of(name)}")
        if name in [other.name for other in found]:
            raise ValueError(f"actuators must have a name each, got {name!r} twice")
        if not isinstance(joint, str) or joint not in joints:
            hint = did_you_mean(joint, joints) if isinstance(joint, str) else "."
            raise ValueError(f"actuator {name!r} is on a joint {repr_of(joint)} that is not there{hint}")
        if not isinstance(joints[joint], AbstractActing) or joints[joint].quaternion is not None:
            raise ValueError(
                f"actuator {name!r} is on {joint!r}, which has no angles or lengths that it could act along"
            )
        as_number(f"gear of actuator {name!r}", gear, above=-math.inf, below=math.inf)
        if limits is not None:
            low_high = as_numpy(f"limits of actuator {name!r}", limits)
            if low_high.shape != (2,) or not low_high[0] <= low_high[1]:
                raise ValueError(
                    f"limits of actuator {name!r} must be two numbers, the lower first, or None, got {repr_of(limits)}"
                )
        found.append(each)
    return tuple(found)
