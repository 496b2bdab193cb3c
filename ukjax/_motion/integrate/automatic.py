"""The default explicit solver, or ``Radau`` for a stiff motion: ``simulate(..., solver="auto")``."""

from dataclasses import replace

import numpy as np

from ..._errors import InputError
from ..._jaxpr.tracing import without_derivatives
from ..._system import nonsmooth_of
from ..fallback.stiffness import MANY_STEPS, Stiffness, stiffness
from ..plan import Plan, choose
from ..problem import InitialState, Problem, Solution
from ..result import MOST_STEPS
from .named import integrator


def check_automatic(problem: Problem, plan: Plan) -> None:
    """Raise ``InputError`` where the solver cannot be chosen, or ``Radau`` is not available."""
    leave_out = "leave it out for the default, an explicit solver"
    either = f"give solver=ukjax.Radau() for a stiff motion, or {leave_out}"
    reasons = {
        "with fixed steps, dt": (problem.dt is not None, either),
        "under jit or vmap, since the choice needs the values of the motion": (not plan.values_known, either),
        "for systems with ukjax.Unilateral or ukjax.Coulomb": (bool(nonsmooth_of(problem.model)), leave_out),
        "for several events, or one that does not end the motion": (bool(problem.events), leave_out),
        "with sampled control, ukjax.control.Sampled": (problem.schedule is not None, leave_out),
    }
    for reason, (holds, advice) in reasons.items():
        if holds:
            raise InputError(f"solver='auto' is not available {reason}: {advice}")


def integrate_automatically(problem: Problem, start: InitialState) -> tuple[Solution, Problem, Plan]:
    """Integrate by the default solver, or from the start by ``Radau`` if the motion proves to be stiff.

    ``problem`` is that of the default solver. Stiffness is examined after ``MANY_STEPS`` steps, before the motion is
    integrated with all steps that it needs, and at its end. Returns the solution, and the problem and the plan of the
    solver that was chosen. Derivatives are those of this solver.
    """
    values = without_derivatives((problem, start))
    for most in sorted({min(MANY_STEPS, problem.max_steps), problem.max_steps}):
        solution, plan = _integrate(replace(values[0], max_steps=most), values[1])
        found = stiffness(values[0], values[1].scale, solution.steps, solution.last)
        if found is not None or not np.any(np.asarray(solution.result) == MOST_STEPS):
            break
    if found is not None:
        from ..stepper.radau import Radau  # slow import of diffrax

        problem = replace(problem, solver=Radau(), tableau=None)
    if found is not None or not choose(problem, start).eager:
        solution, plan = _integrate(problem, start)
    plan.steps += ", as solver='auto' chose"
    if found is not None:
        plan.note(_in_words(found))
    return solution, problem, plan


def _integrate(problem, start):
    plan = choose(problem, start)
    return integrator(plan.integrator).run(problem, start, plan), plan


def _in_words(found: Stiffness) -> str:
    subject = "the motion" if found.member == () else f"member {found.member}"
    who = "" if found.member == () else ", all members"
    return f"from the start{who}: solved by Radau, since {subject} is stiff for Dopri8: {found.in_words}"
