"""A map of an ensemble: which start or which number leads where."""

from typing import Any

import numpy as np
from matplotlib.colors import BoundaryNorm, ListedColormap, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from .._check import as_numpy, kind_of
from .._ensemble import Ensemble
from .._motion.result import REASONS, ended_well
from .style import COLOURS, label, panel

GREYS = ("#d9d9d9", "#9a9a9a", "#5c5c5c", "#1c1c1c")
"""Of members that failed, a grey for each reason."""

FEW = 12
"""As many values as can be told apart by colours of their own."""


def ensemble_map(
    found: Ensemble, x: str | None = None, y: str | None = None, value: Any = None, name: str | None = None
) -> Figure:
    """What became of each member over two of the numbers that were swept, ``x`` and ``y`` (left out, the first two; of
    one alone, over that): as colours the ``value`` (members,), or what was kept under that name, ``name`` in the
    figure; left out, the end of the first coordinate. Members that failed have a colour for each reason. A whole grid
    is a picture, anything else points."""
    if not isinstance(found, Ensemble):
        raise ValueError(f"found must be what ukjax.ensemble returned, got {kind_of(found)}")
    over = found.over
    x = next(iter(over)) if x is None else x
    y = next((each for each in over if each != x), None) if y is None else y
    for which, given in (("x", x), ("y", y)):
        if given is not None and given not in over:
            raise ValueError(f"{which} must be one of what was swept, {', '.join(over)}, got {given!r}")
    if value is None and "q" not in found.names:
        value = next((each for each in found.names if each not in ("result", "steps", "last_t")), "last_t")
    if isinstance(value, str):
        name, value = name or value, found[value]
    if value is None:
        (coordinate, unit), value = found.coordinates[0], found.ends()[:, 0]
        name = name or f"{coordinate} at the end{f' [{unit}]' if unit else ''}"
    value = as_numpy("value", value)
    if value.shape != (found.members,):
        raise ValueError(f"value must be a number for each of {found.members} members, got shape {value.shape}")
    result = found.result
    good = ended_well(result) & np.isfinite(value)

    figure = Figure(figsize=(7.5, 5.6), layout="constrained")
    ax = panel(figure.add_subplot())
    ax.grid(False)
    kinds = np.unique(value[good]) if good.any() else np.zeros(0)
    kinds = kinds if kinds.size <= FEW and np.all(kinds == np.round(kinds)) and kinds.size else None
    how: dict[str, Any] = {"cmap": "viridis"}
    if kinds is not None:
        colours = [COLOURS[i % len(COLOURS)] for i in range(kinds.size)]
        how = {"cmap": ListedColormap(colours), "norm": BoundaryNorm(np.arange(kinds.size + 1) - 0.5, kinds.size)}
        value = np.where(good, np.searchsorted(kinds, value), np.nan)
    elif good.any():
        how |= dict(zip(("vmin", "vmax"), np.quantile(value[good], [0.002, 0.998]), strict=True))
    across, up = over[x], over[y] if y is not None else value
    points = (np.unique(across), np.unique(up)) if y is not None else None
    whole = points is not None and points[0].size * points[1].size == found.members and min(map(np.size, points)) > 1
    lost = {int(code): result == code for code in np.unique(result[~ended_well(result)])}
    if points is not None and whole:
        place = tuple(np.searchsorted(at, each) for at, each in zip(points[::-1], (up, across), strict=True))
        picture = np.full((points[1].size, points[0].size), np.nan)
        picture[place] = np.where(good, value, np.nan)
        steps = [(at[-1] - at[0]) / (at.size - 1) / 2 for at in points]
        extent = tuple(at[i] + sign * h for at, h in zip(points, steps, strict=True) for i, sign in ((0, -1), (-1, 1)))
        shown = ax.imshow(picture, origin="lower", extent=extent, aspect="auto", interpolation="nearest", **how)
        greys = np.full((*picture.shape, 4), 0.0)
        for i, where in enumerate(lost.values()):
            greys[place[0][where], place[1][where]] = to_rgba(GREYS[i % len(GREYS)])
        ax.imshow(greys, origin="lower", extent=extent, aspect="auto", interpolation="nearest")
    else:
        size = float(np.clip(3e4 / found.members, 0.3, 30))
        shown = ax.scatter(across[good], up[good], c=value[good], s=size, linewidths=0, rasterized=True, **how)
        nowhere = np.full(found.members, np.nanmin(value[good]) if good.any() else 0.0)
        for i, where in enumerate(lost.values()):
            height = nowhere[where] if y is None else up[where]
            ax.scatter(across[where], height, c=GREYS[i % len(GREYS)], s=size, linewidths=0, rasterized=True)
    if lost:
        said = [f"{REASONS.get(code, 'is not done yet')} ({int(where.sum())})" for code, where in lost.items()]
        figure.legend(
            [Patch(color=GREYS[i % len(GREYS)]) for i in range(len(said))], said, loc="outside lower center", fontsize=8
        )
    if y is not None and good.any():
        bar = figure.colorbar(shown, ax=ax, label=name)
        if kinds is not None:
            bar.set_ticks(list(range(kinds.size)), labels=[f"{kind:g}" for kind in kinds])
    label(ax, y if y is not None else str(name), x)
    done = int(np.sum(result >= 0))
    failed = done - int(np.sum(ended_well(result)))
    ax.set_title(f"{found.title}: {done} members, {failed} of them failed", fontsize=10)
    return figure
