"""The integrators by their names in a plan."""

from .adaptive_batch import AdaptiveBatch
from .base import AbstractBatchIntegrator, AbstractIntegrator
from .fixed_step import FixedSteps
from .lanes import LaneBatch
from .single import SingleMotion
from .traced import TracedMotion

OF_BATCHES: dict[str, AbstractBatchIntegrator] = {
    "fixed_step": FixedSteps(),
    "adaptive_batch": AdaptiveBatch(),
    "lanes": LaneBatch(),
}
OF_ONE: dict[str, AbstractIntegrator] = {"single": SingleMotion(), "traced": TracedMotion()}


def integrator(name: str) -> AbstractIntegrator:
    """The integrator of this name."""
    return OF_ONE[name] if name in OF_ONE else batch_integrator(name)


def batch_integrator(name: str) -> AbstractBatchIntegrator:
    """The integrator of this name, which can integrate a batch. diffrax is imported for its own loop only, since that
    takes a second."""
    if name == "diffrax":
        from .diffrax_loop import DiffraxLoop

        return DiffraxLoop()
    return OF_BATCHES[name]
