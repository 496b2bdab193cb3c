"""Table of the integrators by their names in a ``Plan``."""

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
