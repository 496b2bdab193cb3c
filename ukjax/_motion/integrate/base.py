"""Abstract integrators."""

import abc
from collections.abc import Callable
from typing import ClassVar

from ..plan import Plan
from ..problem import InitialState, Problem, Solution


class AbstractIntegrator(abc.ABC):
    """A loop over time.

    Attributes
    ----------
    checks_every_step
        Whether every step is checked for violated constraints and for terms that are not finite.
    """

    checks_every_step: ClassVar[bool]

    @abc.abstractmethod
    def run(self, problem: Problem, start: InitialState, plan: Plan) -> Solution:
        """Integrate from ``start`` at ts[0] to ts[-1]. Fallbacks are recorded in ``plan.notes``."""


class AbstractBatchIntegrator(AbstractIntegrator):
    """A loop over time that can integrate a batch."""

    @property
    @abc.abstractmethod
    def program(self) -> Callable[[InitialState, Problem], Solution]:
        """The compiled function that integrates a batch by one method, without fallbacks."""
