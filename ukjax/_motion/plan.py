"""Choice of the integrator for a problem, reported by ``Trajectory.plan``."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from .._contact.moreau_jean import MoreauJean
from .._jaxpr.tracing import is_concrete, is_eager, is_forward_mode, is_tracing, without_derivatives
from .._solve import AbstractMethod
from .._system import AbstractSystem
from .problem import InitialState, Problem
from .stepper.limits import has_single_loop, is_kernel, is_single_kernel

INTEGRATORS = {
    "single": "one motion, in pieces of many steps that the host checks",
    "fixed_step": "fixed steps, all members together",
    "adaptive_batch": "a batch; members take their own adaptive steps, in one kernel",
    "lanes": "a batch; members take their own adaptive steps, in parallel lanes",
    "traced": "adaptive steps inside a program that JAX traces",
    "event_driven": "steps that end on events, and where contacts or friction change",
    "time_stepping": "fixed steps, with the impulses of all contacts in each",
    "sampled": "steps that end at the instants of sampled control",
    "diffrax": "diffrax's loop",
}
"""Descriptions of the integrators by name."""


@dataclass
class Plan:
    """How ``simulate`` integrated a motion.

    Attributes
    ----------
    integrator : str
        Name of the loop over time: "single", "fixed_step", "adaptive_batch", "lanes", "traced", "event_driven",
        "time_stepping", "sampled" or "diffrax".
    reason : str
        Why this integrator was chosen.
    steps : str
        The Runge-Kutta method or diffrax solver, and how the step size is chosen.
    step : str
        How a step is compiled: as part of a kernel, as one loop, or stage by stage by XLA.
    method : str
        How M and A are factorised for the constrained acceleration.
    values_known : bool
        Whether all values are concrete: neither ``jit`` nor ``vmap`` traces them.
    differentiation : {"none", "reverse", "forward"}
        Mode in which JAX differentiates the motion, as far as it can be detected.
    notes : list of str
        Fallbacks to other methods, in the order in which they happened.
    singular_poses : list of (int, float)
        Member of the batch, 0 for one motion, and time [s], of each singular pose that was passed by a special step.
    """

    integrator: Literal[
        "single",
        "fixed_step",
        "adaptive_batch",
        "lanes",
        "traced",
        "event_driven",
        "time_stepping",
        "sampled",
        "diffrax",
    ]
    reason: str
    steps: str
    step: str
    method: str
    values_known: bool
    differentiation: Literal["none", "reverse", "forward"]
    notes: list[str] = field(default_factory=list)
    singular_poses: list[tuple[int, float]] = field(default_factory=list)

    @property
    def eager(self) -> bool:
        """Whether all values are concrete and nothing is differentiated."""
        return self.values_known and self.differentiation == "none"

    def __str__(self) -> str:
        lines = {
            "integrator": f"{self.integrator} ({INTEGRATORS[self.integrator]}), since {self.reason}",
            "steps": self.steps,
            "step": self.step,
            "method": self.method,
        }
        if self.differentiation != "none":
            lines["derivatives"] = f"{self.differentiation} mode"
        text = [f"{name:<12}{value}" for name, value in lines.items()]
        text += [f"{'fell back' if i == 0 else '':<12}{note}" for i, note in enumerate(self.notes)]
        return "\n".join(text)

    def note(self, text: str) -> None:
        """Record a fallback; a text that is already recorded is not repeated."""
        if text not in self.notes:
            self.notes.append(text)

    def of_members(self, at: Any, members: int) -> "Plan":
        """The plan of the members with the index ``at`` in a batch of ``members``."""
        chosen = np.atleast_1d(np.arange(members)[at]).tolist()
        passed = [(new, t) for new, old in enumerate(chosen) for member, t in self.singular_poses if member == old]
        return replace(self, singular_poses=passed)


def choose(problem: Problem, start: InitialState) -> Plan:
    """The plan for a problem and its start."""
    if is_concrete(problem, start):
        eager = values_known = not is_tracing()
        forward = False
    else:
        eager, values_known = False, is_eager(*map(without_derivatives, (problem, start)))
        forward = is_forward_mode(problem, start)
    integrator, reason = _integrator(problem, start, eager, values_known, forward)
    return Plan(
        integrator=integrator,
        reason=reason,
        steps=_steps(problem),
        step=_step(problem, start, integrator),
        method=_method(problem, integrator, values_known),
        values_known=values_known,
        differentiation="forward" if forward else "reverse" if values_known and not eager else "none",
    )


def _integrator(problem: Problem, start: InitialState, eager: bool, values_known: bool, forward: bool) -> Any:
    """The name of the integrator, and the reason for it."""
    batch, fixed = start.q.ndim == 2, problem.dt is not None
    if isinstance(problem.model, AbstractSystem) and problem.model.nonsmooth:
        if isinstance(problem.solver, MoreauJean):
            return "time_stepping", "the solver is MoreauJean"
        return "event_driven", "the system has contacts or dry friction"
    if problem.events:
        return "event_driven", "it has several events, or one that does not end it"
    if problem.schedule is not None:
        return "sampled", "the control is sampled"
    if reason := _reason_for_diffrax(problem):
        return "diffrax", reason
    if fixed and problem.counts is None:
        return "diffrax", "the number of steps is not known while JAX traces ts or dt"
    if fixed:
        single = eager and not batch and problem.tableau is not None
        return ("single", "the values are known") if single else ("fixed_step", "the number of steps is known")
    if not batch and values_known and not forward:
        return "single", "the values are known"
    if batch and eager and is_kernel(problem.method):
        return "adaptive_batch", "steps are compiled as kernels"
    if batch and eager:
        return "lanes", "steps are compiled by XLA"
    return "traced", "JAX traces the motion"


def _reason_for_diffrax(problem: Problem) -> str:
    """A reason why the problem needs diffrax's loop, or an empty text."""
    reasons = {
        "the solver is not an explicit Runge-Kutta method": problem.stepper is None,
        "it has an event": problem.event is not None,
        "an adjoint was chosen": problem.adjoint is not None,
        "progress is shown": problem.progress,
        "members have their own times": problem.ts.ndim == 2,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _steps(problem: Problem) -> str:
    solver = "Dopri8" if problem.solver is None else type(problem.solver).__name__
    if problem.dt is None:
        return f"{solver}, adaptive"
    return f"{solver}, fixed steps that end on every sample"


def _step(problem: Problem, start: InitialState, integrator: str) -> str:
    method = problem.method if problem.band is None else problem.band
    if integrator == "diffrax":
        return "compiled by XLA, a kernel for each evaluation" if is_kernel(method) else "compiled by XLA"
    sizes = start.v.shape[-1], start.scale.rows.shape[-1]
    if is_single_kernel(method, *sizes) if integrator == "single" else is_kernel(method):
        return "all steps in one kernel of machine code"
    batch_of_dense = integrator in ("lanes", "fixed_step") and start.q.ndim == 2 and not method.is_sparse
    if has_single_loop(problem.model, method, problem.projection) and not batch_of_dense:
        return "compiled by XLA: stages and corrections are iterations of one loop"
    return "compiled by XLA: stages are iterations of a loop, followed by the corrections"


def _method(problem: Problem, integrator: str, values_known: bool) -> str:
    """The methods in the order in which they are tried. The fast path is checked afterwards, on known values."""
    name = type(problem.method).__name__
    methods = [] if problem.band is None else ["Sparse along a band"]
    tries_fast_path = values_known and integrator != "diffrax"
    if tries_fast_path and type(problem.method).fast_path is not AbstractMethod.fast_path:
        methods.append("FastPath (Cholesky of M and of the rows)")
    return ", then ".join([*methods, name]) if methods else name
