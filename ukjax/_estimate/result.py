"""``Fit``: the result of ``fit``, as numbers and as a table."""

from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np
import scipy.stats
from jaxtyping import Float

from .._check import as_number
from .._files import write_json
from .experiment import Experiment
from .identifiability import Combination, Identifiability
from .integration import MAX_SHIFT, IntegrationEffect
from .misfit import misfit

MIN_PROBABILITY = 1e-6
"""Probability (two-sided) of χ² below which a sigma gives a warning."""

MIN_LOG_RATIO = 0.3
"""Smallest |log(residuals / sigma)| for which a sigma gives a warning."""

MIN_SHOWN_SHIFT = 1e-3
"""Shift in standard errors below which the table shows "nothing" instead of a number."""


class Fit(eqx.Module):
    """The result of ``fit``. ``print`` shows the estimates, their standard errors and the ``doubts``.

    Attributes
    ----------
    model : callable
        The model with the estimates.
    observe : callable
        The function ``observe`` with the estimates of its own parameters.
    names : tuple of str
        Names of the estimated parameters.
    values : array, shape (p,)
        Their estimates, in the units of the parameters.
    identifiability : Identifiability
        Which parameters, or combinations of them, the data determine.
    starts : array, shape (segments, k)
        The (estimated) starts of all segments.
    experiments : tuple of Experiment
        The measured motions.
    predicted : tuple of array, shape (samples, outputs)
        The simulated outputs of each experiment.
    noise : float
        Standard deviation of the residuals, in units of ``Experiment.sigma`` (of 1 where that is missing).
    sigma : array, shape (outputs,)
        Standard deviation of the residuals of each output, in its own unit.
    jump : float
        Largest difference between the end of one segment and the start of the next.
    integration : IntegrationEffect
        The time steps, and the effect of their error on the estimates.
    evaluations : int
        Number of evaluations of the residuals.
    converged : bool
        Whether the search converged.
    """

    model: Any
    observe: Any
    names: tuple[str, ...] = eqx.field(static=True)
    values: Float[np.ndarray, " p"]
    identifiability: Identifiability
    starts: Float[np.ndarray, "segments k"]
    experiments: tuple[Experiment, ...]
    predicted: tuple[Float[np.ndarray, "samples outputs"], ...]
    noise: float
    sigma: Float[np.ndarray, " outputs"]
    jump: float
    integration: IntegrationEffect
    evaluations: int
    converged: bool

    @property
    def errors(self) -> Float[np.ndarray, " p"]:
        """Standard errors of ``values``, shape (p,), infinite for parameters that are not determined."""
        return self.identifiability.errors

    @property
    def covariance(self) -> Float[np.ndarray, "p p"]:
        """Covariance of ``values``, shape (p, p), infinite in rows and columns that are not determined."""
        return self.identifiability.covariance

    @property
    def correlation(self) -> Float[np.ndarray, "p p"]:
        """Correlation of ``values``, shape (p, p), NaN for parameters that are not determined."""
        finite = np.isfinite(self.covariance)
        scale = np.where(np.isfinite(self.errors), self.errors, 1.0)
        return np.where(finite, self.covariance / (scale[:, None] * scale), np.nan)

    @property
    def residuals(self) -> tuple[Float[np.ndarray, "samples outputs"], ...]:
        """Measured minus predicted outputs of each experiment, (samples, outputs), NaN where a value is missing."""
        pairs = zip(self.experiments, self.predicted, strict=True)
        return tuple(np.where(e.measured, e.y - predicted, np.nan) for e, predicted in pairs)

    @property
    def combinations(self) -> tuple[Combination, ...]:
        """The parameters and combinations of parameters that the data determine."""
        return self.identifiability.combinations

    @property
    def undetermined(self) -> tuple[str, ...]:
        """The parameters that the data do not determine alone."""
        return tuple(name for name, known in zip(self.names, self.identifiability.determined, strict=True) if not known)

    @property
    def doubts(self) -> tuple[str, ...]:
        """Sentences that warn about the result: the search did not converge, the residuals do not have the size of the
        noise, or the integration was not accurate enough."""
        search = "" if self.converged else f"not converged after {self.evaluations} evaluations"
        fit_doubt = misfit(self.experiments, self.predicted)
        return tuple(filter(None, (search, fit_doubt, self._sigma_doubt(), self.integration_doubt)))

    def _sigma_doubt(self) -> str:
        """A warning if every sigma was given and χ² is not compatible with it, else an empty string."""
        degrees = self._degrees_of_freedom()
        if not all(e.weighted for e in self.experiments):
            return ""
        chi2 = self.noise**2 * degrees
        probability = 2 * min(scipy.stats.chi2.cdf(chi2, degrees), scipy.stats.chi2.sf(chi2, degrees))
        if probability > MIN_PROBABILITY or abs(np.log(self.noise + 1e-300)) < MIN_LOG_RATIO:
            return ""
        cause = "the model is incomplete, or sigma is too small" if self.noise > 1 else "sigma is too large"
        return f"the residuals are {self.noise:.3g} times sigma (χ² = {chi2:.4g}, expected {degrees}): {cause}"

    @property
    def integration_doubt(self) -> str:
        """A warning if the error of the integration moves the estimates by too much, else an empty string."""
        integration = self.integration
        if integration.negligible:
            return ""
        shifts = np.where(np.isfinite(integration.shift), np.abs(integration.shift), 0)
        if integration.dt is None:
            steps, advice = f"with rtol = {integration.rtol:.3g}", "Take a smaller rtol, or leave it out"
        else:
            steps, advice = f"with steps of {integration.dt:.3g} s", "Take a smaller dt, or leave it out"
        worst = f", {self.names[np.argmax(shifts)]} by {np.max(shifts):.2g}" if np.any(shifts) else ""
        return (
            f"the integration is not accurate enough: {steps} its error moves the estimates by "
            f"{integration.largest:.2g} standard errors{worst}. {advice}; where that does not help, the motion is "
            "chaotic or not smooth: cut the records into segments, or make jumps of forces smooth"
        )

    def _degrees_of_freedom(self) -> int:
        """Number of measured values minus the number of parameters that are determined."""
        counted = sum(int(e.measured.sum()) for e in self.experiments)
        return max(1, counted - self.identifiability.rank)

    def interval(self, level: float = 0.95) -> Float[np.ndarray, "p 2"]:
        """Confidence intervals of the parameters, from Student's t distribution.

        Parameters
        ----------
        level : float, optional
            Confidence level, between 0 and 1. Default: 0.95.

        Returns
        -------
        array, shape (p, 2)
            Lower and upper limits, infinite for parameters that are not determined.

        Raises
        ------
        InputError
            If ``level`` is not between 0 and 1.
        """
        quantile = (1 + float(as_number("level", level, above=0, below=1))) / 2
        half_width = scipy.stats.t.ppf(quantile, self._degrees_of_freedom()) * self.errors
        return np.stack([self.values - half_width, self.values + half_width], axis=1)

    def __str__(self) -> str:
        lines = table(self.names, self.values, self.identifiability)
        rms = [np.sqrt(np.nanmean(np.concatenate(self.residuals) ** 2, axis=0))]
        lines.append("residuals, RMS per output: " + " ".join(f"{x:.3g}" for x in np.concatenate(rms)))
        integration = self.integration
        shift = f"moves the estimates by {integration.largest:.1g} standard errors"
        shift = shift if integration.largest > MIN_SHOWN_SHIFT else "does not move the estimates"
        if integration.negligible and integration.largest > MAX_SHIFT:  # the standard errors are rounding errors
            shift = "is of the size of the residuals: the data have no noise"
        adaptive = integration.dt is None
        steps = f"steps with rtol = {integration.rtol:.3g}" if adaptive else f"steps of at most {integration.dt:.3g} s"
        lines.append(f"{steps}, whose error {shift}")
        return "\n".join([*lines, *self.doubts])

    def as_dict(self) -> dict[str, Any]:
        """The result as a dictionary that JSON can store; None for parameters that are not determined."""
        return estimates(self.names, self.values, self.identifiability) | {
            "noise": self.noise,
            "sigma": [number_or_none(x) for x in self.sigma],
            "jump": self.jump,
            "evaluations": self.evaluations,
            "converged": self.converged,
            "integration": {
                "dt": self.integration.dt,
                "rtol": self.integration.rtol,
                "error": number_or_none(self.integration.error),
                "shift": [number_or_none(x) for x in self.integration.shift],
                "largest": number_or_none(self.integration.largest),
                "negligible": self.integration.negligible,
            },
            "doubts": list(self.doubts),
        }

    def save(self, path: str | Path) -> Path:
        """Write ``as_dict()`` to a JSON file, atomically; returns its path."""
        return write_json(Path(path), self.as_dict())


def table(names: tuple[str, ...], values: Float[np.ndarray, " p"], known: Identifiability) -> list[str]:
    """Lines with estimates ± standard errors, and with the combinations if not all parameters are determined."""
    width = max(9, *map(len, names))
    lines = [f"{'parameter':{width}}  {'estimate':>12}  {'± standard error':>16}"]
    for name, value, error in zip(names, values, known.errors, strict=True):
        shown = f"{error:16.3g}" if np.isfinite(error) else f"{'not determined':>16}"
        lines.append(f"{name:{width}}  {value:12.6g}  {shown}")
    if not np.all(known.determined):
        lines.append("the data determine:")
        lines += [f"  {c} = {c.value:.6g} ± {c.error:.2g}" for c in known.combinations]
    return lines


def estimates(names: tuple[str, ...], values: Float[np.ndarray, " p"], known: Identifiability) -> dict[str, Any]:
    """Estimates and identifiability as a dictionary that JSON can store; None for values that are not determined."""
    return {
        "parameters": {
            name: {"estimate": float(value), "error": number_or_none(error)}
            for name, value, error in zip(names, values, known.errors, strict=True)
        },
        "combinations": [c._asdict() | {"text": str(c)} for c in known.combinations],
        "undetermined": [name for name, determined in zip(names, known.determined, strict=True) if not determined],
        "singular_values": known.singular_values.tolist(),
        "rank": known.rank,
        "covariance": [[number_or_none(x) for x in row] for row in known.covariance],
    }


def number_or_none(x: Any) -> float | None:
    """x for JSON, which has no infinity and no NaN: None for these."""
    return float(x) if np.isfinite(x) else None
