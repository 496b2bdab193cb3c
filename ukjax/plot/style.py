"""Common style of all figures: size, colours, axis labels with units, and saving."""

import os
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .._check import as_path, kind_of
from .._errors import InputError
from .._files import write_whole

COLOURS = ("#0b6e99", "#d1495b", "#3c8d40", "#8d5a97", "#b8860b", "#444444")
DPI = 150


def panel(ax: Axes) -> Axes:
    """Apply the common style to axes and return them."""
    ax.grid(True, color="#dddddd", linewidth=0.6)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=8)
    return ax


def new_figure(
    title: str, rows: int, columns: int, width: float = 9.0, height: float = 2.4
) -> tuple[Figure, list[Axes]]:
    """Create a figure of ``rows`` × ``columns`` panels with independent axes."""
    figure = Figure(figsize=(width, height * rows + 0.5), layout="constrained")
    figure.suptitle(title, fontsize=11)
    return figure, [panel(figure.add_subplot(rows, columns, i + 1)) for i in range(rows * columns)]


def label(ax: Axes, y: str, x: str = "t [s]") -> None:
    """Set the axis labels, and add a legend if any curve has a label."""
    ax.set_xlabel(x, fontsize=9)
    ax.set_ylabel(y, fontsize=9)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(fontsize=8, framealpha=0.85, edgecolor="none", ncols=2)


def save(figure: Figure, path: str | os.PathLike) -> Path:
    """Write a figure to a file. The file is replaced only after all of it has been written.

    Parameters
    ----------
    figure
        Figure of ``ukjax.plot`` or of matplotlib.
    path
        File name, ending in .png, .pdf or .svg.

    Returns
    -------
    Path
        The path.

    Raises
    ------
    InputError
        If ``figure`` is not a figure, or ``path`` has another ending.
    """
    if not isinstance(figure, Figure):
        raise InputError(f"figure must be one of ukjax.plot or matplotlib, got {kind_of(figure)}")
    path = as_path(path)
    supported = figure.canvas.get_supported_filetypes()
    if path.suffix.lstrip(".") not in supported:
        raise InputError(f"a figure must end in .png, .pdf or .svg, got {str(path)!r}")
    write_whole(path, lambda part: figure.savefig(part, dpi=DPI))
    return path
