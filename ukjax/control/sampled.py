"""Sampled control: a law that a digital controller evaluates at instants; the inputs are constant in between."""

import math
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from .._check import as_number, kind_of
from .._constraint import AbstractConstraint
from .._control import AbstractControl, Command, MotorForce, Sampling, no_task
from .._errors import InputError
from .._jaxpr.tracing import is_concrete
from .._kinematic_map import KinematicMap
from .._precision import Numbers
from .._terms import Terms


class Sampled(AbstractControl):
    """A control whose inputs are sampled: u(t) = law(tₖ, q(tₖ), v(tₖ)) for tₖ + delay ≤ t < tₖ₊₁ + delay.

    The instants tₖ are the multiples of the period, and the first time of the motion. Between two instants the inputs
    are constant. Fixed and adaptive steps end exactly on the instants. Before the first time + ``delay`` the inputs are
    0. Servo laws and limits of ``Motors`` act continuously, as in a motor's own drive. States of the law, such as the
    current of a ``DCMotor`` or the integral of a ``PID``, are integrated continuously, and the law is evaluated with
    their values at the instants.

    ``ukjax.simulate`` samples the law, also with contacts and events, and ``Trajectory.control`` has the held inputs.
    At an instant with an impact, or with an event that changes the state, the law is evaluated after it. The times of
    the samples must not be traced by JAX. ``ukjax.step`` samples the law at the beginnings of its steps.
    ``ukjax.acceleration`` and the system itself evaluate the law at the given state. ``linearize``, ``equilibrium``,
    ``periodic`` and ``fit`` refuse sampled control. A ``task`` of the law is not a constraint: the motion leaves it
    between the instants.

    Parameters
    ----------
    law
        The control to be sampled, such as ``Feedback``, ``Servo`` or ``Mechanism.motors``.
    period
        Time from one instant to the next [s].
    delay
        Time from an instant until its inputs act [s].

    Raises
    ------
    InputError
        If ``law`` is not a control or is sampled itself, the period is not positive, the delay is negative, or JAX
        traces one of them.
    """

    law: AbstractControl
    period: float = eqx.field(static=True)
    delay: float = eqx.field(static=True)
    task: ClassVar[tuple[AbstractConstraint, ...]] = ()
    projected: ClassVar[bool] = False

    def __init__(self, law: Any, period: Numbers, delay: Numbers = 0.0):
        if not isinstance(law, AbstractControl) or law.sampling is not None:
            got = "a sampled one" if isinstance(law, AbstractControl) else kind_of(law)
            raise InputError(f"law must be a control of ukjax.control, such as Feedback(B, law), got {got}")
        self.law = law
        self.period, self.delay = _known("period", period, above=0.0), _known("delay", delay, least=0.0)

    @property
    def sampling(self) -> Sampling:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Sampling(self.period, self.delay)

    @property
    def actuators(self) -> Callable:
        return self.law.actuators

    @property
    def inputs(self) -> tuple[tuple[str, str], ...] | None:
        return self.law.inputs

    @property
    def states(self) -> tuple[tuple[str, str], ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.law.states

    @property
    def initial(self) -> Array | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.law.initial

    @property
    def limits(self) -> Array | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.law.limits

    def under(self, kinematic_map: KinematicMap | None) -> "Sampled":
        return eqx.tree_at(lambda c: c.law, self, self.law.under(kinematic_map))

    def command(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], passive: Terms) -> Command:
        return no_task(self.law.command(t, q, v, passive).u)

    def force(
        self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], u: Float[Array, " p"]
    ) -> Float[Array, " n"]:
        return self.law.force(t, q, v, u)

    def matrix(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "n p"]:
        return self.law.matrix(t, q, v)

    def motor_force(
        self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], u: Float[Array, " p"]
    ) -> MotorForce | None:
        return self.law.motor_force(t, q, v, u)


def _known(name: str, value: Numbers, **limits: Any) -> float:
    """The value of a time [s]. Raises ``InputError`` if it is invalid, or traced by JAX."""
    as_number(name, value, "s", below=math.inf, **limits)
    if not is_concrete(value):
        raise InputError(f"{name} must be a number that JAX does not trace: it determines which programs are compiled")
    return float(np.asarray(value))
