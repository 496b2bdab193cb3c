"""Abstract base class of control laws, and checks of their arguments."""

import abc
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._check import as_array, as_numbers, call, kind_of, repr_of
from .._constraint import AbstractConstraint
from .._errors import InputError
from .._functions import Constant
from .._kinematic_map import KinematicMap
from .._precision import as_float
from .._terms import Terms


class Command(eqx.Module):
    """Actuator inputs at one instant, and whether they satisfy the task.

    Attributes
    ----------
    u
        Input of each actuator (p,): its force or torque, except in ``Motors``.
    rank
        Rank of G = A W B, the number of task rows that u moves independently. If it is m, every task is feasible.
    unreachable
        (I − GG⁺) b̄ (m,), the accelerations of the task that no u can give; zero if the task is feasible.
    wanted
        b̄ = b − A a (m,), the accelerations that the task requires in addition to the motion with the actuators off.
    """

    u: Float[Array, " p"]
    rank: Int[Array, ""]
    unreachable: Float[Array, " m"]
    wanted: Float[Array, " m"]


class MotorForce(eqx.Module):
    """Forces of motors at one instant.

    Attributes
    ----------
    force
        Force or torque of each motor before its gear (p,) [N or N m].
    saturated
        Whether the input or the force of each motor is beyond its limits, and is reduced to them (p,).
    too_fast
        Whether the rate of each motor's coordinate is larger than its speed limit (p,).
    """

    force: Float[Array, "*at p"]
    saturated: Bool[Array, "*at p"]
    too_fast: Bool[Array, "*at p"]


class Sampling(NamedTuple):
    """The period [s] of a sampled control, and the delay [s] after which an input acts."""

    period: float
    delay: float


class AbstractControl(eqx.Module):
    """Control law u = u(t, q, v) in M q̈ = Q + B u + Qᶜ.

    Attributes
    ----------
    actuators
        Function of (t, q) that returns B (n, p), one column per actuator.
    task
        Servo constraints that u enforces; empty if there is no task.
    projected
        Whether the motion starts on the task, so that drift off the task is removed as for joints. Otherwise the task
        is approached.
    inputs
        Name and unit of each actuator, ``(("u1", "N m"), ...)``, or None.
    limits
        Largest |u| of each actuator, (p,) or a number, or None. A simulation warns if u exceeds it.
    serves_task_alone
        Whether only the task determines u. A simulation then warns if the actuators could drive directions of motion
        that the task leaves free.
    sampling
        Period and delay of a control that is sampled, otherwise None.
    states
        Name and unit of each first-order state, () without states. The states are the last entries of the v that
        ``command`` and ``force`` take, and ``force`` has their rates in the same entries: see ``with_states``.
    initial
        Initial values of the states (k,), None without states.
    """

    if TYPE_CHECKING:  # as in AbstractSystem: a subclass may use a property

        @property
        def actuators(self) -> Callable: ...
        @property
        def task(self) -> tuple[AbstractConstraint, ...]: ...
        @property
        def projected(self) -> bool: ...
        @property
        def inputs(self) -> tuple[tuple[str, str], ...] | None: ...
        @property
        def limits(self) -> Array | None: ...
        @property
        def serves_task_alone(self) -> bool: ...
        @property
        def sampling(self) -> Sampling | None: ...
        @property
        def states(self) -> tuple[tuple[str, str], ...]: ...
        @property
        def initial(self) -> Array | None: ...
    else:
        actuators: eqx.AbstractVar[Callable]
        task: eqx.AbstractVar[tuple[AbstractConstraint, ...]]
        projected: eqx.AbstractVar[bool]
        inputs: eqx.AbstractVar[tuple[tuple[str, str], ...] | None]
        limits = None
        serves_task_alone = False
        sampling = None
        states = ()
        initial = None

    @property
    def input_count(self) -> int | None:
        """Number of inputs, or None if it is not known before B is evaluated."""
        return known_input_count(self.inputs, self.actuators)

    def under(self, kinematic_map: KinematicMap | None) -> "AbstractControl":
        """Return this control for a system whose coordinates move by q̇ = N(q) v = ``kinematic_map(q, v)``."""
        if kinematic_map is None or not self.task:
            return self
        return eqx.tree_at(lambda c: c.task, self, tuple(constraint.under(kinematic_map) for constraint in self.task))

    @abc.abstractmethod
    def command(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], passive: Terms) -> Command:
        """Return u and its feasibility. ``passive`` are the terms of the system with its actuators off."""

    def force(
        self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], u: Float[Array, " p"]
    ) -> Float[Array, " n"]:
        """Return the generalised force (n,) of the inputs u: B u, except in ``Motors``."""
        return self.matrix(t, q, v) @ u

    def matrix(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "n p"]:
        """Return the derivative of ``force`` by u, shape (n, p). Raises ``InputError`` for another shape of B."""
        return actuator_matrix(call("actuators", self.actuators, t, q), v)

    def motor_force(
        self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], u: Float[Array, " p"]
    ) -> MotorForce | None:
        """Return the forces of the motors for the inputs u, or None if the control does not compute such forces."""
        return None


def known_input_count(inputs: tuple[tuple[str, str], ...] | None, actuators: Callable) -> int | None:
    """Number of the named ``inputs``, or of the columns of a constant B; None if neither is known."""
    if inputs is not None:
        return len(inputs)
    return actuators.value.shape[1] if isinstance(actuators, Constant) and actuators.value.ndim == 2 else None


def actuator_matrix(value: Any, v: Float[Array, " n"]) -> Float[Array, "n p"]:
    """Convert B to an array (n, p). Raises ``InputError`` for another shape."""
    B = as_float(as_array("actuators", value, "numbers, B"), v)
    if B.ndim != 2 or B.shape[0] != v.size:
        raise InputError(
            f"actuators must be B of shape ({v.size}, p), one row per coordinate and one column per actuator, "
            f"got shape {B.shape}"
        )
    return B


def square_matrix(name: str, value: Any, size: int) -> Float[Array, "k k"]:
    """Return a matrix (size, size) from a number, a diagonal or a matrix. Raises ``InputError`` for another shape."""
    value = as_numbers(name, value)
    if value.shape in ((), (size,)):
        return jnp.diag(jnp.broadcast_to(value, (size,)))
    if value.shape != (size, size):
        raise InputError(
            f"{name} must be a number or have shape ({size},) or ({size}, {size}), got shape {value.shape}"
        )
    return value


def as_limits(value: Any) -> Array | None:
    """Convert limits on |u| to an array, or None. Raises ``InputError`` unless they are positive, perhaps infinite."""
    return None if value is None else as_numbers("limits", value, infinite=True, above=0)


def constraints_of(name: str, value: Any) -> tuple[AbstractConstraint, ...]:
    """Return one constraint or several as a tuple. Raises ``InputError`` for anything else."""
    if not isinstance(value, AbstractConstraint | Iterable) or isinstance(value, str):
        raise InputError(
            f"{name} must be a constraint or several, got {repr_of(value)}: "
            "write ukjax.Holonomic(phi) for phi(t, q) = 0"
        )
    constraints = (value,) if isinstance(value, AbstractConstraint) else tuple(value)
    for i, constraint in enumerate(constraints):
        if not isinstance(constraint, AbstractConstraint):
            raise InputError(
                f"{name}[{i}] must be ukjax.Holonomic, Nonholonomic, Pfaffian or AccelerationConstraint, "
                f"got {kind_of(constraint)}"
            )
    return constraints


def no_task(u: Float[Array, " p"]) -> Command:
    """Return the command of a law without a task."""
    no_rows = jnp.zeros((0,), u.dtype)
    return Command(u=u, rank=jnp.zeros((), int), unreachable=no_rows, wanted=no_rows)


class _OtherInputs(AbstractControl):
    """The actuators of another control, with other inputs than those of its law."""

    control: eqx.AbstractVar[AbstractControl]
    task: ClassVar[tuple[AbstractConstraint, ...]] = ()
    projected: ClassVar[bool] = False

    @property
    def actuators(self) -> Callable:
        return self.control.actuators

    @property
    def inputs(self) -> tuple[tuple[str, str], ...] | None:
        return self.control.inputs

    @property
    def states(self) -> tuple[tuple[str, str], ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.control.states

    def force(
        self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], u: Float[Array, " p"]
    ) -> Float[Array, " n"]:
        return self.control.force(t, q, v, u)

    def matrix(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "n p"]:
        return self.control.matrix(t, q, v)


class ConstantInputs(_OtherInputs):
    """The actuators of another control, with constant inputs ``u`` (p,) instead of its law."""

    control: AbstractControl
    u: Float[Array, " p"]

    def command(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], passive: Terms) -> Command:
        p = actuator_matrix(self.actuators(t, q), v[: v.size - len(self.states)]).shape[1]
        if self.u.shape != (p,):
            raise InputError(f"u must have {p} entries, one per actuator, got {self.u.size}")
        return no_task(self.u)


class InputsAtInstant(_OtherInputs):
    """The actuators of another control: the inputs of its law if ``evaluates``, otherwise ``u`` (p,)."""

    control: AbstractControl
    u: Float[Array, " p"]
    evaluates: Bool[Array, ""]

    def under(self, kinematic_map: KinematicMap | None) -> "InputsAtInstant":
        return eqx.tree_at(lambda c: c.control, self, self.control.under(kinematic_map))

    def command(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], passive: Terms) -> Command:
        return no_task(jnp.where(self.evaluates, self.control.command(t, q, v, passive).u, self.u))
