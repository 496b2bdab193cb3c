"""Runs of a paper's own start and law beside the correct one."""

from collections.abc import Callable

import numpy as np
from matplotlib.figure import Figure

from .._check import repr_of
from .._labels import force_unit
from .._motion.trajectory.trajectory import Trajectory
from .._view import check_trajectory
from ..systems.scara import Scara
from .histories import STYLES, draw_sizes, largest, units_of
from .scara import scara_figures
from .style import COLOURS, label, new_figure

FIGURES: dict[type, Callable[[dict[str, Trajectory]], Figure]] = {Scara: scara_figures}


def published(runs: dict[str, Trajectory]) -> Figure:
    """The runs of ``AbstractMechanism.published`` by name: the paper's figures where there are some of our own, else
    one panel per unit for coordinates, constraint forces and controls, a line style per run, and the residuals."""
    if not isinstance(runs, dict) or not runs:
        raise ValueError(f"runs must be trajectories by name, {{'exact': trajectory}}, got {repr_of(runs)}")
    for run in runs.values():
        check_trajectory(run)
    model = type(next(iter(runs.values())).model)
    return FIGURES.get(model, compared)(runs)


def compared(runs: dict[str, Trajectory]) -> Figure:
    """All runs in the same panels. A run that stopped early ends where it stopped."""
    first = next(iter(runs.values()))
    units = units_of(first.coordinates, first.directions)
    driven = list(dict.fromkeys(unit for run in runs.values() for _, unit in run.inputs))
    count = 2 * len(units) + len(driven) + 1
    figure, axes = new_figure(f"{first.title}: {', '.join(runs)}", (count + 1) // 2, 2, width=10.0)
    for unused in axes[count:]:
        unused.remove()
    panels = iter(axes)
    for unit, along in units:
        of_q, of_force = next(panels), next(panels)
        if unit is None:
            of_q.remove()
        else:
            _overlay(of_q, runs, "q", "coordinates", unit)
            label(of_q, f"coordinate [{unit or '-'}]")
        if along is None:
            of_force.remove()
        else:
            _overlay(of_force, runs, "constraint_force", "directions", along)
            label(of_force, f"constraint force [{force_unit(along)}]")
    for unit in driven:
        ax = next(panels)
        _overlay(ax, runs, "control", "inputs", unit)
        label(ax, f"control [{unit or '-'}]")
    ax = next(panels)
    for colour, (name, run) in zip(COLOURS, runs.items(), strict=False):
        draw_sizes(ax, np.asarray(run.t), largest(run.residual), colour, name)
    label(ax, "largest residual")
    return figure


def _overlay(ax, runs, what, names, unit):
    """One colour per column, one line style per run. The last run, the correct one, sets the scale: one that runs away
    shall not hide it."""
    low = high = 0.0
    for style, (name, run) in zip(STYLES, runs.items(), strict=False):
        values = getattr(run, what)
        if values is None:
            continue
        columns = [i for i, (_, own) in enumerate(getattr(run, names)) if own == unit]
        for place, i in enumerate(columns):
            colour = COLOURS[place % len(COLOURS)]
            ax.plot(run.t, np.asarray(values)[:, i], style, color=colour, linewidth=1.2, label=None if place else name)
        low, high = np.asarray(values)[:, columns].min(), np.asarray(values)[:, columns].max()
    span = max(high - low, 1e-9)
    bottom, top = ax.get_ylim()
    ax.set_ylim(max(bottom, low - span), min(top, high + span))
