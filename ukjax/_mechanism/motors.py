"""The motors of a mechanism as a control: inputs in the units of the motors, servo laws and limits."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._constraint import AbstractConstraint
from .._control import AbstractControl, Command, MotorForce, no_task
from .._errors import InputError
from .._functions import Zero, as_vector_function, vector_of
from .._names import did_you_mean
from .._precision import as_float
from .._terms import Terms
from .actuator import Actuator
from .elements import JointCoordinates
from .named import Named, numbers_by_name
from .tree import Tree


class _Forces(NamedTuple):
    """Forces of the motors at one state: f before and after its limits, u within its limits, and B for f."""

    unlimited: Float[Array, " p"]
    force: Float[Array, " p"]
    u: Float[Array, " p"]
    columns: Float[Array, "n p"]
    rate: Float[Array, " p"]


class Motors(AbstractControl):
    """Control by the motors of a mechanism, made by ``Mechanism.motors``.

    With the coordinates x of the joints, l = gear · x and inputs u, the generalised force of the motors is

        Q = B f,    f = limited((g₀ + g₁ l + g₂ l̇) limited(u) + b₀ + b₁ l + b₂ l̇),

    with a column of B = ``actuators(t, q)`` (n, p) for each motor, that of its joint times its gear ratio. ``limited``
    moves a value to the nearest one within its limits. Derivatives by a limited value are 0.

    Attributes
    ----------
    law
        Function (t, q, v) that returns u (p,).
    gear
        Gear ratios (p,).
    gain, bias
        g₀, g₁, g₂ and b₀, b₁, b₂ of each motor, (p, 3).
    input_limits, force_limits
        Lower and upper limits of u and f (p, 2), infinite where there is none.
    speed_limits
        Largest rates of x for which the motors are designed (p,), infinite where none is known.
    coordinates
        Coordinates of the joints.
    inputs
        Name and unit of the input of each motor.
    """

    law: Callable | Zero
    gear: Float[Array, " p"]
    gain: Float[Array, "p 3"]
    bias: Float[Array, "p 3"]
    input_limits: Float[Array, "p 2"]
    force_limits: Float[Array, "p 2"]
    speed_limits: Float[Array, " p"]
    coordinates: JointCoordinates
    inputs: tuple[tuple[str, str], ...] = eqx.field(static=True)  # pyright: ignore[reportIncompatibleVariableOverride]
    task: ClassVar[tuple[AbstractConstraint, ...]] = ()
    projected: ClassVar[bool] = False

    @classmethod
    def of(cls, actuators: tuple[Actuator, ...], joints: Named, tree: Tree, law: Any) -> "Motors":
        """The motors of these actuators. Raises ``InputError`` if there is none, or a joint has several coordinates."""
        if not actuators:
            raise InputError(
                "this mechanism has no actuators: Mechanism(bodies, joints, actuators=[ukjax.Actuator('motor', joint)])"
            )
        units = []
        for actuator in actuators:
            coordinates = joints[actuator.joint].coordinates
            if len(coordinates) != 1:
                raise InputError(
                    f"actuator {actuator.name!r} must be on a joint with one coordinate, and {actuator.joint!r} has "
                    f"{len(coordinates)}: use mechanism.along({actuator.joint!r}) and ukjax.control.Feedback"
                )
            units.append(actuator.input_unit(coordinates[0][1]))
        names = tuple(actuator.name for actuator in actuators)
        joint_names = tuple(actuator.joint for actuator in actuators)
        # The coordinates of joints that carry bodies are entries of q, so that the joints are not needed.
        needed = joints if any(tree.link_of_joint(name) is None for name in joint_names) else Named((), ())
        numbers = lambda values: as_float(np.array(list(values), float))
        limits = lambda value: (-np.inf, np.inf) if value is None else value
        return cls(
            law=_law_of(law, names),
            gear=numbers(actuator.gear for actuator in actuators),
            gain=numbers(actuator.gains() for actuator in actuators),
            bias=numbers(actuator.bias for actuator in actuators),
            input_limits=numbers(limits(actuator.limits) for actuator in actuators),
            force_limits=numbers(limits(actuator.force_limits) for actuator in actuators),
            speed_limits=numbers(actuator.speed_limit or np.inf for actuator in actuators),
            coordinates=JointCoordinates(needed, tree, joint_names),
            inputs=tuple(zip(names, units, strict=True)),
        )

    @property
    def actuators(self) -> Callable:
        return self._columns

    def command(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], passive: Terms) -> Command:
        return no_task(self._inputs(t, q, v))

    def force(
        self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], u: Float[Array, " p"]
    ) -> Float[Array, " n"]:
        at = self._forces(t, q, v, u)
        return at.columns @ at.force

    def matrix(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "n p"]:
        """Return the derivative (n, p) of the generalised force by u, at the inputs of the law."""
        return jax.jacfwd(lambda u: self.force(t, q, v, u))(self._inputs(t, q, v))

    def motor_force(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], u: Float[Array, " p"]) -> MotorForce:
        at = self._forces(t, q, v, u)
        return MotorForce(at.force, (at.u != u) | (at.force != at.unlimited), jnp.abs(at.rate) > self.speed_limits)

    def _inputs(self, t, q, v) -> Float[Array, " p"]:
        return vector_of(self.gear.size, "motor", "law", self.law, t, q, v)

    def _columns(self, t, q) -> Float[Array, "n p"]:
        return self.coordinates.columns(t, q) * self.gear

    def _forces(self, t, q, v, u) -> _Forces:
        motion = self.coordinates.motion(t, q, v)
        length, rate = self.gear * motion.value, self.gear * motion.rate
        value_of = lambda c: c[:, 0] + c[:, 1] * length + c[:, 2] * rate
        within = lambda x, limits: jnp.minimum(jnp.maximum(x, limits[:, 0]), limits[:, 1])
        limited_u = within(u, self.input_limits)
        unlimited = value_of(self.gain) * limited_u + value_of(self.bias)
        force = within(unlimited, self.force_limits)
        return _Forces(unlimited, force, limited_u, motion.A.T * self.gear, motion.rate)


def _law_of(law: Any, names: tuple[str, ...]) -> Callable | Zero:
    """The function (t, q, v) -> u (p,) of a law. A dictionary has inputs by name of the motor, 0 for the others."""
    if not isinstance(law, Mapping):
        return as_vector_function("law", law, "t, q, v")
    inputs = numbers_by_name("law", law, names[0])
    for name in inputs:
        if name not in names:
            raise InputError(f"law names no motor {name!r}{did_you_mean(name, names)}")
    values = [inputs.get(name, jnp.zeros(())) for name in names]
    return as_vector_function("law", jnp.stack(values), "t, q, v")
