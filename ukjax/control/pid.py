"""Control with proportional, integral and derivative action."""

from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._check import as_numbers, check_function
from .._control import AbstractControl, Command, as_limits, known_input_count, no_task
from .._errors import InputError
from .._functions import Constant, as_function, vector, vector_of
from .._kinematic_map import KinematicMap, StateMap
from .._kinematic_map import rate as rate_of
from .._names import names_and_units
from .._precision import Numbers
from .._terms import Terms
from .states import AbstractControlWithStates


class PID(AbstractControlWithStates):
    """Proportional, integral and derivative control of outputs y(t, q).

        u = kp e + ki s + kd ė,    e = target(t) − y(t, q),    ṡ = e

    The integrals s are states, which ``ukjax.simulate`` integrates with the motion. They follow the velocities in v,
    and ``Trajectory.states`` has them by name.

    Parameters
    ----------
    actuators
        B (n, p), one column per actuator: an array or a function of (t, q), such as ``mechanism.along("knee")``.
    output
        Function ``output(t, q)`` that returns y (p,), one output per actuator.
    target
        Desired values of the outputs, (p,) or a number, or a function of t that returns (p,).
    kp, ki, kd
        Gains, a number or (p,) [unit of u per unit of y, per unit of y and second, and per unit of y/s].
    initial
        Values of the integrals at the start, (p,) or a number.
    limits
        Largest |u| of each actuator, (p,) or a number, in the unit of u. A simulation warns if u exceeds it.
    inputs
        Name and unit of each actuator: ``(("u1", "N m"), ...)``.

    Raises
    ------
    InputError
        If an argument has the wrong type, or numbers have different shapes. Wrong shapes of functions are reported when
        the control is evaluated.
    """

    actuators: Callable
    output: Callable
    target: Callable
    kp: Float[Array, " p"]
    ki: Float[Array, " p"]
    kd: Float[Array, " p"]
    initial: Float[Array, " p"]  # pyright: ignore[reportIncompatibleVariableOverride]
    limits: Array | None  # pyright: ignore[reportIncompatibleVariableOverride]
    inputs: tuple[tuple[str, str], ...] | None = eqx.field(static=True)
    kinematic_map: KinematicMap | None

    def __init__(
        self,
        actuators: Any,
        output: Callable,
        target: Any = 0.0,
        *,
        kp: Numbers = 0.0,
        ki: Numbers = 0.0,
        kd: Numbers = 0.0,
        initial: Numbers = 0.0,
        limits: Numbers | None = None,
        inputs: Iterable[tuple[str, str]] | None = None,
    ):
        self.actuators = as_function("actuators", actuators, "t, q")
        self.output = as_function("output", output, "t, q")
        if callable(target):
            check_function("target", target, "t")
        target = target if callable(target) else as_numbers("target", target)
        self.inputs = names_and_units("inputs", inputs)
        numbers = {"kp": kp, "ki": ki, "kd": kd, "initial": initial}
        values = {name: as_numbers(name, value) for name, value in numbers.items()}
        shapes = {name: x.shape for name, x in values.items()} | ({} if callable(target) else {"target": target.shape})
        known = known_input_count(self.inputs, self.actuators)
        count = {} if known is None else {"inputs": (known,)}
        try:
            shape = jnp.broadcast_shapes((1,), *shapes.values(), *count.values())
        except ValueError:
            shape = ()
        if len(shape) != 1:
            seen = ", ".join(f"{name} {shape}" for name, shape in (shapes | count).items())
            raise InputError(f"kp, ki, kd, initial and target must be numbers or have shape (p,), got shapes {seen}")
        self.kp, self.ki, self.kd, self.initial = (jnp.broadcast_to(x, shape) for x in values.values())
        self.target = target if callable(target) else Constant(jnp.broadcast_to(target, shape))
        self.limits, self.kinematic_map = as_limits(limits), None

    @property
    def input_count(self) -> int:
        return self.initial.size

    @property
    def states(self) -> tuple[tuple[str, str], ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Name and unit of each integral: ``"integral u1"``, ..."""
        names = [name for name, _ in self.inputs or ()] or [f"u{i + 1}" for i in range(self.initial.size)]
        return tuple((f"integral {name}", "") for name in names)

    def under(self, kinematic_map: KinematicMap | None) -> AbstractControl:
        others = kinematic_map.others if isinstance(kinematic_map, StateMap) else kinematic_map
        return eqx.tree_at(lambda c: c.kinematic_map, self, others, is_leaf=lambda x: x is None)

    def error(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, " p"]:
        """Return e (p,)."""
        p, y = self.initial.size, vector("output", self.output, t, q)
        if y.size != p:
            raise InputError(
                f"PID has gains for {p} output{'s' * (p > 1)}, and output returns {y.size} numbers: give kp, ki or kd "
                f"with shape ({y.size},)"
            )
        return vector_of(p, "output", "target", lambda t, q: self.target(t), t, q) - y

    def command(self, t: Array, q: Float[Array, " nq"], v: Array, passive: Terms) -> Command:
        v, s = self.apart(v)
        along = jnp.ones_like(t), rate_of(self.kinematic_map, q, v)
        e, e_dot = jax.jvp(self.error, (t, q), along)
        return no_task(self.kp * e + self.ki * s + self.kd * e_dot)

    def generalised_force(self, t: Array, q: Float[Array, " nq"], v: Array, u: Float[Array, " p"]) -> Array:
        return self.columns(t, q, v) @ u

    def rates(self, t: Array, q: Float[Array, " nq"], v: Array, u: Float[Array, " p"]) -> Float[Array, " k"]:
        return self.error(t, q)
