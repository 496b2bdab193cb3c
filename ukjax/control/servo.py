"""Constraint-following servo control: the actuators give the forces that a task's constraints would."""

from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from .._check import call, check_flag
from .._constraint import AbstractConstraint, rows
from .._control import AbstractControl, Command, allocate, as_limits, square_matrix
from .._equation import mobility
from .._functions import Zero, as_function, as_vector_function, vector_of
from .._names import names_and_units
from .._precision import Numbers
from .._terms import Terms
from .task import apply_inverse, as_weight, definite, following_error, task_of


class Servo(AbstractControl):
    """u = G⁺ b̄ + (I − G⁺G) s, with G = A W B and b̄ = b − A a: the u of least norm that makes the task true.

    ``actuators`` is B (n, p), an array or a function of (t, q); ``task`` one constraint or several, of any kind, their
    Baumgarte gains included. The structure's own constraints stay kept, since W and a are those of the constrained
    motion. Y. H. Chen, J. Vib. Control 15 (2009) 369; Liu et al., IEEE/CAA J. Autom. Sin. 2 (2015) 382, eq. 35, in its
    corrected form. Fewer, as many or more actuators than task rows are all the same to it.

    ``weight`` is N, (p,) or (p, p), positive definite: uᵀ N u is least instead of uᵀ u (N = M⁻¹ with B = I is nature's
    own choice, Udwadia 2003). ``secondary`` is s (p,), an array or a function of (t, q, v): the u to be near to, which
    only acts where the task leaves freedom. Left out, it is 0, and ``simulate`` warns of directions of motion that the
    actuators could drive and the task leaves free; give 0 if that is meant. ``P`` (m, m), positive definite, adds −P⁻¹β
    to b, β = (φ̇ or ψ of the task), so that β̇ = −P⁻¹β from wherever the motion starts (Zhao et al. 2018, eq. 72).

    ``held=True`` says that the motion starts on the task: ``project`` and ``simulate`` then keep it there as they keep
    the joints. Give ``held=False`` to a task that is approached, by its gains or by P.
    ``inputs`` names the actuators; ``limits`` (p,), or a number, is the largest |u| of each, beyond which a simulation
    warns.

    What the actuators cannot give is reported in ``Command.unreachable`` and stops a simulation.
    """

    actuators: Callable
    task: tuple[AbstractConstraint, ...]
    weight: Callable
    secondary: Callable | Zero
    P: Array | None
    limits: Array | None  # pyright: ignore[reportIncompatibleVariableOverride]
    held: bool = eqx.field(static=True)
    serves_task_alone: bool = eqx.field(static=True)  # pyright: ignore[reportIncompatibleVariableOverride]
    inputs: tuple[tuple[str, str], ...] | None = eqx.field(static=True)

    def __init__(
        self,
        actuators: Any,
        task: Any,
        *,
        weight: Any = 1.0,
        secondary: Any = None,
        P: Numbers | None = None,
        held: bool = True,
        limits: Numbers | None = None,
        inputs: Iterable[tuple[str, str]] | None = None,
    ):
        self.actuators = as_function("actuators", actuators, "t, q")
        self.task = task_of(task)
        self.weight = as_weight(weight)
        self.secondary = as_vector_function("secondary", 0 if secondary is None else secondary, "t, q, v")
        self.serves_task_alone = secondary is None
        self.P = None if P is None else definite("P", P)
        check_flag("held", held)
        self.held = held
        self.limits = as_limits(limits)
        self.inputs = names_and_units("inputs", inputs)

    def command(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], passive: Terms) -> Command:
        A, b = rows(self.task, t, q, v)
        if self.P is not None:
            b = b - apply_inverse(square_matrix("P", self.P, b.size), following_error(self.task, t, q, v, b.size))
        B = self.matrix(t, q, v)
        p = B.shape[1]
        N = square_matrix("weight", call("weight", self.weight, t, q), p)
        s = vector_of(p, "actuator", "secondary", self.secondary, t, q, v)
        return allocate(mobility(passive), A, b, B, N, s)
