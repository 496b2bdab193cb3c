"""Estimate the standard deviation of the noise of each output from the residuals."""

import numpy as np
from jaxtyping import Bool, Float, Int

WEIGHT_TOLERANCE = 0.05
"""Relative change of a standard deviation below which the weights are not updated."""

MAX_ROUNDS = 10
"""Largest number of rounds in which estimates and weights are computed alternately."""

NORMAL_MEDIAN = 0.6745
"""Median of |r| for normal noise of standard deviation 1."""


def leverage(J: Float[np.ndarray, "rows unknowns"]) -> Float[np.ndarray, " rows"]:
    """The leverage of each residual, the diagonal of J J⁺, from 0 to 1."""
    size = np.linalg.norm(J, axis=0)
    U, s, _ = np.linalg.svd(J / np.where(size > 0, size, 1.0), full_matrices=False)
    return np.sum(U[:, s > 1e-12 * s[:1]] ** 2, axis=1)


def standard_deviations(
    r: Float[np.ndarray, " rows"],
    leverages: Float[np.ndarray, " rows"],
    output: Int[np.ndarray, " rows"],
    counted: Bool[np.ndarray, " rows"],
    outputs: int,
    robust: bool,
) -> Float[np.ndarray, " outputs"]:
    """Standard deviation of the residuals r of each output, over the rows that are ``counted``; NaN without rows.

    The sum of squares is divided by the degrees of freedom, Σ (1 − leverage). With ``robust``, the median of |r| is
    used instead, which outliers do not affect.
    """
    deviations = np.full(outputs, np.nan)
    for k in range(outputs):
        own = counted & (output == k)
        if not np.any(own):
            continue
        if robust:
            deviations[k] = np.median(np.abs(r[own])) / NORMAL_MEDIAN
        else:
            freedom = max(float(np.sum(1 - leverages[own])), 1e-6)
            deviations[k] = np.sqrt(np.sum(r[own] ** 2) / freedom)
    return deviations
