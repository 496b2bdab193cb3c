"""Constraint-following servo control: the actuators give the forces that a task's constraints would."""

from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._constraint import AbstractConstraint, rows, velocities
from .._equation import mobility
from .._functions import as_function, vector
from .._precision import Numbers, as_float
from .._solve import inverse_cholesky
from .._terms import Terms
from .allocation import allocate
from .base import AbstractControl, Command


class Servo(AbstractControl):
    """u = G⁺ b̄ + (I − G⁺G) s, with G = A W B and b̄ = b − A a: the u of least norm that makes the task true.

    ``actuators`` is B (n, p), an array or a function of (t, q); ``task`` one constraint or several, of any kind, their
    Baumgarte gains included. The structure's own constraints stay kept, since W and a are those of the constrained
    motion; see ``allocation.py``. Y. H. Chen, J. Vib. Control 15 (2009) 369; Liu et al., IEEE/CAA J. Autom. Sin. 2
    (2015) 382, eq. 35, in its corrected form. Fewer, as many or more actuators than task rows are all the same to it.

    ``weight`` is N, (p,) or (p, p), positive definite: uᵀ N u is least instead of uᵀ u (N = M⁻¹ with B = I is nature's
    own choice, Udwadia 2003). ``secondary`` is s (p,), an array or a function of (t, q, v): the u to be near to, which
    only acts where the task leaves freedom. ``P`` (m, m), positive definite, adds −P⁻¹β to b, β = (φ̇ or ψ of the
    task), so that β̇ = −P⁻¹β from wherever the motion starts (Zhao et al. 2018, eq. 72).

    ``held=True`` says that the motion starts on the task: ``project`` and ``simulate`` then keep it there as they keep
    the joints. Give ``held=False`` to a task that is approached, by its gains or by P.
    ``inputs`` names the actuators; ``limits`` (p,), or a number, is the largest |u| of each, beyond which a simulation
    warns.

    What the actuators cannot give is reported in ``Command.unreachable`` and stops a simulation.
    """

    actuators: Callable
    task: tuple[AbstractConstraint, ...]
    weight: Callable
    secondary: Callable
    P: Array | None
    limits: Array | None  # pyright: ignore[reportIncompatibleVariableOverride]
    held: bool = eqx.field(static=True)
    inputs: tuple[tuple[str, str], ...] | None = eqx.field(static=True)

    def __init__(
        self,
        actuators: Any,
        task: Any,
        *,
        weight: Any = 1.0,
        secondary: Any = 0.0,
        P: Numbers | None = None,
        held: bool = True,
        limits: Numbers | None = None,
        inputs: Iterable[tuple[str, str]] | None = None,
    ):
        self.actuators = as_function("actuators", actuators, "t, q")
        self.task = task_of(task)
        self.weight = as_function("weight", weight, "t, q")
        self.secondary = as_function("secondary", secondary, "t, q, v")
        self.P = None if P is None else as_float(P)
        self.held = held
        self.limits = None if limits is None else as_float(limits)
        self.inputs = None if inputs is None else tuple((name, unit) for name, unit in inputs)

    def command(self, t: Array, q: Float[Array, " n"], v: Float[Array, " n"], passive: Terms) -> Command:
        A, b = rows(self.task, t, q, v)
        if self.P is not None:
            b = b - apply_inverse(square("P", self.P, b.size), following_error(self.task, t, q, v, b.size))
        B = self.matrix(t, q)
        p = B.shape[1]
        N = square("weight", self.weight(t, q), p)
        s = vector("secondary", self.secondary(t, q, v))
        if s.shape not in ((1,), (p,)):
            raise ValueError(f"secondary must have shape ({p},), one entry per actuator, got shape {s.shape}")
        return allocate(mobility(passive), A, b, B, N, jnp.broadcast_to(s, (p,)))


def task_of(task: Any) -> tuple[AbstractConstraint, ...]:
    """The servo constraints a user gave, or ``ValueError``."""
    if callable(task) or not isinstance(task, AbstractConstraint | Iterable):
        raise ValueError(
            f"task must be a constraint or several, got {task!r}: write ukjax.Holonomic(phi) for phi(t, q) = 0"
        )
    task = (task,) if isinstance(task, AbstractConstraint) else tuple(task)
    for i, constraint in enumerate(task):
        if not isinstance(constraint, AbstractConstraint):
            raise ValueError(
                f"task[{i}] must be ukjax.Holonomic, Nonholonomic, Pfaffian or AccelerationConstraint, "
                f"got {type(constraint).__name__}"
            )
    if not task:
        raise ValueError("task must be at least one constraint, got none")
    return task


def following_error(
    task: tuple[AbstractConstraint, ...], t: Array, q: Float[Array, " n"], v: Float[Array, " n"], m: int
) -> Float[Array, " m"]:
    """β = A v − c, by how much the velocities miss the task: φ̇ of holonomic rows, ψ of the others."""
    beta = velocities(task, t, q, v)
    if beta.size != m:
        raise ValueError(
            "an AccelerationConstraint has no error in velocities to feed back: give the task as Holonomic, "
            "Nonholonomic or Pfaffian"
        )
    return beta


def apply_inverse(P: Float[Array, "m m"], x: Float[Array, " m"]) -> Float[Array, " m"]:
    """P⁻¹ x for a positive definite P, without LAPACK."""
    L_inverse = inverse_cholesky(P)
    return (L_inverse @ x) @ L_inverse


def square(name: str, value: Any, size: int) -> Float[Array, "k k"]:
    """A matrix (size, size) from a number, a diagonal (size,) or all of it; ``ValueError`` for another shape."""
    value = as_float(value)
    if value.ndim < 2 and value.shape in ((), (1,), (size,)):
        return jnp.diag(jnp.broadcast_to(value, (size,)))
    if value.shape != (size, size):
        raise ValueError(
            f"{name} must be a number or have shape ({size},) or ({size}, {size}), got shape {value.shape}"
        )
    return value
