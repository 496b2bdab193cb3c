"""Abstract base class of the mechanisms in the gallery: systems with parameters, a start and a source."""

import abc
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, ScalarLike

from .._check import as_numbers
from .._precision import Numbers
from .._system import AbstractSystem

if TYPE_CHECKING:
    Parameter = Any  # arguments of any numeric type, converted to arrays
else:
    Parameter = Array


def parameter(value: Numbers) -> Any:
    """Declare a field of a mechanism that is stored as an array, so that it can be differentiated and swept.

    Example, in a subclass of ``AbstractMechanism``: ``mass: Parameter = parameter(0.8)``.

    Parameters
    ----------
    value
        Default value: a number or an array.

    Returns
    -------
    Any
        An ``equinox.field`` that converts its value to an array.
    """
    return eqx.field(default_factory=lambda: _numbers(value), converter=_numbers)


def _numbers(value: Any) -> Array:
    return as_numbers("a parameter", value)


class AbstractMechanism(AbstractSystem):
    """A mechanism with a source. Its parameters are its fields, in SI units, named as in the source.

    Subclasses define ``end``, ``start`` and ``outline``, and what ``AbstractSystem`` requires. The other members have
    defaults for mechanisms without friction, motors, recorded inputs, exact solution or published variants.

    Attributes
    ----------
    end
        Time span of the source [s].
    step
        Recommended fixed step [s] for motions through singular poses, where adaptive steps become too small; else None.
    record
        Names of measured inputs, such as torques, that can drive the mechanism.
    """

    end: ClassVar[float]
    step: ClassVar[float | None] = None
    record: ClassVar[tuple[str, ...]] = ()

    @abc.abstractmethod
    def start(self) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Return q0 (n,) and v0 (n,) as printed in the source. They may violate the constraints."""

    def placed(self, q: Float[Array, " n"], v: Float[Array, " n"]) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Return q and v with dependent entries recomputed from the independent ones.

        It is applied to starts that are measured or random, and after parameters have changed.
        """
        return q, v

    def recorded(self, t: Numbers, inputs: Numbers) -> dict[str, Array]:
        """Return the fields, by name, that make recorded inputs drive the mechanism.

        ``inputs`` (samples, k) has one column per name in ``record``; ``t`` (samples,) are the times [s]. The default
        is an empty dictionary: no recorded inputs.
        """
        return {}

    @abc.abstractmethod
    def outline(self, t: ScalarLike, q: Float[Array, " n"]) -> tuple[Float[Array, "points d"], ...]:
        """Return the lines through the joints [m] that a drawing shows, in the plane (d = 2) or in space (d = 3).

        The last point of each line leaves a trace.
        """

    def contact_points(self, t: ScalarLike, q: Float[Array, " n"]) -> Float[Array, "gaps d"] | None:
        """Return where each gap of ``nonsmooth`` closes [m], NaN for one that has no place, or None: no marks."""
        return None

    def edges(self) -> dict[str, Float[np.ndarray, "points 3"]]:
        """Return the edges of solid bodies, by name: polylines in the body frame [m], separated by rows of NaN.

        A mechanism with edges also defines ``pose(q, t)``, which returns the poses of the bodies. The default is an
        empty dictionary.
        """
        return {}

    def surfaces(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return the surfaces of solid bodies, by name: vertices (k, 3) in the body frame [m], and triangles (f, 3).

        A mechanism with surfaces also defines ``pose(q, t)``. The default is an empty dictionary.
        """
        return {}

    def reference(self, t: ScalarLike) -> Float[Array, " n"] | None:
        """Return the exact q (n,) at time t, or None if it is unknown."""
        return None

    def published(self) -> "dict[str, AbstractMechanism]":
        """Return variants of the mechanism, by name, that reproduce the runs of the source if these are not correct.

        They are simulated from ``start`` without projection; the last one is the correct mechanism.
        """
        return {}
