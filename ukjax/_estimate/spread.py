"""The standard deviation of each output's noise, from the residuals, where it is not known."""

import numpy as np
from jaxtyping import Bool, Float, Int

WEIGHT_TOLERANCE = 0.05
"""Relative change of a standard deviation below which residuals need no other weights."""

MAX_ROUNDS = 10
"""Weights and estimates are computed in turns, so many at most."""

NORMAL_MEDIAN = 0.6745
"""Median of |r| for normal noise of standard deviation 1."""


def leverage(J: Float[np.ndarray, "rows unknowns"]) -> Float[np.ndarray, " rows"]:
    """The diagonal of J J⁺: by how much a residual's own value is fitted, from 0 to 1."""
    size = np.linalg.norm(J, axis=0)
    U, s, _ = np.linalg.svd(J / np.where(size > 0, size, 1.0), full_matrices=False)
    return np.sum(U[:, s > 1e-12 * s[:1]] ** 2, axis=1)


def standard_deviations(
    r: Float[np.ndarray, " rows"],
    fitted: Float[np.ndarray, " rows"],
    output: Int[np.ndarray, " rows"],
    counted: Bool[np.ndarray, " rows"],
    outputs: int,
    robust: bool,
) -> Float[np.ndarray, " outputs"]:
    """Of the residuals r of each output, of those rows that are ``counted``: the sum of squares over its degrees of
    freedom, rows less what was ``fitted`` of them; or, ``robust`` against values that are simply wrong, by the median.
    NaN for an output without rows."""
    found = np.full(outputs, np.nan)
    for k in range(outputs):
        own = counted & (output == k)
        if not np.any(own):
            continue
        if robust:
            found[k] = np.median(np.abs(r[own])) / NORMAL_MEDIAN
        else:
            freedom = max(float(np.sum(1 - fitted[own])), 1e-6)
            found[k] = np.sqrt(np.sum(r[own] ** 2) / freedom)
    return found
