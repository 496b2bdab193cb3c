"""What is asked of a loop over time, and what it gives back."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._parameters import Place, put
from .._solve import AbstractMethod, Sparse
from .event import Event
from .stepper.drift_correction import MethodPerLevel
from .stepper.error_control import Tolerance
from .stepper.scaling import Scale
from .stepper.tableau import Tableau

NEAR = 1e-9  # a start moved by no more than this, beside its size, was where it should be
SMALLEST_STEP = 1e-12  # of the whole time: a motion that asks for less has come to its end


class StepCounts(eqx.Module):
    """How many steps lead ``between`` each sample and the next, ``most`` where there are most."""

    between: Int[Array, " intervals"]
    most: int = eqx.field(static=True)

    @property
    def all(self) -> int:
        """How many there are, where that is known."""
        return int(np.sum(np.asarray(self.between)))


class InitialState(NamedTuple):
    """q and v with which a motion begins, or each of a batch, and the ``scale`` of what is to be expected; and the
    ``numbers`` that its model has at the ``places`` of the request, if each has its own."""

    q: Float[Array, "*batch nq"]
    v: Float[Array, "*batch n"]
    scale: Scale
    numbers: Float[Array, "*batch p"] | None = None

    def displaced(self, xp: Any, q: Any, v: Any) -> Any:
        """Whether a motion that begins at q and v (..., n) does so further from this than rounding would put it, by
        NumPy or by JAX."""
        far = lambda x, y, size: xp.any(xp.abs(x - y) > NEAR * size, axis=-1)
        return far(q, self.q, self.scale.q) | far(v, self.v, self.scale.v)


class Problem(eqx.Module):
    """A motion to be computed: numbers are leaves, so that changing one compiles nothing anew.

    With ``dt`` steps are even between samples, as many as make none longer than dt: ``counts`` of them, where these are
    known while the program is traced. Without it they are adaptive, by ``rtol`` and ``atol``, or what is usual beside
    the scale of the motion; ``ends_on_samples`` says that they must end on every sample.
    ``solver`` and ``adjoint`` are diffrax's, or None for our own; ``tableau`` is that of an explicit solver.
    ``along`` is what is tried first where the system is large and sparse. ``places`` are those of the model's numbers
    of which each member has its own.
    """

    model: Any
    ts: Float[Array, "*batch samples"]
    dt: Array | None
    counts: StepCounts | None
    rtol: Array
    atol: Array | None
    method: AbstractMethod
    solver: Any
    adjoint: Any
    event: Event | None
    tableau: Tableau | None = eqx.field(static=True)
    projection: bool = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)
    progress: bool = eqx.field(static=True)
    ends_on_samples: bool = eqx.field(static=True, default=False)
    attempt: AbstractMethod | MethodPerLevel | None = None
    along: Sparse | None = None
    places: tuple[Place, ...] = eqx.field(static=True, default=())

    def model_of(self, numbers: Float[Array, " p"] | None) -> Any:
        """The model of one member."""
        return self.model if numbers is None else put(self.model, self.places, list(numbers))

    @property
    def by(self) -> AbstractMethod | MethodPerLevel:
        """What accelerations and corrections are found by: the ``method`` asked for, or what is tried before."""
        return self.method if self.attempt is None else self.attempt

    @property
    def plain(self) -> bool:
        """Explicit steps, with nothing to be done besides."""
        special = self.event is not None or self.adjoint is not None or self.progress or self.ts.ndim == 2
        return self.tableau is not None and not special

    @property
    def begin(self) -> Array:
        """When the motion begins, or each of a batch that has times of its own."""
        return self.ts[..., 0]

    def tolerance(self, scale: Scale, xp: Any = jnp) -> Tolerance:
        """The error allowed in a step; by JAX or by NumPy."""
        return Tolerance.of(self.rtol, self.atol, scale, xp)


class Solution(NamedTuple):
    """Where a motion was at ``t``; a ``result`` of ``outcome``; how many ``steps`` it took; t, q and v it came to; and
    whether it began ``displaced`` from where it was to."""

    t: Float[Array, "*batch samples"]
    q: Float[Array, "*batch samples nq"]
    v: Float[Array, "*batch samples n"]
    result: Int[Array, "*batch"]
    steps: Int[Array, "*batch"]
    last: tuple[Float[Array, "*batch"], Float[Array, "*batch nq"], Float[Array, "*batch n"]]
    displaced: Bool[Array | np.ndarray, "*batch"]
