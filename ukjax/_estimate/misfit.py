"""Whether a model meets the data at all: what it leaves unexplained, beside the noise that the data show themselves."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from .experiment import Experiment

MIN_NOISE_RATIO = 10.0
MIN_SCATTER_RATIO = 0.02  # below that, a model is good enough not to be doubted
MIN_SAMPLES = 8  # samples from which on noise can be told from motion


def misfit(experiments: Sequence[Experiment], predicted: Sequence[Float[np.ndarray, "samples outputs"]]) -> str:
    """A sentence on the output whose residuals are the largest beside its scatter, if they are neither small nor
    noise; else nothing."""
    worst, words = MIN_SCATTER_RATIO, ""
    for output in range(experiments[0].y.shape[1]):
        seen = [e.measured[:, output] for e in experiments]
        y = measured_values(experiments, output)
        noise = apparent_noise(y)
        residual = [p[at, output] - x for p, at, x in zip(predicted, seen, y, strict=True)]
        rms, scatter = rms_of(residual), scatter_of(y)
        if noise is not None and rms > MIN_NOISE_RATIO * noise and rms > worst * scatter:
            worst = rms / scatter if scatter else np.inf
            words = (
                f"the model does not meet the data: the residuals of output {output}, RMS {rms:.3g}, are {worst:.2g} "
                f"times its scatter, while its noise is some {noise:.1g}. Look for other units (mm for m, degrees for "
                "rad), another column, a parameter that should be free, or a first guess too far away"
            )
    return words


def measured_values(experiments: Sequence[Experiment], output: int) -> list[Float[np.ndarray, " measured"]]:
    """What was measured of one output in each experiment."""
    return [e.y[e.measured[:, output], output] for e in experiments]


def rms_of(parts: Sequence[Float[np.ndarray, " any"]]) -> float:
    """The root mean square of all values, 0 if there are none."""
    return float(np.sqrt(np.mean(np.concatenate(parts) ** 2))) if any(part.size for part in parts) else 0.0


def scatter_of(parts: Sequence[Float[np.ndarray, " any"]]) -> float:
    """The standard deviation of values about the mean of their own part."""
    return rms_of([x - x.mean() for x in parts if x.size])


def apparent_noise(parts: Sequence[Float[np.ndarray, " any"]]) -> float | None:
    """The size of the noise in what are else smooth curves, by third differences: of noise of variance 1 they have the
    variance 1 + 9 + 9 + 1. None where there are too few values."""
    parts = [np.diff(part, 3) / np.sqrt(20) for part in parts if part.size >= MIN_SAMPLES]
    return rms_of(parts) if parts else None
