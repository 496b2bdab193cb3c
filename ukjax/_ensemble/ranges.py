"""Ranges of a number in ``ensemble(over=...)``: ``Grid`` and ``Uniform``."""

from dataclasses import dataclass
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np
from jaxtyping import Float

from .._check import as_integer, repr_of
from .._errors import InputError


@dataclass(frozen=True, init=False)
class Grid:
    """``count`` equally spaced values from ``low`` to ``high``, both ends included.

    For other spacings, give the values themselves: ``np.geomspace(1.0, 100.0, 20)``.

    Parameters
    ----------
    low, high : float
        First and last value, in the unit of the number that is swept. Finite, and ``low < high``.
    count : int
        Number of values, at least 2.

    Raises
    ------
    InputError
        If ``low`` or ``high`` is not a finite number, ``low >= high``, or ``count`` is not a whole number of at
        least 2.

    Examples
    --------
    >>> import ukjax as uk
    >>> uk.Grid(0.5, 1.5, 5).values
    array([0.5 , 0.75, 1.  , 1.25, 1.5 ])
    """

    low: float
    high: float
    count: int

    def __init__(self, low: SupportsFloat, high: SupportsFloat, count: SupportsIndex):
        _set_bounds(self, low, high)
        object.__setattr__(self, "count", as_integer("Grid.count", count, 2))

    @property
    def values(self) -> Float[np.ndarray, " count"]:
        """The values, in increasing order."""
        return np.linspace(self.low, self.high, self.count)


@dataclass(frozen=True, init=False)
class Uniform:
    """A uniform distribution between ``low`` and ``high``: one value is drawn for each member.

    For other distributions, use those of ``scipy.stats``, such as ``scipy.stats.norm(1.0, 0.1)``.

    Parameters
    ----------
    low, high : float
        Bounds, in the unit of the number that is swept. Finite, and ``low < high``.

    Raises
    ------
    InputError
        If ``low`` or ``high`` is not a finite number, or ``low >= high``.

    Examples
    --------
    >>> import numpy as np
    >>> import ukjax as uk
    >>> uk.Uniform(1.0, 3.0).ppf(np.array([0.0, 0.5, 1.0]))
    array([1., 2., 3.])
    """

    low: float
    high: float

    def __init__(self, low: SupportsFloat, high: SupportsFloat):
        _set_bounds(self, low, high)

    def ppf(self, probability: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """The quantile function (inverse of the cumulative distribution) at each ``probability``, named as in SciPy."""
        return self.low + (self.high - self.low) * probability


def _set_bounds(limits: Grid | Uniform, low: Any, high: Any) -> None:
    """Set ``limits.low`` and ``limits.high``, or raise ``InputError``."""
    kind = type(limits).__name__
    low, high = _finite(f"{kind}.low", low), _finite(f"{kind}.high", high)
    if not low < high:
        raise InputError(f"{kind} must have low < high, got low = {low}, high = {high}")
    if not np.isfinite(high - low):
        raise InputError(f"{kind} must have a finite width high - low, got low = {low}, high = {high}")
    object.__setattr__(limits, "low", low)  # the dataclass is frozen
    object.__setattr__(limits, "high", high)


def _finite(name: str, value: Any) -> float:
    """``value`` as a finite float. JAX is not called: a range may be made before JAX is configured."""
    try:
        array = np.asarray(value)
        if array.ndim or array.dtype.kind not in "iuf":  # no strings, truth values or complex numbers
            raise TypeError
        number = float(array)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not np.isfinite(number):
        raise InputError(f"{name} must be a finite number, got {repr_of(value)}")
    return number
