"""Loops over time: what all of them have in common."""

import abc
from collections.abc import Callable
from typing import ClassVar

from ..plan import Plan
from ..problem import InitialState, Problem, Solution


class AbstractIntegrator(abc.ABC):
    """A loop over time.

    ``checks_every_step`` says whether every step is checked for constraints that are violated and for terms that are
    not finite.
    """

    checks_every_step: ClassVar[bool]

    @abc.abstractmethod
    def run(self, problem: Problem, start: InitialState, plan: Plan) -> Solution:
        """Integrate from the start at ts[0] to ts[-1], and note in ``plan`` what this falls back to."""


class AbstractBatchIntegrator(AbstractIntegrator):
    """A loop over time that can integrate a batch."""

    @property
    @abc.abstractmethod
    def program(self) -> Callable[[InitialState, Problem], Solution]:
        """The compiled function that integrates a batch by one method, without any fall-back."""
