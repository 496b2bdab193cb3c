"""Actuator forces given as an arbitrary function of time and state."""

from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from .._constraint import AbstractConstraint
from .._control import AbstractControl, Command, as_limits, no_task
from .._functions import as_function, vector_of
from .._names import names_and_units
from .._precision import Numbers
from .._terms import Terms


class Feedback(AbstractControl):
    """Control u = law(t, q, v): a prescribed torque, a PD controller, a neural network.

    There is no task, so a simulation checks only ``limits``.

    Parameters
    ----------
    actuators
        B (n, p), one column per actuator: an array or a function of (t, q).
    law
        Function ``law(t, q, v)`` that returns u (p,), or a constant. A callable pytree keeps its parameters
        differentiable.
    limits
        Largest |u| of each actuator, (p,) or a number, in the unit of u. A simulation warns if u exceeds it.
    inputs
        Name and unit of each actuator: ``(("u1", "N m"), ...)``.

    Raises
    ------
    InputError
        If an argument has the wrong type. Wrong shapes are reported when the control is evaluated.
    """

    actuators: Callable
    law: Callable
    task: tuple[AbstractConstraint, ...]
    limits: Array | None  # pyright: ignore[reportIncompatibleVariableOverride]
    projected: bool = eqx.field(static=True)
    inputs: tuple[tuple[str, str], ...] | None = eqx.field(static=True)

    def __init__(
        self,
        actuators: Any,
        law: Any,
        *,
        limits: Numbers | None = None,
        inputs: Iterable[tuple[str, str]] | None = None,
    ):
        self.actuators = as_function("actuators", actuators, "t, q")
        self.law = as_function("law", law, "t, q, v")
        self.task, self.projected = (), False
        self.limits = as_limits(limits)
        self.inputs = names_and_units("inputs", inputs)

    def command(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], passive: Terms) -> Command:
        p = self.matrix(t, q, v).shape[1]
        return no_task(vector_of(p, "column of actuators", "law", self.law, t, q, v))
