"""Figure of a fit: measured and simulated outputs, residuals, and identifiability."""

import numpy as np
from matplotlib.figure import Figure

from .._check import as_integer, kind_of
from .._errors import InputError
from .._estimate import Fit
from .._labels import title_of
from .style import COLOURS, label, panel

MAX_OUTPUTS = 6


def fitted(found: Fit, experiment: int = 0) -> Figure:
    """Plot one experiment of a fit: measured and simulated outputs, residuals, and identifiability.

    Measured outputs are dots, simulated ones lines; at most six outputs are shown. The bars are the singular values of
    the sensitivity divided by the noise: below 1, the data do not determine that direction in the parameters. The
    histogram shows the residuals of all experiments divided by σ.

    Parameters
    ----------
    found
        Result of ``ukjax.fit``.
    experiment
        Index of the experiment.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    InputError
        If ``experiment`` is out of range.
    """
    if not isinstance(found, Fit):
        raise InputError(f"found must be what ukjax.fit returned, got {kind_of(found)}")
    if as_integer("experiment", experiment) >= len(found.experiments):
        raise InputError(f"experiment must be from 0 to {len(found.experiments) - 1}, got {experiment}")
    e, predicted, residual = found.experiments[experiment], found.predicted[experiment], found.residuals[experiment]
    outputs = min(e.y.shape[1], MAX_OUTPUTS)
    figure = Figure(figsize=(11.0, 1.7 * (outputs + 1) + 0.6), layout="constrained")
    grid = figure.add_gridspec(outputs + 1, 2)
    for i in range(outputs):
        output_axes, residual_axes = (panel(figure.add_subplot(grid[i, column])) for column in (0, 1))
        measured, colour = e.measured[:, i], COLOURS[i % len(COLOURS)]
        output_axes.plot(e.t[measured], e.y[measured, i], ".", color=colour, markersize=3, alpha=0.45, label="measured")
        output_axes.plot(e.t, predicted[:, i], color=colour, linewidth=1.3, label="simulated")
        residual_axes.plot(e.t, residual[:, i], ".", color=colour, markersize=3)
        residual_axes.axhline(0.0, color="#444444", linewidth=0.8)
        label(output_axes, f"output {i + 1}")
        label(residual_axes, "measured − simulated")
    ax = panel(figure.add_subplot(grid[outputs, 0]))
    values = np.maximum(found.identifiability.singular_values, 1e-6)
    ax.bar(range(1, len(values) + 1), values, color=[COLOURS[0] if x > 1 else COLOURS[1] for x in values])
    ax.axhline(1.0, color="#444444", linewidth=0.8)
    ax.set_yscale("log")
    label(ax, "sensitivity / noise", "direction in parameters")
    ax = panel(figure.add_subplot(grid[outputs, 1]))
    normalised = np.concatenate([r.ravel() / s.ravel() for r, s in zip(found.residuals, _sigmas(found), strict=True)])
    ax.hist(normalised[np.isfinite(normalised)], bins=60, color=COLOURS[0])
    label(ax, "values", "residual / σ, all experiments")
    figure.suptitle(f"{title_of(found.model)}: experiment {experiment} of {len(found.experiments)}", fontsize=11)
    return figure


def _sigmas(found):
    return [e.sigma for e in found.experiments]
