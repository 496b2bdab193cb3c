"""The mechanism itself, at several instants, with the paths its ends trace."""

from typing import Any

import numpy as np

from .._view import Solid, is_rim
from .style import COLOURS

POSES = 7
EDGES = {"color": "#7f8c93", "linewidth": 0.6}
"""How the edges of solids are drawn."""


def draw(ax: Any, lines: list[np.ndarray], bodies: list[Solid]) -> None:
    """Draw on ``ax``, of as many dimensions as the lines: the latest pose in full, earlier ones fading, the traces; the
    edges of solids in the latest pose."""
    for body in bodies:
        ax.plot(*body.at(-1).T, **EDGES)
    for line in lines:
        ax.plot(*line[:, -1].T, color=COLOURS[1], linewidth=1.0)
    shown = np.linspace(0, len(lines[0]) - 1, POSES).round().astype(int)
    for age, i in enumerate(shown[::-1]):
        strength = 1.0 if age == 0 else 0.35 * (1 - age / POSES)
        width = 2.5 if age == 0 else 1.5
        for line in lines:
            ax.plot(*line[i].T, link_style(line), color=COLOURS[0], alpha=strength, linewidth=width, markersize=4)
    frame(ax, [*lines, *(body.corners() for body in bodies)])


def link_style(line: np.ndarray) -> str:
    """Joints are marked, the points of a rim are not."""
    return "-" if is_rim(line) else "-o"


def frame(ax: Any, lines: list[np.ndarray]) -> None:
    """Axes that hold all poses, with equal scales."""
    points = np.concatenate([line.reshape(-1, line.shape[-1]) for line in lines])
    low, high = np.nanmin(points, axis=0), np.nanmax(points, axis=0)
    middle, half = (low + high) / 2, max((high - low).max() / 2, 1e-9) * 1.05
    for axis, centre in zip("xyz", middle, strict=False):
        getattr(ax, f"set_{axis}lim")(centre - half, centre + half)
        getattr(ax, f"set_{axis}label")(f"{axis} [m]", fontsize=9)
    ax.tick_params(labelsize=7)
    if points.shape[1] == 3:
        ax.set_box_aspect((1, 1, 1), zoom=0.88)
        ax.view_init(elev=24, azim=-58)
    else:
        ax.set_aspect("equal")
