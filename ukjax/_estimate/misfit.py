"""Whether a model meets the data at all: what it leaves unexplained, beside the noise that the data show themselves."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from .experiment import Experiment

BEYOND_NOISE = 10.0
OF_SCATTER = 0.02  # below that, a model is good enough not to be doubted
FEWEST = 8  # samples from which on noise can be told from motion


def misfits(experiments: Sequence[Experiment], predicted: Sequence[Float[np.ndarray, "samples outputs"]]) -> list[str]:
    """A sentence on each output whose residuals are neither small nor noise."""
    found = []
    for output in range(experiments[0].y.shape[1]):
        values = [
            (e.y[:, output], p[:, output], e.measured[:, output]) for e, p in zip(experiments, predicted, strict=True)
        ]
        noise, counted = np.array([_noise(y[seen]) for y, _, seen in values]).sum(axis=0)
        residual = np.concatenate([(y - p)[seen] for y, p, seen in values])
        if not counted or not residual.size:
            continue
        rms, noise = np.sqrt(np.mean(residual**2)), np.sqrt(noise / counted)
        scatter = np.sqrt(
            np.mean(np.concatenate([(y - y[seen].mean())[seen] for y, _, seen in values if seen.any()]) ** 2)
        )
        if rms > OF_SCATTER * scatter and rms > BEYOND_NOISE * noise:
            found.append(
                f"the model does not meet the data: the residuals of output {output}, RMS {rms:.3g}, are "
                f"{100 * rms / scatter:.2g} % of its scatter, while its noise is some {noise:.1g}. Look for other units "
                "(mm for m, degrees for rad), another column, a parameter that should be free or a first guess too far "
                "away"
            )
    return found


def _noise(y):
    """The sum of squares of the noise in what is else a smooth curve, by third differences, and of how many values:
    of white noise of variance 1 they have variance 1 + 9 + 9 + 1."""
    if y.size < FEWEST:
        return 0.0, 0
    differences = np.diff(y, 3)
    return float(np.sum(differences**2) / 20), differences.size
