"""What tuning changed: how well the motions follow, and what that costs."""

import numpy as np
from matplotlib.figure import Figure

from .._check import kind_of
from .._estimate import Tuned, following_error
from .._labels import title_of
from .style import COLOURS, label, new_figure


def tuned(found: Tuned) -> Figure:
    """Sizes of error and force over time, before and after: a thin line for each start, a thick one for their median.
    The error is that of ``following_cost``, or q where nothing has to be followed."""
    if not isinstance(found, Tuned):
        raise ValueError(f"found must be what ukjax.tune returned, got {kind_of(found)}")
    figure, axes = new_figure(_title(found), 1, 2, height=3.4)
    for motion, colour, name in ((found.before, COLOURS[1], "before"), (found.after, COLOURS[0], "after")):
        error = following_error(motion)
        followed = error.shape[-1] > 0
        force = motion.constraint_force if motion.control is None else motion.control
        for ax, value in zip(axes, (error if followed else motion.q, force), strict=True):
            size = np.maximum(np.linalg.norm(np.asarray(value), axis=-1), 1e-16)
            t = np.asarray(motion.t)[0]
            ax.semilogy(t, size.T, color=colour, linewidth=0.5, alpha=0.35)
            ax.semilogy(t, np.median(size, axis=0), color=colour, linewidth=1.8, label=name)
        label(axes[0], "|error|" if followed else "|q|")
        label(axes[1], "|constraint force|" if motion.control is None else "|u|")
    return figure


def _title(found):
    gains = zip(found.names, found.first_values, found.values, strict=True)
    changes = ", ".join(f"{name} {before:.3g} → {after:.3g}" for name, before, after in gains)
    return f"{title_of(found.model)}: {changes}"
