"""A motion at a glance: the mechanism, its coordinates, the forces of its constraints, and how well they held."""

import jax
import numpy as np
from matplotlib.figure import Figure

from .._trajectory import Trajectory, force_unit
from ..systems.base import AbstractMechanism
from .drawing import draw, outlines
from .style import COLOURS, label, panel


def histories(trajectory: Trajectory) -> Figure:
    """A single trajectory: a drawing for a mechanism of the gallery, q and Qᶜ with a panel for each unit, the
    residuals of the constraints, and the distance from the exact motion, the change of energy or the rank."""
    units = list(dict.fromkeys(unit for _, unit in trajectory.coordinates))
    drawn = isinstance(trajectory.model, AbstractMechanism)
    rows = len(units) + 1
    figure = Figure(figsize=(13.0 if drawn else 9.0, 2.4 * rows + 0.4), layout="constrained")
    grid = figure.add_gridspec(rows, 3 if drawn else 2, width_ratios=[1.35, 1, 1] if drawn else None)
    if drawn:
        lines = outlines(trajectory)
        draw(figure.add_subplot(grid[:, 0], projection="3d" if lines[0].shape[-1] == 3 else None), lines)
    axes = [[panel(figure.add_subplot(grid[row, column])) for column in (-2, -1)] for row in range(rows)]
    figure.suptitle(_title(trajectory), fontsize=11)

    t = np.asarray(trajectory.t)
    for (coordinate, force), unit in zip(axes, units, strict=False):
        for i, (name, own) in enumerate(trajectory.coordinates):
            if own == unit:
                style = {"color": COLOURS[i % len(COLOURS)], "linewidth": 1.4, "label": name}
                coordinate.plot(t, np.asarray(trajectory.q[:, i]), **style)
                force.plot(t, np.asarray(trajectory.constraint_force[:, i]), **style)
        label(coordinate, f"coordinate [{unit or '-'}]")
        label(force, f"constraint force [{force_unit(unit)}]")

    residuals, quality = axes[-1]
    for colour, level in zip(COLOURS, ("position", "velocity", "acceleration"), strict=False):
        value = getattr(trajectory, f"{level}_residual")
        if value.shape[-1]:
            _log(residuals, t, np.abs(np.asarray(value)).max(axis=-1), colour, level)
    label(residuals, "largest residual")
    _quality(quality, trajectory)
    return figure


def _quality(ax, trajectory):
    """The distance from the exact motion where that is known, else the change of energy, else the rank."""
    t, model = np.asarray(trajectory.t), trajectory.model
    if isinstance(model, AbstractMechanism) and model.reference(trajectory.t[0]) is not None:
        exact = np.asarray(jax.vmap(model.reference)(trajectory.t))
        _log(ax, t, np.abs(np.asarray(trajectory.q) - exact).max(axis=-1), COLOURS[0], None)
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
    ax.set_ylim(5e-19, max(1e-14, 10 * size.max(initial=0), ax.get_ylim()[1]))


def _title(trajectory):
    return f"{type(trajectory.model).__name__}: {trajectory.t.size} samples, {int(trajectory.steps)} steps"
