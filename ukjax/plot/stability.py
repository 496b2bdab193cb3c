"""Chart of stability over two numbers."""

import numpy as np
from matplotlib.figure import Figure

from .._analysis import StabilityChart
from .._check import kind_of
from .._errors import InputError
from .style import COLOURS, label, panel


def stability(chart: StabilityChart, x: str = "x", y: str = "y") -> Figure:
    """Plot a stability chart: the growth in colours, and the boundary of stability as a line.

    Parameters
    ----------
    chart
        Result of ``ukjax.stability_chart``.
    x, y
        Labels of the axes.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    InputError
        If ``chart`` is something else.
    """
    if not isinstance(chart, StabilityChart):
        raise InputError(f"chart must be what ukjax.stability_chart returned, got {kind_of(chart)}")
    figure = Figure(figsize=(6.0, 4.5), layout="constrained")
    axes = panel(figure.add_subplot())
    growth, stable = np.asarray(chart.growth), np.asarray(chart.stable)
    image = axes.pcolormesh(np.asarray(chart.x), np.asarray(chart.y), growth, cmap="cividis", shading="nearest")
    name = "growth in a period, ln |μ|" if chart.multipliers else "growth [1/s]"
    figure.colorbar(image, ax=axes, label=name)
    if stable.any() and not stable.all() and min(stable.shape) > 1:
        lines = np.asarray(chart.x), np.asarray(chart.y), stable.astype(float)
        axes.contour(*lines, levels=[0.5], colors=COLOURS[1], linewidths=1.2)
    label(axes, y, x)
    return figure
