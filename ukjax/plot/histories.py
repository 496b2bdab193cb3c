"""A motion at a glance: coordinates, forces of the constraints, residuals, energy or distance from the exact."""

import jax
import numpy as np
from matplotlib.figure import Figure

from .._trajectory import Trajectory, force_unit
from ..systems.base import AbstractMechanism
from .style import COLOURS, label, new_figure


def histories(trajectory: Trajectory) -> Figure:
    """Time histories of a single trajectory: one panel per unit for q and for Qᶜ, and how well the constraints held."""
    t = np.asarray(trajectory.t)
    units = list(dict.fromkeys(unit for _, unit in trajectory.coordinates))
    figure, axes = new_figure(_title(trajectory), len(units) + 1, 2)
    for row, unit in enumerate(units):
        for i, (name, own) in enumerate(trajectory.coordinates):
            if own == unit:
                style = {"color": COLOURS[i % len(COLOURS)], "linewidth": 1.4, "label": name}
                axes[2 * row].plot(t, np.asarray(trajectory.q[:, i]), **style)
                axes[2 * row + 1].plot(t, np.asarray(trajectory.constraint_force[:, i]), **style)
        label(axes[2 * row], f"coordinate [{unit or '-'}]")
        label(axes[2 * row + 1], f"constraint force [{force_unit(unit)}]")

    levels = ("position_residual", "velocity_residual", "acceleration_residual")
    for colour, level in zip(COLOURS, levels, strict=False):
        value = getattr(trajectory, level)
        if value is not None and value.shape[-1]:
            size = np.abs(np.asarray(value)).max(axis=-1)
            _log(axes[-2], t, size, colour, level.split("_")[0])
    label(axes[-2], "largest residual")
    _quality(axes[-1], trajectory)
    return figure


def _quality(ax, trajectory):
    """The distance from the exact motion where that is known, else the change of energy, else the rank."""
    t, model = np.asarray(trajectory.t), trajectory.model
    if isinstance(model, AbstractMechanism) and model.reference(trajectory.t[0]) is not None:
        exact = jax.vmap(model.reference)(trajectory.t)
        _log(ax, t, np.abs(np.asarray(trajectory.q - exact)).max(axis=-1), COLOURS[0], None)
        label(ax, "largest error of q")
    elif trajectory.energy is not None:
        ax.plot(t, np.asarray(trajectory.energy - trajectory.energy[0]), color=COLOURS[0], linewidth=1.2)
        label(ax, "change of energy [J]")
    else:
        ax.plot(t, np.asarray(trajectory.rank), color=COLOURS[0], linewidth=1.2)
        label(ax, "rank of A")


def _log(ax, t, size, colour, name):
    """Sizes near rounding on a logarithmic axis: dots, since there is no curve in them; zeros lie on its floor."""
    ax.semilogy(t, np.maximum(size, 1e-18), ".", color=colour, markersize=2, label=name)
    ax.set_ylim(bottom=5e-19)


def _title(trajectory):
    return f"{type(trajectory.model).__name__}: {trajectory.t.size} samples, {int(trajectory.steps)} steps"
