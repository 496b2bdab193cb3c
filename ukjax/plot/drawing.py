"""The mechanism itself, at several instants, with the paths its ends trace."""

from typing import Any

import jax
import numpy as np

from .._check import kind_of
from .._haste import at_once
from .._motion.trajectory import Trajectory
from ..systems.base import AbstractMechanism
from .style import COLOURS

POSES = 7
EDGES = {"color": "#7f8c93", "linewidth": 0.6}
"""How the edges of solids are drawn."""


def check_trajectory(value: Any, single: bool = True) -> None:
    """``value`` is a trajectory, a ``single`` one where a figure has room for no more, or ``ValueError``."""
    if not isinstance(value, Trajectory):
        raise ValueError(f"trajectory must be what ukjax.simulate returned, got {kind_of(value)}")
    if single and value.t.ndim != 1:
        raise ValueError(
            f"trajectory must be a single one, got a batch of {len(value.t)}: take member i by "
            "jax.tree.map(lambda x: x[i], trajectory)"
        )


_outlines = at_once(lambda model, t, q: jax.vmap(model.outline)(t, q))
_solids = at_once(lambda model, t, q: jax.vmap(model.solids)(t, q))


def outlines(trajectory: Trajectory) -> list[np.ndarray]:
    """The lines of the mechanism at every sample: one array (samples, points, d) for each line."""
    model = trajectory.model
    if not callable(getattr(model, "outline", None)):
        raise ValueError(
            f"a drawing needs a model with outline(t, q), its lines at one instant, which {type(model).__name__} has "
            "not: subclass ukjax.systems.AbstractMechanism, or show q with ukjax.plot.histories"
        )
    assert isinstance(model, AbstractMechanism)
    return [np.asarray(line) for line in _outlines(model, trajectory.t, trajectory.q)]


def solids(trajectory: Trajectory) -> list[np.ndarray]:
    """The edges of what its bodies look like, in the same way; few mechanisms say that."""
    model = trajectory.model
    assert isinstance(model, AbstractMechanism)
    return [np.asarray(line) for line in _solids(model, trajectory.t, trajectory.q)]


def draw(ax: Any, lines: list[np.ndarray], edges: list[np.ndarray]) -> None:
    """Draw on ``ax``, of as many dimensions as the lines: the latest pose in full, earlier ones fading, the traces; the
    edges of solids in the latest pose."""
    for line in edges:
        ax.plot(*line[-1].T, **EDGES)
    for line in lines:
        ax.plot(*line[:, -1].T, color=COLOURS[1], linewidth=1.0)
    shown = np.linspace(0, len(lines[0]) - 1, POSES).round().astype(int)
    for age, i in enumerate(shown[::-1]):
        strength = 1.0 if age == 0 else 0.35 * (1 - age / POSES)
        width = 2.5 if age == 0 else 1.5
        for line in lines:
            ax.plot(*line[i].T, link_style(line), color=COLOURS[0], alpha=strength, linewidth=width, markersize=4)
    frame(ax, [*lines, *edges])


def link_style(line: np.ndarray) -> str:
    """Joints are marked, the points of a rim are not."""
    return "-o" if line.shape[1] <= 10 else "-"


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
