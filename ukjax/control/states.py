"""Controls and actuators with first-order states, such as an integral of an error or a current."""

import abc
from collections.abc import Callable, Collection
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._check import as_numbers, call, kind_of
from .._constraint import AbstractConstraint
from .._control import AbstractControl, Command, MotorForce, actuator_matrix, no_task
from .._errors import InputError
from .._kinematic_map import KinematicMap, StateMap
from .._precision import Numbers
from .._terms import Terms


class AbstractControlWithStates(AbstractControl):
    """A control with first-order states s: u = u(t, q, v, s), Q = Q(t, q, v, s, u), ṡ = f(t, q, v, s, u), linear in u.

    The states are the last entries of all arguments ``v`` here.
    """

    task: ClassVar[tuple[AbstractConstraint, ...]] = ()
    projected: ClassVar[bool] = False

    @abc.abstractmethod
    def generalised_force(self, t: Array, q: Float[Array, " nq"], v: Array, u: Float[Array, " p"]) -> Array:
        """Return Q (n,), without entries for the states."""

    @abc.abstractmethod
    def rates(self, t: Array, q: Float[Array, " nq"], v: Array, u: Float[Array, " p"]) -> Float[Array, " k"]:
        """Return ṡ (k,)."""

    def force(self, t: Array, q: Float[Array, " nq"], v: Array, u: Float[Array, " p"]) -> Array:
        return jnp.concatenate([self.generalised_force(t, q, v, u), self.rates(t, q, v, u)])

    def matrix(self, t: Array, q: Float[Array, " nq"], v: Array) -> Float[Array, "n p"]:
        u = jnp.zeros(self.columns(t, q, v).shape[1], v.dtype)
        return jax.jacfwd(lambda u: self.force(t, q, v, u))(u)

    def columns(self, t: Array, q: Float[Array, " nq"], v: Array) -> Float[Array, "n p"]:
        """Return B (n, p), without rows for the states."""
        return actuator_matrix(call("actuators", self.actuators, t, q), self.apart(v)[0])

    def apart(self, v: Array) -> tuple[Float[Array, " n"], Float[Array, " k"]]:
        """Split v into the velocities and the states."""
        v, s = jnp.split(v, [v.size - len(self.states)])
        return v, s


class AbstractActuatorStates(AbstractControlWithStates):
    """Actuators with one state each, between the inputs u of a ``control`` and the forces: Q = B f(s), ṡ =
    g(Bᵀ v, s, u).

    f acts in the place of u on ``control``, which may have states itself. Subclasses define ``delivered`` and
    ``own_rates``. Their states follow those of ``control``.

    Attributes
    ----------
    control
        The control that computes the inputs.
    own_initial
        Initial values of the states of the actuators (p,).
    """

    control: AbstractControl
    own_initial: Float[Array, " p"]

    @abc.abstractmethod
    def delivered(self, s: Float[Array, " p"]) -> Float[Array, " p"]:
        """Return f, which acts in the place of u."""

    @abc.abstractmethod
    def own_rates(self, speed: Float[Array, " p"], s: Float[Array, " p"], u: Float[Array, " p"]) -> Float[Array, " p"]:
        """Return ṡ of the actuators, which move at ``speed`` Bᵀ v."""

    @property
    @abc.abstractmethod
    def own_states(self) -> tuple[tuple[str, str], ...]:
        """Name and unit of the state of each actuator."""

    @property
    def actuators(self) -> Callable:
        return self.control.actuators

    @property
    def inputs(self) -> tuple[tuple[str, str], ...] | None:
        return self.control.inputs

    @property
    def input_count(self) -> int:
        return self._size

    @property
    def limits(self) -> Array | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.control.limits

    @property
    def states(self) -> tuple[tuple[str, str], ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        taken = {name for name, _ in self.control.states}
        return (*self.control.states, *((_unlike(name, taken), unit) for name, unit in self.own_states))

    @property
    def initial(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        return jnp.concatenate([*([] if self.control.initial is None else [self.control.initial]), self.own_initial])

    def under(self, kinematic_map: KinematicMap | None) -> AbstractControl:
        others = kinematic_map.without(self._size) if isinstance(kinematic_map, StateMap) else kinematic_map
        return eqx.tree_at(lambda a: a.control, self, self.control.under(others))

    def command(self, t: Array, q: Float[Array, " nq"], v: Array, passive: Terms) -> Command:
        k = self._size
        c = None if passive.c is None else passive.c[:-k]
        others = Terms(passive.M[:-k, :-k], passive.Q[:-k], passive.A[:, :-k], passive.b, c)
        u = self.control.command(t, q, v[:-k], others).u
        if u.size != k:
            raise InputError(
                f"{type(self).__name__} has the numbers of {k} actuator{'s' * (k > 1)}, and its control has {u.size} "
                f"inputs: give initial with shape ({u.size},)"
            )
        return no_task(u)

    def generalised_force(self, t: Array, q: Float[Array, " nq"], v: Array, u: Float[Array, " p"]) -> Array:
        others, s = v[: -self._size], v[-self._size :]
        inner = self.control
        of_control = inner.generalised_force if isinstance(inner, AbstractControlWithStates) else inner.force
        return of_control(t, q, others, self.delivered(s))

    def rates(self, t: Array, q: Float[Array, " nq"], v: Array, u: Float[Array, " p"]) -> Float[Array, " k"]:
        others, s = v[: -self._size], v[-self._size :]
        own = self.own_rates(self.columns(t, q, v).T @ self.apart(v)[0], s, u)
        if not isinstance(self.control, AbstractControlWithStates):
            return own
        return jnp.concatenate([self.control.rates(t, q, others, self.delivered(s)), own])

    def motor_force(self, t: Array, q: Float[Array, " nq"], v: Array, u: Float[Array, " p"]) -> MotorForce | None:
        others, s = v[: -self._size], v[-self._size :]
        return self.control.motor_force(t, q, others, self.delivered(s))

    @property
    def _size(self) -> int:
        return self.own_initial.size

    def _names(self, what: str) -> tuple[str, ...]:
        """A name for each state: ``what`` and the name of its input."""
        inputs = [name for name, _ in self.inputs or ()] or [f"u{i + 1}" for i in range(self._size)]
        return tuple(f"{what} {name}" for name in inputs)


def _unlike(name: str, taken: Collection[str]) -> str:
    """``name``, with a number if it is among the names that are ``taken``."""
    numbered = (name, *(f"{name} {k}" for k in range(2, len(taken) + 2)))
    return next(x for x in numbered if x not in taken)


def checked_control(control: AbstractControl) -> AbstractControl:
    """Return ``control``, or raise ``InputError`` unless it is a control that is not sampled."""
    if not isinstance(control, AbstractControl) or control.sampling is not None:
        got = "a sampled one" if isinstance(control, AbstractControl) else kind_of(control)
        raise InputError(f"control must be a control of ukjax.control, such as Feedback(B, law), got {got}")
    return control


def initial_of(name: str, value: Numbers, control: AbstractControl, *sizes: Array) -> Float[Array, " p"]:
    """Return initial values, one per input. Their number is that of the inputs, or of the other numbers."""
    value = as_numbers(name, value)
    count = () if control.input_count is None else (control.input_count,)
    try:
        shape = jnp.broadcast_shapes(count, value.shape, *(x.shape for x in sizes), (1,))
    except ValueError:
        shape = ()
    if len(shape) != 1:
        shapes = ", ".join(str(x.shape) for x in (value, *sizes))
        of_inputs = f" for {count[0]} inputs" if count else ""
        raise InputError(
            f"{name} and the numbers of the actuators must have one entry per input, got shapes {shapes}{of_inputs}"
        )
    return jnp.broadcast_to(value, shape)
