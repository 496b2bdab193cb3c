"""Table of the integrators by their names in a ``Plan``, and the program of a batch."""

from collections.abc import Callable

from ..._contact.moreau_jean import MoreauJean
from ..._errors import InputError
from ..._system import AbstractSystem
from ..problem import InitialState, Problem, Solution
from ..stepper.limits import is_kernel
from .adaptive_batch import AdaptiveBatch
from .base import AbstractBatchIntegrator, AbstractIntegrator
from .event_driven import EventDriven
from .fixed_step import FixedSteps
from .lanes import LaneBatch
from .sampled import SampledControl
from .single import SingleMotion
from .time_stepping import TimeStepping
from .traced import TracedMotion

BATCH_INTEGRATORS: dict[str, AbstractBatchIntegrator] = {
    "fixed_step": FixedSteps(),
    "adaptive_batch": AdaptiveBatch(),
    "lanes": LaneBatch(),
    "event_driven": EventDriven(),
    "time_stepping": TimeStepping(),
    "sampled": SampledControl(),
}
OTHER_INTEGRATORS: dict[str, AbstractIntegrator] = {"single": SingleMotion(), "traced": TracedMotion()}


def integrator(name: str) -> AbstractIntegrator:
    """The integrator of this name."""
    return OTHER_INTEGRATORS[name] if name in OTHER_INTEGRATORS else batch_integrator(name)


def batch_integrator(name: str) -> AbstractBatchIntegrator:
    """The integrator of this name, which can integrate a batch.

    diffrax is imported only if its own loop is used, since the import takes a second.
    """
    if name == "diffrax":
        from .diffrax_loop import DiffraxLoop

        return DiffraxLoop()
    return BATCH_INTEGRATORS[name]


def batch_program(problem: Problem) -> Callable[[InitialState, Problem], Solution]:
    """The program that integrates a batch of any size by the requested method, without fallbacks.

    Raises ``InputError`` for a solver that is not explicit.
    """
    if isinstance(problem.model, AbstractSystem) and problem.model.nonsmooth:
        return batch_integrator("time_stepping" if isinstance(problem.solver, MoreauJean) else "event_driven").program
    if not problem.plain:
        raise InputError("solver must be an explicit Runge-Kutta method, such as ukjax.RungeKutta4() or the default")
    if problem.schedule is not None:
        return batch_integrator("sampled").program
    if problem.counts is not None:
        return batch_integrator("fixed_step").program
    return batch_integrator("adaptive_batch" if is_kernel(problem.method) else "lanes").program
