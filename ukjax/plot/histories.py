"""A motion at a glance: the mechanism, its coordinates, the forces of constraints and actuators, how well they held."""

from itertools import cycle, zip_longest

import jax
import numpy as np
from matplotlib.figure import Figure

from .._labels import Named, force_unit
from .._motion.trajectory.trajectory import Trajectory
from .._view import check_trajectory, outlines, solids
from ..systems.base import AbstractMechanism
from .drawing import draw
from .style import COLOURS, label, panel

STYLES = ("-", "--", ":", "-.")


def histories(trajectory: Trajectory) -> Figure:
    """A single trajectory: a drawing for a mechanism of the gallery, q and Qᶜ with a panel for each unit, the
    actuators where there are any, the residuals, and the distance from the exact motion, the change of energy or the
    rank."""
    check_trajectory(trajectory)
    units = units_of(trajectory.coordinates, trajectory.directions)
    driven = list(dict.fromkeys(unit for _, unit in trajectory.inputs))
    drawn = isinstance(trajectory.model, AbstractMechanism)
    rows = len(units) + (len(driven) + 1) // 2 + 1
    figure = Figure(figsize=(13.0 if drawn else 9.0, 2.4 * max(rows, 2) + 0.4), layout="constrained")
    grid = figure.add_gridspec(rows, 3 if drawn else 2, width_ratios=[1.35, 1, 1] if drawn else None)
    if drawn:
        lines = outlines(trajectory)
        ax = figure.add_subplot(grid[:, 0], projection="3d" if lines[0].shape[-1] == 3 else None)
        draw(ax, lines, solids(trajectory))
    axes = [[panel(figure.add_subplot(grid[row, column])) for column in (-2, -1)] for row in range(rows)]
    figure.suptitle(_title(trajectory), fontsize=11)

    t = np.asarray(trajectory.t)
    for (coordinate, force), (unit, along) in zip(axes, units, strict=False):
        if unit is None:
            coordinate.remove()
        else:
            draw_unit(coordinate, t, trajectory.q, trajectory.coordinates, unit)
            label(coordinate, f"coordinate [{unit or '-'}]")
        if along is None:
            force.remove()
            continue
        if _is_bound(trajectory):
            draw_unit(force, t, trajectory.constraint_force, trajectory.directions, along)
        else:  # M q̈ − Q would be rounding
            _say(force, "no constraints")
        label(force, f"constraint force [{force_unit(along)}]")
    below = iter(ax for row in axes[len(units) :] for ax in row)
    for unit in driven:
        ax = next(below)
        draw_unit(ax, t, trajectory.control, trajectory.inputs, unit)
        label(ax, f"control [{unit or '-'}]")
    if len(driven) % 2:
        _task(next(below), trajectory)
    _residuals(next(below), trajectory)
    _quality(next(below), trajectory)
    return figure


def units_of(coordinates: Named, directions: Named) -> list[tuple[str | None, str | None]]:
    """The units of coordinates, and of what velocities and forces are along, side by side; None where there are no more
    of one of them."""
    each = (dict.fromkeys(unit for _, unit in named) for named in (coordinates, directions))
    coordinate, along = each
    return list(zip_longest(coordinate, along))


def draw_unit(ax, t, values, named, unit):
    """The columns of ``values`` whose unit this is, no two alike."""
    looks = cycle([(colour, style) for style in STYLES for colour in COLOURS])
    for i, (name, own) in enumerate(named):
        if own == unit:
            colour, style = next(looks)
            ax.plot(t, np.asarray(values)[:, i], style, color=colour, linewidth=1.4, label=name)


def largest(value) -> np.ndarray:
    """The size of the largest entry at each sample; 0 where there is none."""
    return np.abs(np.asarray(value)).max(axis=-1, initial=0.0)


def draw_sizes(ax, t, size, colour, name):
    """Sizes near rounding on a logarithmic axis: dots, since there is no curve in them; zeros lie on its floor."""
    ax.semilogy(t, np.maximum(size, 1e-18), ".", color=colour, markersize=2, label=name)
    ax.set_ylim(5e-19, max(1e-14, 10 * size.max(initial=0), ax.get_ylim()[1]))


def _residuals(ax, trajectory):
    for colour, level in zip(COLOURS, ("position", "velocity", "acceleration"), strict=False):
        value = getattr(trajectory, f"{level}_residual")
        if value.shape[-1]:
            draw_sizes(ax, np.asarray(trajectory.t), largest(value), colour, level)
    if not trajectory.acceleration_residual.shape[-1]:
        _say(ax, "no constraints")
    label(ax, "largest residual")


def _is_bound(trajectory):
    return trajectory.acceleration_residual.shape[-1] > 0 or np.any(np.asarray(trajectory.nonideal_force))


def _say(ax, words):
    ax.text(0.5, 0.5, words, transform=ax.transAxes, ha="center", fontsize=9)


def _task(ax, trajectory):
    """How far the task is from being met, and what of it the actuators cannot give; the power of u without a task."""
    t = np.asarray(trajectory.t)
    if trajectory.task_residual.shape[-1]:
        draw_sizes(ax, t, largest(trajectory.task_residual), COLOURS[0], "off the task")
        draw_sizes(ax, t, largest(trajectory.unreachable), COLOURS[1], "out of reach")
        label(ax, "servo task")
        return
    system = trajectory.model
    if system is None:  # read from a file, which does not say where the actuators act
        ax.set_visible(False)
        return
    power = jax.vmap(lambda t, q, v, u: v @ system.control.force(t, q, v, u))
    ax.plot(t, power(trajectory.t, trajectory.q, trajectory.v, trajectory.control), color=COLOURS[0], linewidth=1.2)
    label(ax, "power of the control [W]")


def _quality(ax, trajectory):
    """The distance from the exact motion where that is known, else the change of energy, else the rank."""
    t, model = np.asarray(trajectory.t), trajectory.model
    if isinstance(model, AbstractMechanism) and model.reference(trajectory.t[0]) is not None:
        exact = np.asarray(jax.vmap(model.reference)(trajectory.t))
        draw_sizes(ax, t, largest(np.asarray(trajectory.q) - exact), COLOURS[0], None)
        label(ax, "largest error of q")
    elif trajectory.energy is not None:
        ax.plot(t, np.asarray(trajectory.energy - trajectory.energy[0]), color=COLOURS[0], linewidth=1.2)
        label(ax, "change of energy [J]")
    else:
        ax.plot(t, np.asarray(trajectory.rank), color=COLOURS[0], linewidth=1.2)
        label(ax, "rank of A")


def _title(trajectory):
    return f"{trajectory.title}: {trajectory.t.size} samples, {int(trajectory.steps)} steps"
