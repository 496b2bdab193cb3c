"""Input and output of an integrator: ``Problem``, ``InitialState`` and ``Solution``."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_pytree_node_class
from jaxtyping import Array, Bool, Float, Int

from .._contact.history import ContactHistory
from .._parameters import Place, put
from .._solve import AbstractMethod, Sparse
from .event import Event, EventHistory
from .stepper.base import AbstractStepper
from .stepper.drift_correction import MethodPerLevel
from .stepper.error_control import Tolerance
from .stepper.explicit import RungeKutta
from .stepper.scaling import Scale
from .stepper.tableau import Tableau

MAX_START_DISPLACEMENT = 1e-9
"""Largest change of a start by its projection, relative to the scales, that counts as rounding."""

SMALLEST_STEP = 1e-12
"""Smallest step size, relative to the whole time. A motion that needs a smaller one ends."""


class StepCounts(eqx.Module):
    """Numbers of fixed steps.

    Attributes
    ----------
    per_interval
        Number of steps from each sample to the next (intervals,).
    most
        Largest of these numbers.
    """

    per_interval: Int[Array | np.ndarray, " intervals"]
    most: int = eqx.field(static=True)

    @property
    def all(self) -> int:
        """Number of all steps. ``per_interval`` must be concrete."""
        return int(np.sum(np.asarray(self.per_interval)))


class Schedule(eqx.Module):
    """The stops of a motion with sampled control: its samples, the instants, and when inputs begin to act.

    Attributes
    ----------
    multiples
        The instants after the first time, as multiples of the period (k,).
    chosen
        Indices of the stops (stops,) among the times of the samples, the instants and the beginnings of inputs.
    instant
        Whether each stop is an instant (stops,).
    latest, acting
        Numbers of the latest instant at each stop, and of the instant whose inputs act from there, −1 for none
        (stops,).
    places
        Index of the stop of each sample (samples,).
    counts
        Number of fixed steps from each stop to the next (stops − 1,); 1 for adaptive steps.
    most
        Largest number of fixed steps between two stops.
    memory
        Number of instants whose inputs must be remembered.
    """

    multiples: Int[Array, " k"]
    chosen: Int[Array, " stops"]
    instant: Bool[Array, " stops"]
    latest: Int[Array, " stops"]
    acting: Int[Array, " stops"]
    places: Int[Array, " samples"]
    counts: Int[Array, " intervals"]
    most: int = eqx.field(static=True)
    memory: int = eqx.field(static=True)


class InitialState(NamedTuple):
    """State at the first time, of one motion or of each member of a batch.

    Attributes
    ----------
    q, v
        Coordinates (*batch, nq) and velocities (*batch, n).
    scale
        Characteristic scales of the motion.
    numbers
        Numbers of the model at ``Problem.places`` (*batch, p), if each member has its own; otherwise None.
    """

    q: Float[Array, "*batch nq"]
    v: Float[Array, "*batch n"]
    scale: Scale
    numbers: Float[Array, "*batch p"] | None = None

    def displaced(self, xp: Any, q: Any, v: Any) -> Any:
        """Whether q (..., nq) and v (..., n) differ from this state by more than rounding.

        ``xp`` is ``jax.numpy`` or ``numpy``.
        """
        is_far = lambda x, y, size: xp.any(xp.abs(x - y) > MAX_START_DISPLACEMENT * size, axis=-1)
        return is_far(q, self.q, self.scale.q) | is_far(v, self.v, self.scale.v)


@register_pytree_node_class
@dataclass(frozen=True, eq=False)
class Problem:
    """A motion to be integrated. Numbers are leaves, so that other values need no new compilation.

    This class is not an ``equinox.Module``: to make one would flatten the model each time.

    Attributes
    ----------
    model
        System, or function (t, q, v) -> ``Terms``.
    ts
        Times of the samples [s], (samples,) or (batch, samples).
    dt
        Largest length of fixed steps [s]; None for adaptive steps. Steps between two samples are equal.
    counts
        Numbers of fixed steps, if they are known during tracing; otherwise None.
    rtol, atol
        Relative and absolute tolerance of adaptive steps. ``atol=None`` is a default relative to the scales.
    method
        The requested solver for accelerations and corrections.
    solver, adjoint
        Solver, of diffrax or an ``AbstractStepper``, and diffrax adjoint; None for the defaults.
    event
        Event that ends the motion in diffrax's loop, or None.
    tableau
        Butcher tableau of an explicit solver; None for other solvers.
    projection
        Whether steps and samples are projected onto the constraints.
    max_steps
        Largest number of steps.
    progress
        Whether a progress meter is shown.
    ends_on_samples
        Whether adaptive steps of diffrax's loop end on every sample.
    attempt
        Method to use before ``method``, or None.
    band
        Sparse method to try first for a large sparse system, or None.
    places
        Places of the model's numbers of which each member has its own.
    schedule
        The stops of sampled control, or None.
    events
        Events of a motion by steps that end on them, () if there is none or only ``event``.
    """

    model: Any
    ts: Float[Array, "*batch samples"]
    dt: Array | np.ndarray | None
    counts: StepCounts | None
    rtol: Array | np.ndarray
    atol: Array | np.ndarray | None
    method: AbstractMethod
    solver: Any
    adjoint: Any
    event: Event | None
    tableau: Tableau | None
    projection: bool
    max_steps: int
    progress: bool
    ends_on_samples: bool = False
    attempt: AbstractMethod | MethodPerLevel | None = None
    band: Sparse | None = None
    places: tuple[Place, ...] = ()
    schedule: Schedule | None = None
    events: tuple[Event, ...] = ()

    STATIC: ClassVar[tuple[str, ...]] = ("tableau", "projection", "max_steps", "progress", "ends_on_samples", "places")

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        values = vars(self)
        return tuple(values[name] for name in _NUMBERS), tuple(values[name] for name in self.STATIC)

    @classmethod
    def tree_unflatten(cls, static: tuple[Any, ...], numbers: Iterable[Any]) -> "Problem":
        problem = object.__new__(cls)  # leaves may be anything while JAX rebuilds the tree
        vars(problem).update(zip(cls.STATIC, static, strict=True))
        vars(problem).update(zip(_NUMBERS, numbers, strict=True))
        return problem

    def model_of(self, numbers: Float[Array, " p"] | None) -> Any:
        """The model of a member with these ``numbers``."""
        return self.model if numbers is None else put(self.model, self.places, list(numbers))

    @property
    def current_method(self) -> AbstractMethod | MethodPerLevel:
        """The method of this attempt: ``attempt``, or the requested ``method``."""
        return self.method if self.attempt is None else self.attempt

    @cached_property
    def stepper(self) -> AbstractStepper | None:
        """The steps of the solver; None if only diffrax has them."""
        if isinstance(self.solver, AbstractStepper):
            return self.solver
        return None if self.tableau is None else RungeKutta(self.tableau)

    @property
    def may_end(self) -> bool:
        """Whether an event can end the motion, which then has one more sample."""
        return self.event is not None or any(event.is_end for event in self.events)

    @property
    def plain(self) -> bool:
        """Whether the steps are known here and no feature is used that needs diffrax's loop."""
        special = self.event is not None or self.adjoint is not None or self.progress or self.ts.ndim == 2
        return (self.tableau is not None or isinstance(self.solver, AbstractStepper)) and not special

    @property
    def begin(self) -> Array:
        """First time [s], or that of each member if members have their own times."""
        return self.ts[..., 0]

    @property
    def without_largest_count(self) -> "Problem":
        """This problem for loops that do not need the largest number of fixed steps. It is static: without it, one
        program serves all numbers of steps."""
        if self.counts is None:
            return self
        schedule = None if self.schedule is None else replace(self.schedule, most=0)
        return replace(self, counts=replace(self.counts, most=0), schedule=schedule)

    def tolerance(self, scale: Scale, xp: Any = jnp) -> Tolerance:
        """The error allowed in a step. ``xp`` is ``jax.numpy`` or ``numpy``."""
        return Tolerance.of(self.rtol, self.atol, scale, xp)


_NUMBERS = tuple(field.name for field in fields(Problem) if field.name not in Problem.STATIC)


class Solution(NamedTuple):
    """Result of an integrator.

    Attributes
    ----------
    t, q, v
        Time [s] and state at the samples; NaN at samples that were not reached.
    result
        Code of ``_motion.result`` for how the motion ended.
    steps
        Number of steps.
    last
        t, q and v that the motion reached.
    displaced
        Whether projection changed the start by more than rounding.
    contacts
        Contacts and dry friction, None for a system without.
    held
        Held inputs at the samples, None for a system without sampled control.
    events
        The events of ``Problem.events``, None without.
    """

    t: Float[Array, "*batch samples"]
    q: Float[Array, "*batch samples nq"]
    v: Float[Array, "*batch samples n"]
    result: Int[Array, "*batch"]
    steps: Int[Array, "*batch"]
    last: tuple[Float[Array, "*batch"], Float[Array, "*batch nq"], Float[Array, "*batch n"]]
    displaced: Bool[Array | np.ndarray, "*batch"]
    contacts: ContactHistory | None = None
    held: Float[Array, "*batch samples p"] | None = None
    events: EventHistory | None = None
