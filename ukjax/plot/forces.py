"""Figure of the forces of a motion by name."""

import numpy as np
from matplotlib.figure import Figure

from .._check import kind_of
from .._errors import InputError
from .._labels import force_unit
from .._motion.trajectory.forces import ForceBalance
from .style import COLOURS, label, panel

COLUMNS = 2
STYLES = {"applied": "-", "control": "-", "constraint": "--", "nonideal": ":", "contact": "-.", "friction": ":"}


def forces(balance: ForceBalance) -> Figure:
    """Plot the forces of a motion: one panel for each coordinate, one curve for each force, and M q̈ in grey.

    Parameters
    ----------
    balance
        ``motion.forces()`` of a single motion.

    Returns
    -------
    matplotlib.figure.Figure
        The figure. A force that is zero along a coordinate is left out of its panel.

    Raises
    ------
    InputError
        If ``balance`` is something else, or of a batch.
    """
    if not isinstance(balance, ForceBalance):
        raise InputError(f"balance must be motion.forces(), got {kind_of(balance)}")
    if balance.t.ndim != 1:
        raise InputError("balance must be of one motion, this is a batch: use motion[i].forces()")
    n = len(balance.directions)
    rows = -(-n // COLUMNS)
    figure = Figure(figsize=(11.0, 2.4 * rows + 0.4), layout="constrained")
    grid = figure.add_gridspec(rows, COLUMNS)
    t, inertia = np.asarray(balance.t), np.asarray(balance.inertia)
    for i, (name, unit) in enumerate(balance.directions):
        ax = panel(figure.add_subplot(grid[divmod(i, COLUMNS)]))
        ax.plot(t, inertia[:, i], color="#bbbbbb", linewidth=3, label="M q̈")
        for k, (force_name, each) in enumerate(balance.items()):
            values = np.asarray(each.force)[:, i]
            if np.any(values):
                colour = COLOURS[k % len(COLOURS)]
                ax.plot(t, values, STYLES[each.kind], color=colour, linewidth=1.4, label=force_name)
        label(ax, f"force on {name} [{force_unit(unit)}]")
    return figure
