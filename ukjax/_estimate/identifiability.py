"""Parameters, and combinations of parameters, that the data determine. The singular value decomposition of the
sensitivities J separates the directions that change the outputs by more than the noise from the others. The reduced
echelon form of the former gives the combinations.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Bool, Float

RANK_TOLERANCE = 1e-7
"""Singular values below this fraction of the largest count as rounding errors."""

COEFFICIENT_TOLERANCE = 1e-4
"""Coefficients below this are left out of a combination, in units where each parameter has size 1."""

EXPONENT_TOLERANCE = 1e-3
"""Coefficients of logarithms that are this close to integers and halves are rounded to exponents, if all are."""


class Combination(NamedTuple):
    """A combination of parameters θ that the data determine: a sum  Σ cᵢ θᵢ  or a product  Π θᵢ^cᵢ.

    The combination is a product if the parameters affect the outputs only by their ratios. ``str`` returns the formula.

    Attributes
    ----------
    coefficients : dict
        The c of each parameter, by name.
    value, error : float
        Estimate of the combination, and its standard error.
    product : bool
        Whether the combination is a product.
    """

    coefficients: dict[str, float]
    value: float
    error: float
    product: bool = False

    def of(self, parameters: Mapping[str, float]) -> float:
        """Evaluate the combination.

        Parameters
        ----------
        parameters : dict
            Value of each parameter, by name.

        Returns
        -------
        float
            The sum or the product.
        """
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
        factor = lambda name, c: name if abs(c) == 1 else f"{name}^{abs(c):g}"
        numerator = " ".join(factor(name, c) for name, c in self.coefficients.items() if c > 0)
        denominator = [factor(name, c) for name, c in self.coefficients.items() if c < 0]
        denominator = f"({' '.join(denominator)})" if len(denominator) > 1 else "".join(denominator)
        return f"{numerator} / {denominator}" if denominator else numerator


class Identifiability(NamedTuple):
    """The parameters that the data determine, and their accuracy.

    Attributes
    ----------
    singular_values : array, shape (p,)
        Singular values of the sensitivity to relative changes of the parameters, in standard deviations of the noise,
        largest first.
    rank : int
        Number of singular values that are significant. The other directions can change by 100 % or more within the
        noise.
    covariance : array, shape (p, p)
        Covariance of the estimates, infinite for parameters that are not determined.
    errors : array, shape (p,)
        Standard errors of the estimates, infinite for parameters that are not determined.
    determined : array of bool, shape (p,)
        Whether the data determine each parameter, not only a combination.
    combinations : tuple of Combination
        The ``rank`` combinations that the data determine; some may be single parameters.
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
    """Singular values of J without the part that ``others`` may explain, and the significant directions (rank, p)."""
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
    """Compute the ``Identifiability`` from J = ∂r/∂x.

    θ(x) has the derivative ``slope``; x is the logarithm of θ where ``logarithmic``. ``others`` are the sensitivities
    to the other unknowns, which may explain part of J. ``noise`` is the standard deviation of r.
    """
    s, V = unexplained_directions(J, others, noise)
    rank = len(V)
    noise = max(noise, float(np.finfo(float).eps) * s[0])
    within = (V.T / s[:rank] ** 2) @ V * noise**2  # covariance of x, within the directions that the data determine
    determined = 1 - np.sum(V**2, axis=0) < COEFFICIENT_TOLERANCE**2
    covariance = slope[:, None] * within * slope
    errors = np.where(determined, np.sqrt(np.diagonal(covariance)), np.inf)
    covariance = np.where(determined[:, None] & determined, covariance, np.inf)
    return Identifiability(
        s / noise, rank, covariance, errors, determined, _combinations(names, values, slope, logarithmic, V, within)
    )


def _combinations(names, values, slope, logarithmic, V, within):
    """The combinations, from the reduced echelon form of V: each row has one parameter that no other row has.

    Coefficients of logarithms that are integers or halves become exponents of a product.
    """
    if not len(V):
        return ()
    pivots = np.sort(scipy.linalg.qr(V, pivoting=True, mode="r")[1][: len(V)])
    C = np.linalg.solve(V[:, pivots], V)
    C[:, pivots] = np.eye(len(V))
    C[np.abs(C) < COEFFICIENT_TOLERANCE] = 0
    rounded = np.round(2 * C) / 2
    mixed = [i for i, row in enumerate(C) if np.count_nonzero(row) > 1]
    products = np.all(np.abs(C - rounded) < EXPONENT_TOLERANCE) and np.all(logarithmic[np.any(C[mixed] != 0, axis=0)])
    combinations = []
    for row, powers, pivot in zip(C, rounded, pivots, strict=True):
        order = [pivot, *(j for j in range(len(names)) if j != pivot and row[j] != 0)]
        if len(order) > 1 and products:
            value = float(np.prod(values[order] ** powers[order]))
            error = value * float(np.sqrt(row @ within @ row))
            combinations.append(Combination({names[j]: float(powers[j]) for j in order}, value, error, product=True))
            continue
        row = row * slope[pivot] / slope  # dx = dθ / slope
        error = float(np.sqrt((row * slope) @ within @ (row * slope)))
        combinations.append(Combination({names[j]: float(row[j]) for j in order}, float(row @ values), error))
    return tuple(combinations)
