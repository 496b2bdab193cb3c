"""The independent rows that ``step`` uses, determined once for all models of one structure.

Which rows are redundant hardly ever changes, and a search for them takes longer than a step. Rows that were chosen for
other numbers, or at another state, may be wrong: the step reports this, and the rows are chosen again.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._run.compile import LRUCache, Static, split
from ..._solve import AbstractMethod, FastPath
from ..._system import AbstractSystem
from ..problem import Problem
from ..stepper.drift_correction import MethodPerLevel, same_at_every_level
from ..stepper.limits import MIN_ROWS_TO_CHECK
from .policy import next_method
from .row_noise import without_noise_rows

MAX_STRUCTURES = 128
"""Number of structures of models whose rows are remembered."""


@dataclass
class RowChoice:
    """The solver to start a step with. It is replaced when other rows were needed.

    Attributes
    ----------
    method
        Solver to start with.
    is_chosen
        Whether no choice is needed at the start of a motion: the rows are chosen already, or the solver needs no
        choice.
    """

    method: AbstractMethod | MethodPerLevel
    is_chosen: bool = False

    @property
    def parts(self) -> tuple[Static, list[Any]]:
        """The static part of the method and its arrays. They are kept, because steps need them often."""
        if self._parts is None or self._parts[0] is not self.method:
            self._parts = self.method, split(self.method)
        return self._parts[1]

    def __post_init__(self):
        self._parts: Any = None

    @classmethod
    def of(cls, requested: AbstractMethod) -> "RowChoice":
        """All rows, by the fast path of the ``requested`` method."""
        fast_path = requested.fast_path()
        method = requested if fast_path is None else same_at_every_level(fast_path)
        return cls(method, not isinstance(fast_path, FastPath))

    def remember(self, method: AbstractMethod | MethodPerLevel) -> None:
        """Start later steps with ``method``, if it only differs in its rows.

        A method that accepts smaller rows than usual holds for one model: in another one they may be rounding errors.
        """
        if isinstance(method, MethodPerLevel) and isinstance(self.method, MethodPerLevel):
            tried, first = method.acceleration, self.method.acceleration
            if isinstance(tried, FastPath) and isinstance(first, FastPath) and tried.least is first.least:
                self.method = method


_choices = LRUCache(MAX_STRUCTURES)


def choice_of_rows(structure: Static, requested: AbstractMethod, projection: bool, is_driven: bool) -> RowChoice:
    """The choice for all models of this structure; a new one if the structure or the method is not hashable.

    ``is_driven``: the inputs of the actuators are given, and the rows of a task are left out.
    """
    key = structure, requested, projection, is_driven
    try:
        return _choices.of(key, lambda: RowChoice.of(requested))
    except TypeError:
        return RowChoice.of(requested)


def choose_rows(
    choice: RowChoice,
    requested: AbstractMethod,
    model: AbstractSystem,
    q: Float[Array, "*batch nq"],
    v: Float[Array, "*batch n"],
    t: Float[Array, "*times"],
    rows: int,
) -> None:
    """Choose the rows at the first state, if there are ``rows`` enough for some of them to be redundant."""
    if choice.is_chosen or rows < min(v.shape[-1], MIN_ROWS_TO_CHECK):
        return
    choice.is_chosen = True
    choice.remember(method_after(choice.method, requested, model, q, v, t, 0, projection=True))


def method_after(
    tried: AbstractMethod | MethodPerLevel,
    requested: AbstractMethod,
    model: Any,
    q: Float[Array, "*batch nq"],
    v: Float[Array, "*batch n"],
    t: Float[Array, "*times"],
    member: int,
    projection: bool,
) -> AbstractMethod | MethodPerLevel:
    """Solver to continue with, after ``tried`` was not applicable to this ``member`` of the states."""
    first = lambda x, axes: x[member] if x.ndim > axes else x
    method = next_method(_problem(model, requested, projection, t.dtype), tried, first(t, 0), first(q, 1), first(v, 1))
    return method if isinstance(method, MethodPerLevel) else without_noise_rows(requested, model, t, q, v)


def _problem(model, requested, projection, dtype):
    """The problem of one step. It has no samples. So no state counts as a start, whose invalid terms would raise
    errors."""
    return Problem(
        model=model,
        ts=jnp.zeros(0, dtype),
        dt=None,
        counts=None,
        rtol=jnp.zeros((), dtype),
        atol=None,
        method=requested,
        solver=None,
        adjoint=None,
        event=None,
        tableau=None,
        projection=projection,
        max_steps=1,
        progress=False,
    )
