"""The mechanism itself, at several instants, with the path of its tool."""

from typing import Any

import jax
import numpy as np

from .._trajectory import Trajectory
from ..systems.base import AbstractMechanism
from .style import COLOURS

POSES = 7


def draw(ax: Any, trajectory: Trajectory) -> None:
    """Draw on the three-dimensional ``ax``: the latest pose in full, earlier ones fading, the tool's path."""
    model = trajectory.model
    assert isinstance(model, AbstractMechanism)
    lines = np.asarray(jax.vmap(model.outline)(trajectory.q))
    ax.plot(*lines[:, -1].T, color=COLOURS[1], linewidth=1.2)
    shown = np.linspace(0, len(lines) - 1, POSES).round().astype(int)
    for age, i in enumerate(shown[::-1]):
        strength = 1.0 if age == 0 else 0.35 * (1 - age / POSES)
        ax.plot(*lines[i].T, "-o", color=COLOURS[0], alpha=strength, linewidth=2.5 if age == 0 else 1.5, markersize=4)
    low, high = lines.min(axis=(0, 1)), lines.max(axis=(0, 1))
    middle, half = (low + high) / 2, max((high - low).max() / 2, 1e-9)
    for axis, centre, name in zip("xyz", middle, ("x [m]", "y [m]", "z [m]"), strict=True):
        getattr(ax, f"set_{axis}lim")(centre - half, centre + half)
        getattr(ax, f"set_{axis}label")(name, fontsize=9)
    ax.set_box_aspect((1, 1, 1))
    ax.tick_params(labelsize=7)
    ax.view_init(elev=24, azim=-58)
