"""Figure that compares the runs published in a paper with the correct one."""

from collections.abc import Callable

import numpy as np
from matplotlib.figure import Figure

from .._check import repr_of
from .._errors import InputError
from .._labels import force_unit
from .._motion.trajectory.trajectory import Trajectory
from .._view import check_trajectory
from ..systems.scara import Scara
from .histories import STYLES, draw_magnitudes, max_abs, units_of
from .scara import scara_figures
from .style import COLOURS, label, new_figure

FIGURES: dict[type, Callable[[dict[str, Trajectory]], Figure]] = {Scara: scara_figures}


def published(runs: dict[str, Trajectory]) -> Figure:
    """Compare the runs of ``AbstractMechanism.published``.

    For ``Scara`` the figure repeats those of the paper. For other systems it has one panel per unit for coordinates,
    constraint forces and controls, with one line style per run, and a panel with the residuals.

    Parameters
    ----------
    runs
        Trajectories by name. The last one, the correct run, sets the scale of the axes.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    InputError
        If ``runs`` is not a dictionary of single trajectories.
    """
    if not isinstance(runs, dict) or not runs:
        raise InputError(f"runs must be trajectories by name, {{'exact': trajectory}}, got {repr_of(runs)}")
    for run in runs.values():
        check_trajectory(run)
    model = type(next(iter(runs.values())).model)
    return FIGURES.get(model, compare_runs)(runs)


def compare_runs(runs: dict[str, Trajectory]) -> Figure:
    """Draw all runs in the same panels. The curves of a run that failed end at its last sample."""
    first = next(iter(runs.values()))
    units = units_of(first.coordinates, first.directions[: first.v.shape[-1] - len(first.states)])
    input_units = list(dict.fromkeys(unit for run in runs.values() for _, unit in run.inputs))
    count = 2 * len(units) + len(input_units) + 1
    figure, axes = new_figure(f"{first.title}: {', '.join(runs)}", (count + 1) // 2, 2, width=10.0)
    for unused in axes[count:]:
        unused.remove()
    panels = iter(axes)
    for unit, direction_unit in units:
        coordinate_axes, force_axes = next(panels), next(panels)
        if unit is None:
            coordinate_axes.remove()
        else:
            _overlay(coordinate_axes, runs, "q", "coordinates", unit)
            label(coordinate_axes, f"coordinate [{unit or '-'}]")
        if direction_unit is None:
            force_axes.remove()
        else:
            _overlay(force_axes, runs, "constraint_force", "directions", direction_unit)
            label(force_axes, f"constraint force [{force_unit(direction_unit)}]")
    for unit in input_units:
        ax = next(panels)
        _overlay(ax, runs, "control", "inputs", unit)
        label(ax, f"control [{unit or '-'}]")
    ax = next(panels)
    for colour, (name, run) in zip(COLOURS, runs.items(), strict=False):
        draw_magnitudes(ax, np.asarray(run.t), max_abs(run.residual), colour, name)
    label(ax, "largest residual")
    return figure


def _overlay(ax, runs, quantity, names, unit):
    """Plot with one colour per column and one line style per run.

    The last run, the correct one, sets the scale of the axis, so that a diverging run does not hide it.
    """
    low = high = 0.0
    for style, (name, run) in zip(STYLES, runs.items(), strict=False):
        values = getattr(run, quantity)
        if values is None:
            continue
        columns = [i for i, (_, column_unit) in enumerate(getattr(run, names)) if column_unit == unit]
        for colour_index, i in enumerate(columns):
            colour = COLOURS[colour_index % len(COLOURS)]
            ax.plot(
                run.t,
                np.asarray(values)[:, i],
                style,
                color=colour,
                linewidth=1.2,
                label=None if colour_index else name,
            )
        low, high = np.asarray(values)[:, columns].min(), np.asarray(values)[:, columns].max()
    span = max(high - low, 1e-9)
    bottom, top = ax.get_ylim()
    ax.set_ylim(max(bottom, low - span), min(top, high + span))
