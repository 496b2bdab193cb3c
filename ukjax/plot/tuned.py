"""Figure of a tuning result: errors and forces before and after."""

import numpy as np
from matplotlib.figure import Figure

from .._check import kind_of
from .._errors import InputError
from .._estimate import Tuned, following_error
from .._labels import title_of
from .style import COLOURS, label, new_figure


def tuned(found: Tuned) -> Figure:
    """Plot the norms of error and force over time, before and after tuning.

    Each initial state has a thin line; the thick line is their median. The error is that of ``following_cost``, or q
    if the system has no task. The force is the control, or the constraint force if there is no control.

    Parameters
    ----------
    found
        Result of ``ukjax.tune``.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    InputError
        If ``found`` is not a result of ``ukjax.tune``.
    """
    if not isinstance(found, Tuned):
        raise InputError(f"found must be what ukjax.tune returned, got {kind_of(found)}")
    figure, axes = new_figure(_title(found), 1, 2, height=3.4)
    for motion, colour, name in ((found.before, COLOURS[1], "before"), (found.after, COLOURS[0], "after")):
        error = following_error(motion)
        has_task = error.shape[-1] > 0
        force = motion.constraint_force if motion.control is None else motion.control
        for ax, value in zip(axes, (error if has_task else motion.q, force), strict=True):
            norm = np.maximum(np.linalg.norm(np.asarray(value), axis=-1), 1e-16)
            t = np.asarray(motion.t)[0]
            ax.semilogy(t, norm.T, color=colour, linewidth=0.5, alpha=0.35)
            ax.semilogy(t, np.median(norm, axis=0), color=colour, linewidth=1.8, label=name)
        label(axes[0], "|error|" if has_task else "|q|")
        label(axes[1], "|constraint force|" if motion.control is None else "|u|")
    return figure


def _title(found):
    parameters = zip(found.names, found.first_values, found.values, strict=True)
    changes = ", ".join(f"{name} {before:.3g} → {after:.3g}" for name, before, after in parameters)
    return f"{title_of(found.model)}: {changes}"
