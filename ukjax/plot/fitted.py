"""A fit at a glance: measured and simulated outputs, what is left, and what the data tell."""

import numpy as np
from matplotlib.figure import Figure

from .._check import as_integer, kind_of
from .._estimate import Fit
from .._labels import title_of
from .style import COLOURS, label, panel

MOST_OUTPUTS = 6


def fitted(found: Fit, experiment: int = 0) -> Figure:
    """One experiment of a fit: its outputs as measured (dots) and as simulated (lines), the residuals, and the singular
    values of the sensitivity, below 1 where the data tell nothing."""
    if not isinstance(found, Fit):
        raise ValueError(f"found must be what ukjax.fit returned, got {kind_of(found)}")
    if as_integer("experiment", experiment) >= len(found.experiments):
        raise ValueError(f"experiment must be from 0 to {len(found.experiments) - 1}, got {experiment}")
    e, predicted, residual = found.experiments[experiment], found.predicted[experiment], found.residuals[experiment]
    shown = min(e.y.shape[1], MOST_OUTPUTS)
    figure = Figure(figsize=(11.0, 1.7 * (shown + 1) + 0.6), layout="constrained")
    grid = figure.add_gridspec(shown + 1, 2)
    for i in range(shown):
        here, left = (panel(figure.add_subplot(grid[i, column])) for column in (0, 1))
        seen, colour = e.measured[:, i], COLOURS[i % len(COLOURS)]
        here.plot(e.t[seen], e.y[seen, i], ".", color=colour, markersize=3, alpha=0.45, label="measured")
        here.plot(e.t, predicted[:, i], color=colour, linewidth=1.3, label="simulated")
        left.plot(e.t, residual[:, i], ".", color=colour, markersize=3)
        left.axhline(0.0, color="#444444", linewidth=0.8)
        label(here, f"output {i + 1}")
        label(left, "measured − simulated")
    ax = panel(figure.add_subplot(grid[shown, 0]))
    values = np.maximum(found.identifiability.singular_values, 1e-6)
    ax.bar(range(1, len(values) + 1), values, color=[COLOURS[0] if x > 1 else COLOURS[1] for x in values])
    ax.axhline(1.0, color="#444444", linewidth=0.8)
    ax.set_yscale("log")
    label(ax, "sensitivity / noise", "direction in parameters")
    ax = panel(figure.add_subplot(grid[shown, 1]))
    left = np.concatenate([r.ravel() / s.ravel() for r, s in zip(found.residuals, _sigmas(found), strict=True)])
    ax.hist(left[np.isfinite(left)], bins=60, color=COLOURS[0])
    label(ax, "values", "residual / σ, all experiments")
    figure.suptitle(f"{title_of(found.model)}: experiment {experiment} of {len(found.experiments)}", fontsize=11)
    return figure


def _sigmas(found):
    return [e.sigma for e in found.experiments]
