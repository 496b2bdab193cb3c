"""Check whether a model explains the data: compare the residuals with the noise that is apparent in the data."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from .experiment import Experiment

MIN_NOISE_RATIO = 10.0  # residuals over noise, above which a model is reported
MIN_SCATTER_RATIO = 0.02  # residuals over scatter of the output, below which a model is never reported
MIN_SAMPLES = 8  # fewest samples from which the noise is estimated


def misfit(experiments: Sequence[Experiment], predicted: Sequence[Float[np.ndarray, "samples outputs"]]) -> str:
    """A warning about the output with the largest ratio of residuals to scatter, if they are neither small nor noise;
    else an empty string."""
    worst, text = MIN_SCATTER_RATIO, ""
    for output in range(experiments[0].y.shape[1]):
        measured = [e.measured[:, output] for e in experiments]
        y = measured_values(experiments, output)
        noise = apparent_noise(y)
        residual = [p[rows, output] - values for p, rows, values in zip(predicted, measured, y, strict=True)]
        rms, scatter = rms_of(residual), scatter_of(y)
        if noise is not None and rms > MIN_NOISE_RATIO * noise and rms > worst * scatter:
            worst = rms / scatter if scatter else np.inf
            text = (
                f"the model does not fit the data: the residuals of output {output}, RMS {rms:.3g}, are {worst:.2g} "
                f"times its scatter, while its noise is some {noise:.1g}. Look for other units (mm for m, degrees for "
                "rad), another column, a parameter that should be free, or a first guess too far away"
            )
    return text


def measured_values(experiments: Sequence[Experiment], output: int) -> list[Float[np.ndarray, " measured"]]:
    """Measured values of one output, for each experiment."""
    return [e.y[e.measured[:, output], output] for e in experiments]


def rms_of(parts: Sequence[Float[np.ndarray, " any"]]) -> float:
    """Root mean square of all values, 0 if there are none."""
    return float(np.sqrt(np.mean(np.concatenate(parts) ** 2))) if any(part.size for part in parts) else 0.0


def scatter_of(parts: Sequence[Float[np.ndarray, " any"]]) -> float:
    """Standard deviation of the values about the mean of their own part."""
    return rms_of([x - x.mean() for x in parts if x.size])


def apparent_noise(parts: Sequence[Float[np.ndarray, " any"]]) -> float | None:
    """Standard deviation of the noise on smooth curves, from third differences; None if there are too few values.

    Third differences of noise with variance 1 have the variance 1 + 9 + 9 + 1 = 20.
    """
    parts = [np.diff(part, 3) / np.sqrt(20) for part in parts if part.size >= MIN_SAMPLES]
    return rms_of(parts) if parts else None
