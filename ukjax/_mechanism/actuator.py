"""The record of a motor on a joint."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from .._check import as_number, as_numpy, kind_of, repr_of
from .._errors import InputError
from .._names import did_you_mean
from ..joints import AbstractActing


class Actuator(NamedTuple):
    """A motor on a joint of a mechanism.

    An actuator is a record: alone it exerts no force. ``Mechanism.motors`` makes a control of the actuators of a
    mechanism, with an input u for each. With the joint's coordinate x, the motor has the angle or length l = ``gear`` x
    and the force

        f = (g₀ + g₁ l + g₂ l̇) u + b₀ + b₁ l + b₂ l̇,

    where u, and then f, is moved to the nearest value within its limits. The generalised force ``gear`` f acts along x.
    These are the laws of ``motor``, ``position``, ``velocity``, ``damper`` and ``general`` in MuJoCo.

    Parameters
    ----------
    name : str
        Name of the motor.
    joint : str
        Name of the joint on which the motor acts.
    gear : float
        Gear ratio: force or torque along the coordinate per unit of f.
    limits : tuple of float, optional
        Lower and upper limit of the input u; None means that u is unlimited.
    force_limits : tuple of float, optional
        Lower and upper limit of f [N or N m]; None means that f is unlimited.
    gain : float or tuple of float
        g₀, or (g₀, g₁, g₂). By default u is the force of the motor [N or N m].
    bias : tuple of float
        (b₀, b₁, b₂).
    speed_limit : float, optional
        Largest rate of the coordinate for which the motor is designed [rad/s or m/s]. It does not change a force; see
        ``Trajectory.motors``.
    """

    name: str
    joint: str
    gear: float = 1.0
    limits: tuple[float, float] | None = None
    force_limits: tuple[float, float] | None = None
    gain: float | tuple[float, float, float] = 1.0
    bias: tuple[float, float, float] = (0.0, 0.0, 0.0)
    speed_limit: float | None = None

    @classmethod
    def position(cls, name: str, joint: str, kp: float, kv: float = 0.0, **more: Any) -> "Actuator":
        """A position servo: f = kp (u − l) − kv l̇.

        Parameters
        ----------
        name, joint : str
            Names of the motor and of its joint.
        kp : float
            Stiffness [N m/rad or N/m].
        kv : float
            Damping [N m s/rad or N s/m].
        **more
            Other parameters of ``Actuator``.

        Returns
        -------
        Actuator
            The motor, whose input u is the desired angle or length l.
        """
        return cls(name, joint, gain=kp, bias=(0.0, -kp, -kv), **more)

    @classmethod
    def velocity(cls, name: str, joint: str, kv: float, **more: Any) -> "Actuator":
        """A velocity servo: f = kv (u − l̇).

        Parameters
        ----------
        name, joint : str
            Names of the motor and of its joint.
        kv : float
            Damping [N m s/rad or N s/m].
        **more
            Other parameters of ``Actuator``.

        Returns
        -------
        Actuator
            The motor, whose input u is the desired rate l̇.
        """
        return cls(name, joint, gain=kv, bias=(0.0, 0.0, -kv), **more)

    def gains(self) -> np.ndarray:
        """g₀, g₁, g₂, shape (3,)."""
        gain = np.asarray(self.gain, float)
        return gain if gain.ndim else np.array([gain, 0.0, 0.0])

    @property
    def is_servo(self) -> bool:
        """Whether the force depends on the coordinate of the joint."""
        return bool(self.gains()[1]) or bool(self.bias[1])

    def input_unit(self, unit: str) -> str:
        """The unit of u for a coordinate with this ``unit``: that of a force, a position or a rate; else empty."""
        gain, bias = self.gains(), np.asarray(self.bias, float)
        if np.any(gain[1:]):
            return ""
        if gain[0] == 1 and not np.any(bias):
            return {"m": "N", "rad": "N m"}.get(unit, "")
        if gain[0] == -bias[1] and bias[0] == 0:
            return unit
        return f"{unit}/s" if gain[0] == -bias[2] and not np.any(bias[:2]) else ""


def actuators_of(values: Any, joints: Mapping[str, Any]) -> tuple[Actuator, ...]:
    """Validate the actuators that a user passed for a mechanism with these joints.

    Raises ``InputError`` if an entry is not an ``Actuator``, if its joint does not exist or has no coordinate along
    which a motor can act, if a name occurs twice, if a number is not finite, or if limits are not in ascending order.
    """
    if isinstance(values, Actuator):
        raise InputError(f"actuators must be a list of ukjax.Actuator, got one Actuator, {values.name!r}")
    if not isinstance(values, Iterable) or isinstance(values, str):
        raise InputError(f"actuators must be a list of ukjax.Actuator, got {repr_of(values)}")
    actuators = []
    for i, actuator in enumerate(values):
        if not isinstance(actuator, Actuator):
            raise InputError(f"actuators[{i}] must be a ukjax.Actuator, got {kind_of(actuator)}")
        name, joint = actuator.name, actuator.joint
        if not isinstance(name, str) or not name:
            raise InputError(f"name of actuators[{i}] must be a word, got {repr_of(name)}")
        if name in [other.name for other in actuators]:
            raise InputError(f"actuators must have different names, got {name!r} twice")
        if not isinstance(joint, str) or joint not in joints:
            hint = did_you_mean(joint, joints) if isinstance(joint, str) else "."
            raise InputError(f"joint of actuator {name!r} must be the name of a joint, got {repr_of(joint)}{hint}")
        if not isinstance(joints[joint], AbstractActing) or joints[joint].quaternion is not None:
            raise InputError(
                f"joint of actuator {name!r} must have an angle or a length to act along, and {joint!r} has none"
            )
        _check_numbers(actuator)
        actuators.append(actuator)
    return tuple(actuators)


def _check_numbers(actuator):
    name = actuator.name
    as_number(f"gear of actuator {name!r}", actuator.gear)
    for field in ("limits", "force_limits"):
        value = getattr(actuator, field)
        if value is not None:
            low_high = as_numpy(f"{field} of actuator {name!r}", value)
            if low_high.shape != (2,) or not low_high[0] <= low_high[1]:
                raise InputError(
                    f"{field} of actuator {name!r} must be two numbers, the lower first, or None, got {repr_of(value)}"
                )
    for field, value, shapes, wanted in (
        ("gain", actuator.gain, ((), (3,)), "a number or three numbers"),
        ("bias", actuator.bias, ((3,),), "three numbers"),
    ):
        numbers = as_numpy(f"{field} of actuator {name!r}", value)
        if numbers.shape not in shapes or not np.all(np.isfinite(numbers)):
            raise InputError(f"{field} of actuator {name!r} must be {wanted}, got {repr_of(value)}")
    if actuator.speed_limit is not None:
        as_number(f"speed_limit of actuator {name!r}", actuator.speed_limit, infinite=True, above=0)
