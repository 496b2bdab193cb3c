"""Map of an ensemble: a result of each member over two swept values."""

from typing import Any

import numpy as np
from matplotlib.colors import BoundaryNorm, ListedColormap, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from .._check import as_numpy, kind_of
from .._ensemble import Ensemble
from .._errors import InputError
from .._motion.result import REASONS, ended_well
from .style import COLOURS, label, panel

GREYS = ("#d9d9d9", "#9a9a9a", "#5c5c5c", "#1c1c1c")
"""Greys of failed members, one per reason of failure."""

MAX_CATEGORIES = 12
"""Largest number of distinct integer values that are shown as categories with a colour each."""


def ensemble_map(
    found: Ensemble, x: str | None = None, y: str | None = None, value: Any = None, name: str | None = None
) -> Figure:
    """Plot a value of each member over two swept parameters or initial values.

    A complete grid is drawn as an image, anything else as points. Failed members are grey, one shade per reason of
    failure.

    Parameters
    ----------
    found
        The ensemble.
    x, y
        Names of the swept values on the axes. Default: the first two. If only one value was swept, the vertical axis
        shows ``value``.
    value
        Value of each member (members,), or the name under which it was stored. Default: the first coordinate at the
        end of the motion.
    name
        Label of the value.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    InputError
        If ``x`` or ``y`` was not swept, or ``value`` has another shape.
    """
    if not isinstance(found, Ensemble):
        raise InputError(f"found must be what ukjax.ensemble returned, got {kind_of(found)}")
    over = found.over
    x = next(iter(over)) if x is None else x
    y = next((key for key in over if key != x), None) if y is None else y
    for which, axis_name in (("x", x), ("y", y)):
        if axis_name is not None and axis_name not in over:
            raise InputError(f"{which} must be one of the swept names {', '.join(over)}, got {axis_name!r}")
    if value is None and "q" not in found.names:
        value = next((key for key in found.names if key not in ("result", "steps", "last_t")), "last_t")
    if isinstance(value, str):
        name, value = name or value, found[value]
    if value is None:
        (coordinate, unit), value = found.coordinates[0], found.ends()[:, 0]
        name = name or f"{coordinate} at the end{f' [{unit}]' if unit else ''}"
    value = as_numpy("value", value)
    if value.shape != (found.members,):
        raise InputError(f"value must be a number for each of {found.members} members, got shape {value.shape}")
    result = found.result
    good = ended_well(result) & np.isfinite(value)

    figure = Figure(figsize=(7.5, 5.6), layout="constrained")
    ax = panel(figure.add_subplot())
    ax.grid(False)
    categories = np.unique(value[good]) if good.any() else np.zeros(0)
    categories = (
        categories
        if categories.size <= MAX_CATEGORIES and np.all(categories == np.round(categories)) and categories.size
        else None
    )
    colour_options: dict[str, Any] = {"cmap": "viridis"}
    if categories is not None:
        colours = [COLOURS[i % len(COLOURS)] for i in range(categories.size)]
        colour_options = {
            "cmap": ListedColormap(colours),
            "norm": BoundaryNorm(np.arange(categories.size + 1) - 0.5, categories.size),
        }
        value = np.where(good, np.searchsorted(categories, value), np.nan)
    elif good.any():
        colour_options |= dict(zip(("vmin", "vmax"), np.quantile(value[good], [0.002, 0.998]), strict=True))
    x_values, y_values = over[x], over[y] if y is not None else value
    axis_values = (np.unique(x_values), np.unique(y_values)) if y is not None else None
    is_full_grid = (
        axis_values is not None
        and axis_values[0].size * axis_values[1].size == found.members
        and min(map(np.size, axis_values)) > 1
    )
    failed_by_code = {int(code): result == code for code in np.unique(result[~ended_well(result)])}
    if axis_values is not None and is_full_grid:
        pixel = tuple(np.searchsorted(at, key) for at, key in zip(axis_values[::-1], (y_values, x_values), strict=True))
        picture = np.full((axis_values[1].size, axis_values[0].size), np.nan)
        picture[pixel] = np.where(good, value, np.nan)
        steps = [(at[-1] - at[0]) / (at.size - 1) / 2 for at in axis_values]
        extent = tuple(
            at[i] + sign * h for at, h in zip(axis_values, steps, strict=True) for i, sign in ((0, -1), (-1, 1))
        )
        artist = ax.imshow(
            picture, origin="lower", extent=extent, aspect="auto", interpolation="nearest", **colour_options
        )
        greys = np.full((*picture.shape, 4), 0.0)
        for i, has_code in enumerate(failed_by_code.values()):
            greys[pixel[0][has_code], pixel[1][has_code]] = to_rgba(GREYS[i % len(GREYS)])
        ax.imshow(greys, origin="lower", extent=extent, aspect="auto", interpolation="nearest")
    else:
        size = float(np.clip(3e4 / found.members, 0.3, 30))
        artist = ax.scatter(
            x_values[good], y_values[good], c=value[good], s=size, linewidths=0, rasterized=True, **colour_options
        )
        baseline = np.full(found.members, np.nanmin(value[good]) if good.any() else 0.0)
        for i, has_code in enumerate(failed_by_code.values()):
            height = baseline[has_code] if y is None else y_values[has_code]
            ax.scatter(x_values[has_code], height, c=GREYS[i % len(GREYS)], s=size, linewidths=0, rasterized=True)
    if failed_by_code:
        legend_texts = [
            f"{REASONS.get(code, 'is not done yet')} ({int(has_code.sum())})"
            for code, has_code in failed_by_code.items()
        ]
        figure.legend(
            [Patch(color=GREYS[i % len(GREYS)]) for i in range(len(legend_texts))],
            legend_texts,
            loc="outside lower center",
            fontsize=8,
        )
    if y is not None and good.any():
        bar = figure.colorbar(artist, ax=ax, label=name)
        if categories is not None:
            bar.set_ticks(list(range(categories.size)), labels=[f"{category:g}" for category in categories])
    label(ax, y if y is not None else str(name), x)
    done = int(np.sum(result >= 0))
    failed = done - int(np.sum(ended_well(result)))
    ax.set_title(f"{found.title}: {done} members, {failed} of them failed", fontsize=10)
    return figure
