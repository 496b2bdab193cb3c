"""Gains of Baumgarte's stabilisation of constraints.

J. Baumgarte, Comput. Methods Appl. Mech. Eng. 1 (1972) 1.
"""

import math
from typing import Any, NamedTuple

from jaxtyping import Array, Float

from .._check import as_numbers
from .._errors import InputError
from .._precision import Numbers


class Gains(NamedTuple):
    """Gains ``alpha`` [1/s] and ``beta`` [1/s²] of φ̈ + α φ̇ + β φ = 0."""

    alpha: Array
    beta: Array


def critically_damped(rate: Numbers) -> Gains:
    """Return critically damped Baumgarte gains, α = 2 rate and β = rate².

    A violation of the constraint then decays as (1 + rate t) exp(−rate t), without overshoot. A rate near that of the
    motion itself is enough. A larger one makes the equations stiff: with a fixed step, keep rate × step below about
    0.05. Example: ``Holonomic(phi, *critically_damped(5.0))``.

    Parameters
    ----------
    rate
        Decay rate [1/s]: a number, or an array (m,) with one entry per row.

    Returns
    -------
    Gains
        ``alpha`` [1/s] and ``beta`` [1/s²], with the shape of ``rate``.

    Raises
    ------
    InputError
        If ``rate`` is negative: the violation would grow.
    """
    rate = as_numbers("rate", rate, least=0, below=math.inf)
    return Gains(2 * rate, rate**2)


def as_gain(name: str, value: Any) -> Array:
    """Convert a gain to an array. Raises ``InputError`` if it is negative: the violation would grow."""
    if isinstance(value, Gains):
        raise InputError(
            f"{name} must be numbers, got both gains: write Holonomic(phi, *critically_damped(5.0)), with a *"
        )
    return as_numbers(name, value, least=0, below=math.inf)


def gain_for_rows(name: str, value: Array, rows: int) -> Float[Array, "*m"]:
    """Return ``value`` if it is a number or has one entry per row, else raise ``InputError``."""
    if value.shape not in ((), (rows,)):
        raise InputError(f"{name} must be a number or have shape ({rows},), one per row, got shape {value.shape}")
    return value
