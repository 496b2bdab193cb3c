"""What a fit found, in numbers and words."""

from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np
import scipy.stats
from jaxtyping import Float

from .._files import write_json
from .experiment import Experiment
from .identifiability import Combination, Identifiability


class Fit(eqx.Module):
    """What ``fit`` found: ``model`` with the estimates in it, and how sure they are.

    ``values`` ± ``errors`` (p,) of the parameters ``names``; an error is infinite where the data do not determine the
    parameter alone: see ``identifiability.combinations`` for what they do determine. ``starts`` (segments, k) are the
    estimated starts, ``predicted`` the outputs of each experiment as simulated, ``residuals`` measured minus predicted,
    NaN where nothing was measured, ``noise`` the standard deviation of the residuals in units of ``sigma``, ``jump``
    the largest step between the end of one segment and the start of the next.
    """

    model: Any
    names: tuple[str, ...] = eqx.field(static=True)
    values: Float[np.ndarray, " p"]
    identifiability: Identifiability
    starts: Float[np.ndarray, "segments k"]
    experiments: tuple[Experiment, ...]
    predicted: tuple[Float[np.ndarray, "samples outputs"], ...]
    noise: float
    jump: float
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

    def interval(self, level: float = 0.95) -> Float[np.ndarray, "p 2"]:
        """Confidence intervals of the parameters, by Student's distribution."""
        counted = sum(int(e.measured.sum()) for e in self.experiments)
        freedom = max(1, counted - self.identifiability.rank)
        half = scipy.stats.t.ppf((1 + level) / 2, freedom) * self.errors
        return np.stack([self.values - half, self.values + half], axis=1)

    def __str__(self) -> str:
        lines = table(self.names, self.values, self.identifiability)
        rms = [np.sqrt(np.nanmean(np.concatenate(self.residuals) ** 2, axis=0))]
        lines.append("residuals, RMS per output: " + " ".join(f"{x:.3g}" for x in np.concatenate(rms)))
        if not self.converged:
            lines.append(f"not converged after {self.evaluations} evaluations")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """The table as plain numbers, None for what is not determined."""
        return estimates(self.names, self.values, self.identifiability) | {
            "noise": self.noise,
            "jump": self.jump,
            "evaluations": self.evaluations,
            "converged": self.converged,
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
    number = lambda x: float(x) if np.isfinite(x) else None
    return {
        "parameters": {
            name: {"estimate": float(value), "error": number(error)}
            for name, value, error in zip(names, values, known.errors, strict=True)
        },
        "combinations": [c._asdict() | {"text": str(c)} for c in known.combinations],
        "undetermined": [name for name, alone in zip(names, known.determined, strict=True) if not alone],
        "singular_values": known.singular_values.tolist(),
        "rank": known.rank,
        "covariance": [[number(x) for x in row] for row in known.covariance],
    }
