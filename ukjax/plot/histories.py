"""Figure of a trajectory: mechanism, coordinates, constraint forces, controls, residuals and accuracy."""

from itertools import cycle, zip_longest

import jax
import numpy as np
from matplotlib.figure import Figure

from .._labels import Named, force_unit
from .._motion.trajectory.trajectory import Trajectory
from .._view import check_trajectory, drawing
from ..systems.base import AbstractMechanism
from .contacts import draw_contact_forces, draw_contacts, mark_impacts
from .drawing import draw
from .style import COLOURS, label, panel

STYLES = ("-", "--", ":", "-.")


def histories(trajectory: Trajectory) -> Figure:
    """Plot a single trajectory.

    The panels are: a drawing of the mechanism, if it is a gallery system; q, the constraint force Qᶜ, first-order
    states and the controls, one panel per unit; the residuals; with contacts, their intervals and forces, and the
    instants of impacts as marks on the axes of q; and one of these: the error against the exact motion if it is known,
    else the change of energy if there is an energy, else the rank of A.

    Parameters
    ----------
    trajectory
        The trajectory.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    InputError
        If ``trajectory`` is a batch.
    """
    check_trajectory(trajectory)
    n = trajectory.v.shape[-1] - len(trajectory.states)
    units = units_of(trajectory.coordinates, trajectory.directions[:n])
    panels = [
        ("state", trajectory.v[:, n:], trajectory.named_states),
        ("control", trajectory.control, trajectory.inputs),
    ]
    further = [(*each, unit) for each in panels for unit in dict.fromkeys(unit for _, unit in each[2])]
    has_drawing = isinstance(trajectory.model, AbstractMechanism)
    has_contacts = trajectory.contacts is not None
    rows = len(units) + (len(further) + 1) // 2 + 1 + has_contacts
    figure = Figure(figsize=(13.0 if has_drawing else 9.0, 2.4 * max(rows, 2) + 0.4), layout="constrained")
    grid = figure.add_gridspec(rows, 3 if has_drawing else 2, width_ratios=[1.35, 1, 1] if has_drawing else None)
    if has_drawing:
        lines, bodies = drawing(trajectory)
        ax = figure.add_subplot(grid[:, 0], projection="3d" if lines[0].shape[-1] == 3 else None)
        draw(ax, lines, bodies)
    axes = [[panel(figure.add_subplot(grid[row, column])) for column in (-2, -1)] for row in range(rows)]
    figure.suptitle(_title(trajectory), fontsize=11)

    t = np.asarray(trajectory.t)
    for (coordinate, force), (unit, direction_unit) in zip(axes, units, strict=False):
        if unit is None:
            coordinate.remove()
        else:
            draw_unit(coordinate, t, trajectory.q, trajectory.coordinates, unit)
            if trajectory.contacts is not None:
                mark_impacts(coordinate, trajectory.contacts)
            label(coordinate, f"coordinate [{unit or '-'}]")
        if direction_unit is None:
            force.remove()
            continue
        if _is_constrained(trajectory):
            draw_unit(force, t, trajectory.constraint_force, trajectory.directions, direction_unit)
        else:  # the constraint force M q̈ − Q is only rounding error
            _annotate(force, "no constraints")
        label(force, f"constraint force [{force_unit(direction_unit)}]")
    remaining_axes = iter(ax for row in axes[len(units) :] for ax in row)
    for kind, values, named, unit in further:
        ax = next(remaining_axes)
        draw_unit(ax, t, values, named, unit)
        label(ax, f"{kind} [{unit or '-'}]")
    if len(further) % 2:
        _draw_task(next(remaining_axes), trajectory)
    if has_contacts:
        draw_contacts(next(remaining_axes), trajectory)
        draw_contact_forces(next(remaining_axes), trajectory)
    _draw_residuals(next(remaining_axes), trajectory)
    _draw_accuracy(next(remaining_axes), trajectory)
    return figure


def units_of(coordinates: Named, directions: Named) -> list[tuple[str | None, str | None]]:
    """Return pairs (unit of coordinates, unit of the directions of forces), padded with None to equal length."""
    named_units = (dict.fromkeys(unit for _, unit in named) for named in (coordinates, directions))
    coordinate, direction_unit = named_units
    return list(zip_longest(coordinate, direction_unit))


def draw_unit(ax, t, values, named, unit):
    """Plot the columns of ``values`` that have this unit, each with its own colour and line style."""
    styles = cycle([(colour, style) for style in STYLES for colour in COLOURS])
    for i, (name, column_unit) in enumerate(named):
        if column_unit == unit:
            colour, style = next(styles)
            ax.plot(t, np.asarray(values)[:, i], style, color=colour, linewidth=1.4, label=name)


def max_abs(value) -> np.ndarray:
    """Return the largest absolute entry at each sample; 0 if there are no entries."""
    return np.abs(np.asarray(value)).max(axis=-1, initial=0.0)


def draw_magnitudes(ax, t, magnitude, colour, name):
    """Plot magnitudes near rounding error as dots on a logarithmic axis; zeros are drawn at its lower end."""
    ax.semilogy(t, np.maximum(magnitude, 1e-18), ".", color=colour, markersize=2, label=name)
    ax.set_ylim(5e-19, max(1e-14, 10 * magnitude.max(initial=0), ax.get_ylim()[1]))


def _draw_residuals(ax, trajectory):
    for colour, level in zip(COLOURS, ("position", "velocity", "acceleration"), strict=False):
        value = getattr(trajectory, f"{level}_residual")
        if value.shape[-1]:
            draw_magnitudes(ax, np.asarray(trajectory.t), max_abs(value), colour, level)
    if not trajectory.acceleration_residual.shape[-1]:
        _annotate(ax, "no constraints")
    label(ax, "largest residual")


def _is_constrained(trajectory):
    return trajectory.acceleration_residual.shape[-1] > 0 or np.any(np.asarray(trajectory.nonideal_force))


def _annotate(ax, message):
    ax.text(0.5, 0.5, message, transform=ax.transAxes, ha="center", fontsize=9)


def _draw_task(ax, trajectory):
    """Plot residual and unreachable part of the servo task; without a task, the power of the control."""
    t = np.asarray(trajectory.t)
    if trajectory.task_residual.shape[-1]:
        draw_magnitudes(ax, t, max_abs(trajectory.task_residual), COLOURS[0], "off the task")
        draw_magnitudes(ax, t, max_abs(trajectory.unreachable), COLOURS[1], "out of reach")
        label(ax, "servo task")
        return
    system = trajectory.model
    if system is None:  # read from a file, which does not store the actuator matrix B
        ax.set_visible(False)
        return
    n = trajectory.v.shape[-1] - len(system.control.states)
    power = jax.vmap(lambda t, q, v, u: v[:n] @ system.control.force(t, q, v, u)[:n])
    ax.plot(t, power(trajectory.t, trajectory.q, trajectory.v, trajectory.control), color=COLOURS[0], linewidth=1.2)
    label(ax, "power of the control [W]")


def _draw_accuracy(ax, trajectory):
    """Plot the error against the exact motion if it is known, else the change of energy, else the rank."""
    t, model = np.asarray(trajectory.t), trajectory.model
    if isinstance(model, AbstractMechanism) and model.reference(trajectory.t[0]) is not None:
        exact = np.asarray(jax.vmap(model.reference)(trajectory.t))
        draw_magnitudes(ax, t, max_abs(np.asarray(trajectory.q) - exact), COLOURS[0], None)
        label(ax, "largest error of q")
    elif trajectory.energy is not None:
        ax.plot(t, np.asarray(trajectory.energy - trajectory.energy[0]), color=COLOURS[0], linewidth=1.2)
        label(ax, "change of energy [J]")
    else:
        ax.plot(t, np.asarray(trajectory.rank), color=COLOURS[0], linewidth=1.2)
        label(ax, "rank of A")


def _title(trajectory):
    return f"{trajectory.title}: {trajectory.t.size} samples, {int(trajectory.steps)} steps"
