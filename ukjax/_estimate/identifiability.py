"""What data say about parameters, and what they cannot say."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Bool, Float

RANK_TOLERANCE = 1e-7
"""Directions to which the outputs are this much less sensitive than to the strongest are taken for rounding."""

COEFFICIENT_TOLERANCE = 1e-4
"""Of a combination in which every parameter counts by its own size, the parts that are left out."""

EXPONENT_TOLERANCE = 1e-3
"""So near to whole numbers and halves, coefficients of logarithms are taken for exponents, if all of them are."""


class Combination(NamedTuple):
    """A sum of parameters that the data determine, Σ ``coefficients`` θ = ``value`` ± ``error``; or, where the
    parameters only matter by their ratios, a product: Π θ^``coefficients``."""

    coefficients: dict[str, float]
    value: float
    error: float
    product: bool = False

    def of(self, parameters: Mapping[str, float]) -> float:
        """The combination of other values of the parameters."""
        terms = [(parameters[name], c) for name, c in self.coefficients.items()]
        return float(np.prod([x**c for x, c in terms]) if self.product else sum(c * x for x, c in terms))

    def __str__(self) -> str:
        return self._as_product() if self.product else self._as_sum()

    def _as_sum(self):
        terms = []
        for name, c in self.coefficients.items():
            sign = " - " if c < 0 else " + "
            terms.append((sign if terms or c < 0 else "") + (name if abs(c) == 1 else f"{abs(c):.4g} {name}"))
        return "".join(terms).strip()

    def _as_product(self):
        power = lambda name, c: name if abs(c) == 1 else f"{name}^{abs(c):g}"
        above = " ".join(power(name, c) for name, c in self.coefficients.items() if c > 0)
        below = [power(name, c) for name, c in self.coefficients.items() if c < 0]
        below = f"({' '.join(below)})" if len(below) > 1 else "".join(below)
        return f"{above} / {below}" if below else above


class Identifiability(NamedTuple):
    """``singular_values`` of the sensitivity to relative changes, in standard deviations of the noise, largest first;
    ``rank`` of them tell something: the rest stand for changes of 100 % and more within the noise.

    ``covariance`` (p, p) and ``errors`` (p,) are of the parameters, infinite where ``determined`` is False. The data
    determine the ``combinations``, of which some may be single parameters.
    """

    singular_values: Float[np.ndarray, " p"]
    rank: int
    covariance: Float[np.ndarray, "p p"]
    errors: Float[np.ndarray, " p"]
    determined: Bool[np.ndarray, " p"]
    combinations: tuple[Combination, ...]


def unexplained_directions(
    J: Float[np.ndarray, "rows p"], others: Float[np.ndarray, "rows k"], noise: float
) -> tuple[Float[np.ndarray, " p"], Float[np.ndarray, "rank p"]]:
    """The singular values of J without what ``others`` may explain, and the directions of x that
    they tell of."""
    if others.shape[1]:
        J = J - others @ np.linalg.lstsq(others, J, rcond=1e-12)[0]
    _, s, V = np.linalg.svd(np.linalg.qr(J, mode="r"))
    s = np.concatenate([s, np.zeros(len(V) - s.size)])
    return s, V[(s > RANK_TOLERANCE * s[0]) & (s > noise)]


def identifiability(
    names: tuple[str, ...],
    values: Float[np.ndarray, " p"],
    slope: Float[np.ndarray, " p"],
    logarithmic: Bool[np.ndarray, " p"],
    J: Float[np.ndarray, "rows p"],
    others: Float[np.ndarray, "rows k"],
    noise: float,
) -> Identifiability:
    """From J = ∂r/∂x, where θ is a function of x with derivative ``slope``, x being the logarithm of θ where
    ``logarithmic``; ``others`` are sensitivities to what is estimated as well, and may explain away part of J.
    ``noise`` is the standard deviation of r."""
    s, V = unexplained_directions(J, others, noise)
    rank = len(V)
    noise = max(noise, float(np.finfo(float).eps) * s[0])
    within = (V.T / s[:rank] ** 2) @ V * noise**2  # of x, within the directions that the data tell of
    determined = 1 - np.sum(V**2, axis=0) < COEFFICIENT_TOLERANCE**2
    covariance = slope[:, None] * within * slope
    errors = np.where(determined, np.sqrt(np.diagonal(covariance)), np.inf)
    covariance = np.where(determined[:, None] & determined, covariance, np.inf)
    return Identifiability(
        s / noise, rank, covariance, errors, determined, _combinations(names, values, slope, logarithmic, V, within)
    )


def _combinations(names, values, slope, logarithmic, V, within):
    """The reduced echelon form of V's rows: each has one parameter that no other has. In logarithms, whole numbers and
    halves are exponents."""
    if not len(V):
        return ()
    pivots = np.sort(scipy.linalg.qr(V, pivoting=True, mode="r")[1][: len(V)])
    C = np.linalg.solve(V[:, pivots], V)
    C[:, pivots] = np.eye(len(V))
    C[np.abs(C) < COEFFICIENT_TOLERANCE] = 0
    exponents = np.round(2 * C) / 2
    mixed = [i for i, row in enumerate(C) if np.count_nonzero(row) > 1]
    products = np.all(np.abs(C - exponents) < EXPONENT_TOLERANCE) and np.all(logarithmic[np.any(C[mixed] != 0, axis=0)])
    found = []
    for row, powers, pivot in zip(C, exponents, pivots, strict=True):
        order = [pivot, *(j for j in range(len(names)) if j != pivot and row[j] != 0)]
        if len(order) > 1 and products:
            value = float(np.prod(values[order] ** powers[order]))
            error = value * float(np.sqrt(row @ within @ row))
            found.append(Combination({names[j]: float(powers[j]) for j in order}, value, error, product=True))
            continue
        row = row * slope[pivot] / slope  # dx = dθ / slope
        error = float(np.sqrt((row * slope) @ within @ (row * slope)))
        found.append(Combination({names[j]: float(row[j]) for j in order}, float(row @ values), error))
    return tuple(found)
