"""Constraint-following servo control: actuators provide the forces that enforce the constraints of a task."""

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
from .task import apply_inverse, as_definite, as_weight, following_error, task_of


class Servo(AbstractControl):
    """Control of least norm that satisfies a task: u = G⁺ b̄ + (I − G⁺G) s, with G = A W B and b̄ = b − A a.

    A and b are the rows of the task. W and a are those of the motion with the structural constraints, so these
    constraints remain satisfied. The number of actuators may be smaller than, equal to or larger than the number of
    task rows. If the actuators cannot follow the task, a simulation stops with an error; ``Command.unreachable`` is the
    part of the task that they cannot follow. Sources: Y. H. Chen, J. Vib. Control 15 (2009) 369; Liu et al., IEEE/CAA
    J. Autom. Sin. 2 (2015) 382, eq. 35, in its corrected form.

    Parameters
    ----------
    actuators
        B (n, p), one column per actuator: an array or a function of (t, q).
    task
        One constraint or several, of any kind, including their Baumgarte gains.
    weight
        N, positive definite: a number, (p,) or (p, p), or a function of (t, q). Of all solutions, u minimises
        (u − s)ᵀ N (u − s). N = M⁻¹ with B = I gives the force of an ideal constraint (Udwadia 2003).
    secondary
        s (p,): an array or a function of (t, q, v). It acts only in directions that the task leaves free. Default: 0,
        and ``simulate`` warns if the actuators could drive directions of motion that the task leaves free. Pass 0 to
        suppress the warning.
    P
        Positive definite matrix [s]: a number, (m,) or (m, m). It adds −P⁻¹β to b, with β = φ̇ or ψ of the task, so
        that β̇ = −P⁻¹β for every start (Zhao et al. 2018, eq. 72).
    projected
        True if the motion starts on the task: ``project`` and ``simulate`` then project onto the task as onto the
        joints. False if the motion approaches the task, by its gains or by P.
    limits
        Largest |u| of each actuator, (p,) or a number, in the unit of u. A simulation warns if u exceeds it.
    inputs
        Name and unit of each actuator: ``(("u1", "N m"), ...)``.

    Raises
    ------
    InputError
        If an argument has the wrong type or sign. Wrong shapes are reported when the control is evaluated.
    """

    actuators: Callable
    task: tuple[AbstractConstraint, ...]
    weight: Callable
    secondary: Callable | Zero
    P: Array | None
    limits: Array | None  # pyright: ignore[reportIncompatibleVariableOverride]
    projected: bool = eqx.field(static=True)
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
        projected: bool = True,
        limits: Numbers | None = None,
        inputs: Iterable[tuple[str, str]] | None = None,
    ):
        self.actuators = as_function("actuators", actuators, "t, q")
        self.task = task_of(task)
        self.weight = as_weight(weight)
        self.secondary = as_vector_function("secondary", 0 if secondary is None else secondary, "t, q, v")
        self.serves_task_alone = secondary is None
        self.P = None if P is None else as_definite("P", P)
        check_flag("projected", projected)
        self.projected = projected
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
