"""Whether a model meets the data at all: what it leaves unexplained, beside the noise that the data show themselves."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from .experiment import Experiment

BEYOND_NOISE = 10.0
OF_SCATTER = 0.02  # below that, a model is good enough not to be doubted
FEWEST = 8  # samples from which on noise can be told from motion


def misfit(experiments: Sequence[Experiment], predicted: Sequence[Float[np.ndarray, "samples outputs"]]) -> str:
    """A sentence on the output whose residuals are the largest beside its scatter, if they are neither small nor
    noise; else nothing."""
    worst, words = OF_SCATTER, ""
    for output in range(experiments[0].y.shape[1]):
        seen = [e.measured[:, output] for e in experiments]
        y = [e.y[at, output] for e, at in zip(experiments, seen, strict=True)]
        noise = _noise(y)
        residual = [p[at, output] - x for p, at, x in zip(predicted, seen, y, strict=True)]
        rms, scatter = _rms(residual), _rms([x - x.mean() for x in y if x.size])
        if noise is not None and rms > BEYOND_NOISE * noise and rms > worst * scatter:
            worst = rms / scatter if scatter else np.inf
            words = (
                f"the model does not meet the data: the residuals of output {output}, RMS {rms:.3g}, are {worst:.2g} "
                f"times its scatter, while its noise is some {noise:.1g}. Look for other units (mm for m, degrees for "
                "rad), another column, a parameter that should be free, or a first guess too far away"
            )
    return words


def _rms(parts):
    return float(np.sqrt(np.mean(np.concatenate(parts) ** 2))) if any(part.size for part in parts) else 0.0


def _noise(parts):
    """The size of the noise in what are else smooth curves, by third differences: of noise of variance 1 they have the
    variance 1 + 9 + 9 + 1. None where there are too few values."""
    parts = [np.diff(part, 3) / np.sqrt(20) for part in parts if part.size >= FEWEST]
    return _rms(parts) if parts else None
