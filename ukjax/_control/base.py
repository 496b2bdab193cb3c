"""How a system is driven: actuators, the task they serve, and the law that commands them."""

import abc
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._check import as_array, as_numbers, call, kind_of, repr_of
from .._constraint import AbstractConstraint
from .._kinematic_map import KinematicMap
from .._precision import as_float
from .._terms import Terms


class Command(eqx.Module):
    """What a control asks of the actuators at one instant.

    | field | shape | meaning |
    |---|---|---|
    | ``u`` | (p,) | force or torque of each actuator |
    | ``rank`` | () | rank of G = A W B: the task rows that u moves independently; m makes every task feasible |
    | ``unreachable`` | (m,) | (I − GG⁺) b̄, accelerations of the task that no u can give, zero where it is feasible |
    | ``wanted`` | (m,) | b̄ = b − A a, what the task asks beyond the motion with the actuators off |
    """

    u: Float[Array, " p"]
    rank: Int[Array, ""]
    unreachable: Float[Array, " m"]
    wanted: Float[Array, " m"]


class AbstractControl(eqx.Module):
    """M q̈ = Q + B u + Qᶜ with u = u(t, q, v).

    ``actuators(t, q)`` is B (n, p), a column per actuator. ``task`` is the servo constraints u is for. ``held`` says
    that the motion starts on the task, so that numerical drift off it is removed like that off a joint; otherwise the
    task is approached. ``inputs`` names the actuators and their units, ``(("u1", "N m"), ...)``, or is None. ``limits``
    (p,), or a number, is the largest |u| each actuator can give, or None: a simulation that goes beyond says so.
    ``serves_task_alone`` says that nothing but the task decides u: a simulation warns where the actuators could drive
    more directions of motion than the task determines.
    """

    if TYPE_CHECKING:  # as in AbstractSystem: a property will do

        @property
        def actuators(self) -> Callable: ...
        @property
        def task(self) -> tuple[AbstractConstraint, ...]: ...
        @property
        def held(self) -> bool: ...
        @property
        def inputs(self) -> tuple[tuple[str, str], ...] | None: ...
        @property
        def limits(self) -> Array | None: ...
        @property
        def serves_task_alone(self) -> bool: ...
    else:
        actuators: eqx.AbstractVar[Callable]
        task: eqx.AbstractVar[tuple[AbstractConstraint, ...]]
        held: eqx.AbstractVar[bool]
        inputs: eqx.AbstractVar[tuple[tuple[str, str], ...] | None]
        limits = None
        serves_task_alone = False

    def under(self, kinematic_map: KinematicMap | None) -> "AbstractControl":
        """The same for a system with q̇ = N(q) v, which is what ``kinematic_map(q, v)`` returns."""
        if kinematic_map is None or not self.task:
            return self
        return eqx.tree_at(lambda c: c.task, self, tuple(constraint.under(kinematic_map) for constraint in self.task))

    @abc.abstractmethod
    def command(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], passive: Terms) -> Command:
        """u and its feasibility; ``passive`` is what the system says with its actuators off."""

    def force(
        self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], u: Float[Array, " p"]
    ) -> Float[Array, " n"]:
        """B u."""
        return self.matrix(t, q, v) @ u

    def matrix(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "n p"]:
        """B (n, p), a row for each of v. Raises ``ValueError`` for another shape."""
        return actuator_matrix(call("actuators", self.actuators, t, q), v)


def actuator_matrix(value: Any, v: Float[Array, " n"]) -> Float[Array, "n p"]:
    """What a user gave for B: (n, p), or ``ValueError``."""
    B = as_float(as_array("actuators", value, "numbers, B"), v)
    if B.ndim != 2 or B.shape[0] != v.size:
        raise ValueError(
            f"actuators must be B of shape ({v.size}, p), one row per coordinate and one column per actuator, "
            f"got shape {B.shape}"
        )
    return B


def square_matrix(name: str, value: Any, size: int) -> Float[Array, "k k"]:
    """A matrix (size, size) from a number, a diagonal (size,) or all of it; ``ValueError`` for another shape."""
    value = as_array(name, value)
    if value.shape in ((), (size,)):
        return jnp.diag(jnp.broadcast_to(value, (size,)))
    if value.shape != (size, size):
        raise ValueError(
            f"{name} must be a number or have shape ({size},) or ({size}, {size}), got shape {value.shape}"
        )
    return value


def as_limits(given: Any) -> Array | None:
    """The largest |u| of each actuator, or of all: positive numbers, or None; ``ValueError`` for anything else."""
    return None if given is None else as_numbers("limits", given, above=0)


def constraints_of(name: str, given: Any) -> tuple[AbstractConstraint, ...]:
    """One constraint or several, as a tuple; ``ValueError`` for anything else among them."""
    if not isinstance(given, AbstractConstraint | Iterable) or isinstance(given, str):
        raise ValueError(
            f"{name} must be a constraint or several, got {repr_of(given)}: write ukjax.Holonomic(phi) for phi(t, q) = 0"
        )
    constraints = (given,) if isinstance(given, AbstractConstraint) else tuple(given)
    for i, constraint in enumerate(constraints):
        if not isinstance(constraint, AbstractConstraint):
            raise ValueError(
                f"{name}[{i}] must be ukjax.Holonomic, Nonholonomic, Pfaffian or AccelerationConstraint, "
                f"got {kind_of(constraint)}"
            )
    return constraints


def no_task(u: Float[Array, " p"]) -> Command:
    """The command of a law that has no task: u as it is, and nothing that could be missed."""
    nothing = jnp.zeros((0,), u.dtype)
    return Command(u=u, rank=jnp.zeros((), int), unreachable=nothing, wanted=nothing)
