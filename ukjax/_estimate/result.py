"""What a fit found, in numbers and words."""

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
from .integration import Integration
from .misfit import misfit

MIN_PROBABILITY = 1e-6
"""Probability of a χ² as far from its mean as this one, below which sigma is doubted."""

MIN_LOG_RATIO = 0.3
"""And by so much the logarithm of residuals over sigma must differ from 0."""

MIN_SHOWN_SHIFT = 1e-3
"""Standard errors that are not worth a number."""


class Fit(eqx.Module):
    """What ``fit`` found: ``model`` with the estimates in it, and how sure they are.

    ``values`` ± ``errors`` (p,) of the parameters ``names``; an error is infinite where the data do not determine the
    parameter alone: see ``identifiability.combinations`` for what they do determine. ``observe`` has the estimates of
    its own parameters in it. ``starts`` (segments, k) are the estimated starts, ``predicted`` the outputs of each
    experiment as simulated, ``residuals`` measured minus predicted, NaN where nothing was measured. ``noise`` is the
    standard deviation of the residuals in units of the experiments' ``sigma``, 1 where they have none; ``sigma``
    (outputs,) that of each output, in its own unit. ``jump`` is the largest step between the end of one segment and the
    start of the next. ``integration`` says which steps were taken, and how far their error moves the estimates.
    ``doubts`` are sentences on what speaks against the result; ``print`` shows them.
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
    integration: Integration
    evaluations: int
    converged: bool

    @property
    def errors(self) -> Float[np.ndarray, " p"]:
        """Standard errors of ``values``, infinite for what is not determined."""
        return self.identifiability.errors

    @property
    def covariance(self) -> Float[np.ndarray, "p p"]:
        """Of ``values``, infinite in the rows and columns of what is not determined."""
        return self.identifiability.covariance

    @property
    def correlation(self) -> Float[np.ndarray, "p p"]:
        """The covariance in units of the errors, NaN for what is not determined."""
        finite = np.isfinite(self.covariance)
        scale = np.where(np.isfinite(self.errors), self.errors, 1.0)
        return np.where(finite, self.covariance / (scale[:, None] * scale), np.nan)

    @property
    def residuals(self) -> tuple[Float[np.ndarray, "samples outputs"], ...]:
        pairs = zip(self.experiments, self.predicted, strict=True)
        return tuple(np.where(e.measured, e.y - predicted, np.nan) for e, predicted in pairs)

    @property
    def combinations(self) -> tuple[Combination, ...]:
        """What the data determine, sums of parameters included."""
        return self.identifiability.combinations

    @property
    def undetermined(self) -> tuple[str, ...]:
        """The parameters that the data do not determine alone."""
        return tuple(name for name, known in zip(self.names, self.identifiability.determined, strict=True) if not known)

    @property
    def doubts(self) -> tuple[str, ...]:
        """What speaks against the result: the search did not converge, the residuals are not of the size of the noise,
        or the integration was not accurate enough."""
        search = "" if self.converged else f"not converged after {self.evaluations} evaluations"
        meets = misfit(self.experiments, self.predicted)
        return tuple(filter(None, (search, meets, self._sigma_doubt(), self.integration_doubt)))

    def _sigma_doubt(self) -> str:
        """Where every sigma was given: whether χ² is compatible with it."""
        freedom = self._degrees_of_freedom()
        if not all(e.weighted for e in self.experiments):
            return ""
        chi2 = self.noise**2 * freedom
        chance = 2 * min(scipy.stats.chi2.cdf(chi2, freedom), scipy.stats.chi2.sf(chi2, freedom))
        if chance > MIN_PROBABILITY or abs(np.log(self.noise + 1e-300)) < MIN_LOG_RATIO:
            return ""
        cause = "the model lacks something, or sigma is too small" if self.noise > 1 else "sigma is too large"
        return f"the residuals are {self.noise:.3g} times sigma (χ² = {chi2:.4g}, expected {freedom}): {cause}"

    @property
    def integration_doubt(self) -> str:
        """A sentence if the error of the integration moves the estimates by too much, else an empty one."""
        of = self.integration
        if of.negligible:
            return ""
        known = np.where(np.isfinite(of.shift), np.abs(of.shift), 0)
        worst = f", {self.names[np.argmax(known)]} by {np.max(known):.2g}" if np.any(known) else ""
        return (
            f"the integration is not accurate enough: with steps of {of.dt:.3g} s its error moves the estimates by "
            f"{of.largest:.2g} standard errors{worst}. Take a smaller dt, or leave it out; where that does not help, "
            "the motion is chaotic or not smooth: cut the records into segments, or make jumps of forces smooth"
        )

    def _degrees_of_freedom(self) -> int:
        counted = sum(int(e.measured.sum()) for e in self.experiments)
        return max(1, counted - self.identifiability.rank)

    def interval(self, level: float = 0.95) -> Float[np.ndarray, "p 2"]:
        """Confidence intervals of the parameters, by Student's distribution. ``ValueError`` unless 0 < level < 1."""
        of_both_sides = (1 + float(as_number("level", level, above=0, below=1))) / 2
        half = scipy.stats.t.ppf(of_both_sides, self._degrees_of_freedom()) * self.errors
        return np.stack([self.values - half, self.values + half], axis=1)

    def __str__(self) -> str:
        lines = table(self.names, self.values, self.identifiability)
        rms = [np.sqrt(np.nanmean(np.concatenate(self.residuals) ** 2, axis=0))]
        lines.append("residuals, RMS per output: " + " ".join(f"{x:.3g}" for x in np.concatenate(rms)))
        of = self.integration
        small = f"{of.largest:.1g} standard errors" if of.largest > MIN_SHOWN_SHIFT else "nothing"
        lines.append(f"steps of at most {of.dt:.3g} s, whose error moves the estimates by {small}")
        return "\n".join([*lines, *self.doubts])

    def as_dict(self) -> dict[str, Any]:
        """The table as plain numbers, None for what is not determined."""
        return estimates(self.names, self.values, self.identifiability) | {
            "noise": self.noise,
            "sigma": [number_or_none(x) for x in self.sigma],
            "jump": self.jump,
            "evaluations": self.evaluations,
            "converged": self.converged,
            "integration": {
                "dt": self.integration.dt,
                "error": number_or_none(self.integration.error),
                "shift": [number_or_none(x) for x in self.integration.shift],
                "largest": number_or_none(self.integration.largest),
                "negligible": self.integration.negligible,
            },
            "doubts": list(self.doubts),
        }

    def save(self, path: str | Path) -> Path:
        """``as_dict`` as JSON; a file of that name is replaced only when the new one is whole."""
        return write_json(Path(path), self.as_dict())


def table(names: tuple[str, ...], values: Float[np.ndarray, " p"], known: Identifiability) -> list[str]:
    """Lines of estimates ± standard errors, and of the combinations where these are not all."""
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
    """The same as plain numbers, None for what is not determined."""
    return {
        "parameters": {
            name: {"estimate": float(value), "error": number_or_none(error)}
            for name, value, error in zip(names, values, known.errors, strict=True)
        },
        "combinations": [c._asdict() | {"text": str(c)} for c in known.combinations],
        "undetermined": [name for name, alone in zip(names, known.determined, strict=True) if not alone],
        "singular_values": known.singular_values.tolist(),
        "rank": known.rank,
        "covariance": [[number_or_none(x) for x in row] for row in known.covariance],
    }


def number_or_none(x: Any) -> float | None:
    """x for JSON, which has no infinity and no NaN."""
    return float(x) if np.isfinite(x) else None
