"""Control with first-order states given by functions."""

from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from .._check import as_numbers, check_function
from .._control import Command, as_limits, no_task
from .._errors import InputError
from .._functions import as_function, vector_of
from .._names import names_and_units
from .._precision import Numbers
from .._terms import Terms
from .states import AbstractControlWithStates


class DynamicFeedback(AbstractControlWithStates):
    """Control with first-order states s: u = law(t, q, v, s), ṡ = rate(t, q, v, s).

    Integrators, observers and filters are such controls. ``ukjax.simulate`` integrates the states with the motion, with
    the same errors and derivatives. They follow the velocities in v, and ``Trajectory.states`` has them by name.

    Parameters
    ----------
    actuators
        B (n, p), one column per actuator: an array or a function of (t, q).
    law
        Function ``law(t, q, v, s)`` that returns u (p,).
    rate
        Function ``rate(t, q, v, s)`` that returns ṡ (k,).
    initial
        Values of the states at the start, (k,) or a number for one state.
    states
        Name and unit of each state: ``(("i", "A"), ...)``. None: s1, s2, ... without units.
    limits
        Largest |u| of each actuator, (p,) or a number, in the unit of u. A simulation warns if u exceeds it.
    inputs
        Name and unit of each actuator: ``(("u1", "N m"), ...)``.

    Raises
    ------
    InputError
        If an argument has the wrong type, or there is not one name per state. Wrong shapes are reported when the
        control is evaluated.
    """

    actuators: Callable
    law: Callable
    rate: Callable
    initial: Float[Array, " k"]  # pyright: ignore[reportIncompatibleVariableOverride]
    states: tuple[tuple[str, str], ...] = eqx.field(static=True)  # pyright: ignore[reportIncompatibleVariableOverride]
    limits: Array | None  # pyright: ignore[reportIncompatibleVariableOverride]
    inputs: tuple[tuple[str, str], ...] | None = eqx.field(static=True)

    def __init__(
        self,
        actuators: Any,
        law: Callable,
        rate: Callable,
        initial: Numbers = 0.0,
        *,
        states: Iterable[tuple[str, str]] | None = None,
        limits: Numbers | None = None,
        inputs: Iterable[tuple[str, str]] | None = None,
    ):
        self.actuators = as_function("actuators", actuators, "t, q")
        check_function("law", law, "t, q, v, s")
        check_function("rate", rate, "t, q, v, s")
        self.law, self.rate = law, rate
        initial = as_numbers("initial", initial)
        if initial.ndim > 1 or not initial.size:
            raise InputError(f"initial must be a number or have shape (k,), one per state, got shape {initial.shape}")
        self.initial = initial.reshape(-1)
        named = names_and_units("states", states) or tuple((f"s{i + 1}", "") for i in range(initial.size))
        if len(named) != initial.size:
            raise InputError(f"states must name {initial.size} states, one per entry of initial, got {len(named)}")
        self.states = named
        self.limits, self.inputs = as_limits(limits), names_and_units("inputs", inputs)

    def command(self, t: Array, q: Float[Array, " nq"], v: Array, passive: Terms) -> Command:
        p = self.columns(t, q, v).shape[1]
        return no_task(vector_of(p, "column of actuators", "law", self.law, t, q, *self.apart(v)))

    def generalised_force(self, t: Array, q: Float[Array, " nq"], v: Array, u: Float[Array, " p"]) -> Array:
        return self.columns(t, q, v) @ u

    def rates(self, t: Array, q: Float[Array, " nq"], v: Array, u: Float[Array, " p"]) -> Float[Array, " k"]:
        return vector_of(len(self.states), "state", "rate", self.rate, t, q, *self.apart(v))
