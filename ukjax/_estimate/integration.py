"""How far the error of the integration moves the estimates, measured by halving the steps."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

WANTED = 0.05
"""Standard errors by which the integration may move any combination of the estimates, where the steps are ours."""

MAX_SHIFT = 0.25
"""The same, above which a fit warns."""

EXACT_DATA_FACTOR = 100.0
"""√eps of the size of the outputs, below which their error is no reason to warn: records without noise have standard
errors of the size of that error."""

RICHARDSON = 16 / 15
"""The error of a method of order 4, in units of what changes when its steps are halved."""

PATIENCE = 5
"""Halvings without a smaller error after which smaller steps do not help: rounding, chaos, or a motion that ends."""

MOST_STEPS = 1_000_000
"""Steps for all records together, beyond which none is halved to make the error smaller."""


class Integration(NamedTuple):
    """The numerical integration behind a fit: the longest step ``dt`` [s], the ``error`` of the predicted outputs, RMS
    in standard deviations of the residuals, and the ``shift`` (p,) of the estimates that it causes, in standard errors
    of each, NaN where these are not determined. ``largest`` is the largest shift of any combination of them.
    ``negligible`` says that it is below a quarter of a standard error, or that the error of the outputs is below 100
    √eps of their size, as records without noise have it."""

    dt: float
    error: float
    shift: Float[np.ndarray, " p"]
    largest: float
    negligible: bool


class StepError(NamedTuple):
    """What half the steps change at one point of a search: the RMS ``error`` in standard deviations of the residuals,
    the ``shift`` (p,) of x with which the least-squares solution answers to it, and its size ``largest`` in standard
    errors; the change of the outputs in units of √eps of their size, ``above_rounding``; and how many residuals are
    ``finite``."""

    error: float
    shift: Float[np.ndarray, " p"]
    largest: float
    above_rounding: float
    finite: int

    @classmethod
    def not_finite(cls, p: int, finite: int) -> "StepError":
        """Where a motion ends too early."""
        return cls(np.inf, np.full(p, np.nan), np.inf, np.inf, finite)

    @property
    def small(self) -> bool:
        return self.largest <= WANTED or self.above_rounding <= 1

    @property
    def tolerable(self) -> bool:
        return self.largest <= MAX_SHIFT or self.above_rounding <= EXACT_DATA_FACTOR

    def better_than(self, other: "StepError") -> bool:
        """Whether smaller, or of a motion that goes on for longer."""
        return (self.largest, -self.finite) < (other.largest, -other.finite)


def step_error(
    r: Float[np.ndarray, " rows"],
    finer: Float[np.ndarray, " rows"],
    J: Float[np.ndarray, "rows unknowns"],
    p: int,
    weight: Float[np.ndarray, " rows"],
    noise: float,
    above_rounding: float,
) -> StepError:
    """From residuals r with steps of some length and ``finer`` ones with half of it, and J = ∂r/∂unknowns, of which the
    first ``p`` are the parameters x: an error e of the predictions moves the least-squares solution by −J⁺ e, where
    rows count by ``weight``. ``noise`` is the standard deviation of r."""
    error, noise = RICHARDSON * (r - finer), max(noise, np.finfo(float).tiny)
    root = np.sqrt(weight)
    size = np.linalg.norm(J, axis=0)
    size = np.where(size > 0, size, 1.0)
    shift = -np.linalg.lstsq(root[:, None] * J / size, root * error, rcond=1e-10)[0] / size
    moved, others = J[:, :p] @ shift[:p], J[:, p:] / size[p:]
    if others.shape[1]:
        moved = moved - others @ np.linalg.lstsq(others, moved, rcond=1e-12)[0]
    rms = float(np.sqrt(np.mean(error**2)))
    return StepError(rms / noise, shift[:p], float(np.linalg.norm(moved)) / noise, above_rounding, 2 * r.size)
