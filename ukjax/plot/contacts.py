"""Contacts of a trajectory over time: impacts, intervals of contact, and contact forces."""

from typing import Any

import numpy as np

from .._contact.history import ContactHistory
from .._motion.trajectory.trajectory import Trajectory
from .style import COLOURS, label

MAX_LINES, MAX_CURVES = 12, 6
"""Largest number of rows in the panels of contacts and of forces: those with the largest forces and impulses."""

MIN_ROWS = 4
"""Smallest number of contacts for which a panel has space."""

IMPACT, SLIP = COLOURS[1], "#c9b27c"


def mark_impacts(ax: Any, contacts: ContactHistory) -> None:
    """Mark the instants of the stored impacts at the lower end of axes over time."""
    times = np.asarray(contacts.impact_times)
    times = times[np.isfinite(times)]
    ax.plot(times, np.zeros_like(times), "|", color=IMPACT, markersize=9, transform=ax.get_xaxis_transform())


def draw_contacts(ax: Any, trajectory: Trajectory) -> None:
    """Draw a line per contact and friction force: bars while it is closed or sticks, thin bars while it slips.

    Impacts are marks on the line of each contact that takes part in them.
    """
    contacts = trajectory.contacts
    assert contacts is not None
    t, names = np.asarray(trajectory.t), trajectory.rows["contact_force"]
    closed, sticking = np.asarray(contacts.closed), np.asarray(contacts.sticking)
    slipping = np.any(np.asarray(contacts.direction), axis=-1)
    times, impulses = np.asarray(contacts.impact_times), np.asarray(contacts.impulses)
    rows = _largest_rows(trajectory, MAX_LINES)
    for line, row in enumerate(rows):
        if row < closed.shape[1]:
            _bar(ax, t, closed[:, row], line, COLOURS[0], 0.5)
        else:
            group = (row - closed.shape[1]) // contacts.direction.shape[-1]
            _bar(ax, t, slipping[:, group], line, SLIP, 0.2)
            _bar(ax, t, sticking[:, group], line, COLOURS[2], 0.5)
        struck = times[np.isfinite(times) & (impulses[:, row] != 0)] if times.size else times
        ax.plot(struck, np.full_like(struck, line), "|", color=IMPACT, markersize=9)
    ax.set_yticks(range(len(rows)), [names[row] for row in rows], fontsize=8)
    lines = max(len(rows), MIN_ROWS)
    ax.set_ylim(lines - 0.4, -0.6)
    ax.set_xlim(t[0], t[-1])
    label(ax, "closed, sticks; impacts |")


def draw_contact_forces(ax: Any, trajectory: Trajectory) -> None:
    """Plot the contact forces, the largest ones if there are more than ``MAX_CURVES``."""
    names = trajectory.rows["contact_force"]
    t, force = np.asarray(trajectory.t), np.asarray(trajectory.contact_force)
    for i, row in enumerate(_largest_rows(trajectory, MAX_CURVES)):
        ax.plot(t, force[:, row], color=COLOURS[i % len(COLOURS)], linewidth=1.2, label=names[row])
    assert trajectory.contacts is not None
    mark_impacts(ax, trajectory.contacts)
    label(ax, "contact force [N or N m]")


def _largest_rows(trajectory, most) -> list[int]:
    """The rows with the largest forces and impulses, at most ``most``, in order."""
    force, impulses = (np.abs(np.asarray(x)) for x in (trajectory.contact_force, trajectory.contacts.impulses))
    rows = force.shape[1]
    if rows <= most:
        return list(range(rows))
    size = np.nanmax(force, axis=0, initial=0)
    size = size / max(size.max(), 1e-300)
    if impulses.size:
        largest = np.nanmax(impulses, axis=0, initial=0)
        size = size + largest / max(largest.max(), 1e-300)
    return sorted(np.argsort(-size, kind="stable")[:most].tolist())


def _bar(ax, t, is_on, line, colour, height):
    """Bars around the samples at which ``is_on``, from and to the middle of the intervals between samples."""
    edges = np.concatenate([t[:1], (t[1:] + t[:-1]) / 2, t[-1:]])
    switches = np.flatnonzero(np.diff(np.concatenate([[0], is_on.astype(int), [0]])))
    spans = [(edges[a], edges[b] - edges[a]) for a, b in switches.reshape(-1, 2)]
    ax.broken_barh(spans, (line - height / 2, height), color=colour, linewidth=0, zorder=2)
