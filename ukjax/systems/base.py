"""What a mechanism of the gallery is: a system with parameters of its own, a start, and where it comes from."""

import abc
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, ScalarLike

from .._check import as_array
from .._precision import Numbers
from .._system import AbstractSystem

if TYPE_CHECKING:
    Parameter = Any  # whatever a parameter is given as, it becomes an array
else:
    Parameter = Array


def parameter(value: Numbers) -> Any:
    """A field that holds a number, or several, as an array, so that it can be differentiated and swept:

    ``mass: Parameter = parameter(0.8)`` in a class of your own.
    """
    return eqx.field(default_factory=lambda: _numbers(value), converter=_numbers)


def _numbers(value: Any) -> Array:
    return as_array("a parameter", value)


class AbstractMechanism(AbstractSystem):
    """A published mechanism: its parameters are its fields, in SI units, by the names the source gives them.

    ``end`` [s] is the time span of the source; ``step`` [s] the fixed step that suits a motion which passes singular
    poses, where adaptive steps shrink without end; ``record`` names measured inputs, such as torques, that it can be
    driven by. What a mechanism does not have (friction, motors, a closed form,
    runs of its source that differ from the correct one) it leaves as it is here.
    """

    end: ClassVar[float]
    step: ClassVar[float | None] = None
    record: ClassVar[tuple[str, ...]] = ()

    @abc.abstractmethod
    def start(self) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """The source's own q0 (n,) and v0 (n,), as printed: not always on the constraints."""

    def placed(self, q: Float[Array, " n"], v: Float[Array, " n"]) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """q and v with what follows from the rest put where it belongs, for starts that are measured or scattered and
        parameters that change."""
        return q, v

    def recorded(self, t: Numbers, inputs: Numbers) -> dict[str, Array]:
        """Fields, by name, that let the mechanism be driven by ``inputs`` (samples, k), a column for each name in
        ``record``, at times t (samples,): none, where nothing can be recorded."""
        return {}

    @abc.abstractmethod
    def outline(self, t: ScalarLike, q: Float[Array, " n"]) -> tuple[Float[Array, "points d"], ...]:
        """The mechanism as lines through its joints [m], in the plane (d = 2) or in space (d = 3): what a drawing
        shows. The last point of each line leaves a trace."""

    def edges(self) -> dict[str, Float[np.ndarray, "points 3"]]:
        """Of each body that is drawn as a solid, by its name, thin lines in its frame [m], with NaN between one and the
        next; ``pose(q, t)`` says where that is. None, where nothing has such looks."""
        return {}

    def reference(self, t: ScalarLike) -> Float[Array, " n"] | None:
        """The exact q (n,) at time t, where it is known."""
        return None

    def published(self) -> "dict[str, AbstractMechanism]":
        """The source's own runs, by a short name each, where they differ from the correct one: simulated from
        ``start`` without projection."""
        return {}
