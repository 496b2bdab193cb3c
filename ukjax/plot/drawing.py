"""Draw a mechanism at several instants, with the traces of the ends of its lines."""

from typing import Any

import numpy as np

from .._view import Solid, is_rim
from .style import COLOURS

POSE_COUNT = 7
EDGE_STYLE = {"color": "#7f8c93", "linewidth": 0.6}
"""Line style of the edges of solids."""


def draw(ax: Any, lines: list[np.ndarray], bodies: list[Solid]) -> None:
    """Draw the last pose in full, earlier poses with fading lines, and the traces.

    ``ax`` must have the dimension of the lines, arrays (samples, points, d). Edges of ``bodies`` are drawn in the last
    pose only.
    """
    for body in bodies:
        ax.plot(*body.at(-1).T, **EDGE_STYLE)
    for line in lines:
        ax.plot(*line[:, -1].T, color=COLOURS[1], linewidth=1.0)
    samples = np.linspace(0, len(lines[0]) - 1, POSE_COUNT).round().astype(int)
    for age, i in enumerate(samples[::-1]):
        alpha = 1.0 if age == 0 else 0.35 * (1 - age / POSE_COUNT)
        width = 2.5 if age == 0 else 1.5
        for line in lines:
            ax.plot(*line[i].T, link_style(line), color=COLOURS[0], alpha=alpha, linewidth=width, markersize=4)
    set_limits(ax, [*lines, *(body.corners() for body in bodies)])


def link_style(line: np.ndarray) -> str:
    """Return the line style: points are marked as joints, except on a rim."""
    return "-" if is_rim(line) else "-o"


def set_limits(ax: Any, lines: list[np.ndarray]) -> None:
    """Set axis limits that contain all poses, with equal scales and labels [m]."""
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
