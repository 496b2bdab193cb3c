"""Effect of the integration error on the estimates, computed from the change when the time steps are halved, or the
tolerance of adaptive steps is 16 times smaller."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

WANTED = 0.05
"""Largest shift of any combination of estimates [standard errors] that is accepted when the time step is chosen
automatically."""

MAX_SHIFT = 0.25
"""Largest shift of any combination of estimates [standard errors] without a warning."""

EXACT_DATA_FACTOR = 100.0
"""Error of the outputs, in units of √eps times their size, below which there is no warning. Records without noise have
standard errors of the size of the integration error."""

TOLERANCE_FACTOR = 16.0
"""Factor by which adaptive steps get a smaller tolerance, where fixed steps are halved."""

PATIENCE = 5
"""Number of halvings without a smaller error, after which halving stops. The cause is rounding, chaos, or a motion that
ends early."""

MOST_STEPS = 1_000_000
"""Largest number of steps, in all records together, in automatic halving."""


class IntegrationEffect(NamedTuple):
    """The numerical integration of a fit, and its effect on the estimates.

    Attributes
    ----------
    dt : float or None
        Longest time step [s]; None for adaptive steps.
    rtol : float or None
        Relative tolerance of adaptive steps; None for fixed steps.
    error : float
        RMS error of the predicted outputs, in standard deviations of the residuals.
    shift : array, shape (p,)
        Shift of each estimate that this error causes, in its standard errors; NaN for parameters that are not
        determined.
    largest : float
        Largest shift of any combination of estimates, in its standard errors.
    negligible : bool
        Whether ``largest`` is at most 0.25, or the error of the outputs at most 100 √eps times their size (records
        without noise).
    """

    dt: float | None
    rtol: float | None
    error: float
    shift: Float[np.ndarray, " p"]
    largest: float
    negligible: bool


class StepError(NamedTuple):
    """The integration error at one point of a search, estimated by refining the steps.

    Attributes
    ----------
    error : float
        RMS error, in standard deviations of the residuals.
    shift : array, shape (p,)
        Shift of x in the least-squares solution that the error causes.
    largest : float
        Size of the shift in standard errors, for the combination with the largest one.
    above_rounding : float
        Change of the outputs, in units of √eps times their size.
    finite : int
        Number of residuals that are finite, with both step sizes together.
    """

    error: float
    shift: Float[np.ndarray, " p"]
    largest: float
    above_rounding: float
    finite: int

    @classmethod
    def not_finite(cls, p: int, finite: int) -> "StepError":
        """The value for a motion that ends too early."""
        return cls(np.inf, np.full(p, np.nan), np.inf, np.inf, finite)

    @property
    def small(self) -> bool:
        """Whether the steps are short enough when they are chosen automatically."""
        return self.largest <= WANTED or self.above_rounding <= 1

    @property
    def tolerable(self) -> bool:
        """Whether the steps are short enough that no warning is given."""
        return self.largest <= MAX_SHIFT or self.above_rounding <= EXACT_DATA_FACTOR

    def better_than(self, other: "StepError") -> bool:
        """Whether the error is smaller, or equal with a motion that lasts longer."""
        return (self.largest, -self.finite) < (other.largest, -other.finite)


def step_error(
    r: Float[np.ndarray, " rows"],
    finer: Float[np.ndarray, " rows"],
    J: Float[np.ndarray, "rows unknowns"],
    p: int,
    weight: Float[np.ndarray, " rows"],
    noise: float,
    above_rounding: float,
    reduction: float,
) -> StepError:
    """Estimate the integration error from residuals ``r``, and ``finer`` ones whose error is ``reduction`` times
    smaller.

    An error e of the predictions moves the least-squares solution by −J⁺ e, with rows weighted by ``weight``.
    J = ∂r/∂unknowns; the first ``p`` unknowns are the parameters x. ``noise`` is the standard deviation of r.
    """
    error, noise = reduction / (reduction - 1) * (r - finer), max(noise, np.finfo(float).tiny)
    root = np.sqrt(weight)
    column_norm = np.linalg.norm(J, axis=0)
    column_norm = np.where(column_norm > 0, column_norm, 1.0)
    shift = -np.linalg.lstsq(root[:, None] * J / column_norm, root * error, rcond=1e-10)[0] / column_norm
    residual_shift, others = J[:, :p] @ shift[:p], J[:, p:] / column_norm[p:]
    if others.shape[1]:
        residual_shift = residual_shift - others @ np.linalg.lstsq(others, residual_shift, rcond=1e-12)[0]
    rms = float(np.sqrt(np.mean(error**2)))
    return StepError(rms / noise, shift[:p], float(np.linalg.norm(residual_shift)) / noise, above_rounding, 2 * r.size)
