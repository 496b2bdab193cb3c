"""Baumgarte's stabilisation: gains that pull a violated constraint back.

J. Baumgarte, Comput. Methods Appl. Mech. Eng. 1 (1972) 1.
"""

import math
from typing import Any, NamedTuple

from jaxtyping import Array, Float

from .._check import as_numbers
from .._precision import Numbers


class Gains(NamedTuple):
    """α [1/s] and β [1/s²] in φ̈ + α φ̇ + β φ = 0."""

    alpha: Array
    beta: Array


def critically_damped(rate: Numbers) -> Gains:
    """α = 2 rate, β = rate²: a violation decays as (1 + rate t) exp(−rate t), without overshoot.

    ``rate`` [1/s] is a number or one per row. A rate near that of the motion itself is enough; a larger one makes the
    equation stiff: keep rate × step below about 0.05 for a fixed step. Use as
    ``Holonomic(phi, *critically_damped(5.0))``. Raises ``ValueError`` for a negative one, which would drive the
    violation apart.
    """
    rate = as_numbers("rate", rate, least=0, below=math.inf)
    return Gains(2 * rate, rate**2)


def as_gain(name: str, value: Any) -> Array:
    """What a user gave for a gain: numbers that are not negative, since those drive the violation apart."""
    if isinstance(value, Gains):
        raise ValueError(
            f"{name} must be numbers, got both gains: write Holonomic(phi, *critically_damped(5.0)), with a *"
        )
    return as_numbers(name, value, least=0, below=math.inf)


def gain(name: str, value: Array, rows: int) -> Float[Array, "*m"]:
    """``value`` if it is a number or fits the rows, else ``ValueError``."""
    if value.shape not in ((), (rows,)):
        raise ValueError(f"{name} must be a number or have shape ({rows},), one per row, got shape {value.shape}")
    return value
