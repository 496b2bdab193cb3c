"""Figures 2 to 10 of Xu & Liu 2017."""

import jax
import numpy as np
from matplotlib.figure import Figure

from .._motion.trajectory.trajectory import Trajectory
from ..systems.scara import Scara
from .style import COLOURS, label, new_figure

LABELS = {"without": "without stabilisation", "baumgarte": "with Baumgarte"}


def scara_figures(runs: dict[str, Trajectory]) -> Figure:
    """Plot joints and tool against the exact motion, their errors with and without stabilisation, and the torques.

    Panels, with the corresponding figures of the paper in brackets: joint angles (2, 6), the tool's path (3, 7),
    joint errors (4, 8), tool errors (5, 9), constraint torques (10).
    """
    figure, axes = new_figure("SCARA robot, start and gains of Xu & Liu 2017", 4, 3, width=12.5)
    mechanism = next(iter(runs.values())).model
    assert isinstance(mechanism, Scara)
    t = next(iter(runs.values())).t
    exact = np.asarray(jax.vmap(mechanism.reference)(t))
    desired = np.asarray(jax.vmap(mechanism.path)(t))
    for colour, (name, run) in zip(COLOURS[1::-1], runs.items(), strict=False):
        q, tool = np.asarray(run.q), np.asarray(jax.vmap(mechanism.tool)(run.q))
        style = {"color": colour, "linewidth": 1.1}
        for i in range(3):
            axes[0].plot(t, q[:, i], **style, label=LABELS[name] if i == 0 else None)
        axes[1].plot(t, q[:, 3], **style)
        axes[2].plot(tool[:, 0], tool[:, 1], **style)
        for i in range(3):
            axes[3 + i].plot(t, (q - exact)[:, i], **style)
            axes[6 + i].plot(t, (tool - desired)[:, i], **style, label=LABELS[name] if i == 0 else None)
        axes[9].plot(t, (q - exact)[:, 3], **style)
    for i in range(4):
        axes[1 if i == 3 else 0].plot(t, exact[:, i], "k--", linewidth=0.9, label="exact" if i == 0 else None)
    axes[2].plot(desired[:, 0], desired[:, 1], "k--", linewidth=0.9)
    axes[2].set_aspect("equal")
    axes[2].locator_params(nbins=5)
    constraint_force = np.asarray(list(runs.values())[-1].constraint_force)
    for i in range(3):
        axes[10].plot(t, constraint_force[:, i], color=COLOURS[i], linewidth=1.1, label=f"Qc{i + 1}")
    axes[11].plot(t, constraint_force[:, 3], color=COLOURS[3], linewidth=1.1, label="Qc4")

    label(axes[0], "q1, q2, q3 [rad]")
    label(axes[1], "q4 [m]")
    label(axes[2], "y [m]", "x [m]")
    for i in range(3):
        label(axes[3 + i], f"error of q{i + 1} [rad]")
        label(axes[6 + i], f"error of {'xyz'[i]} [m]")
    label(axes[9], "error of q4 [m]")
    label(axes[10], "constraint torque [N m]")
    label(axes[11], "constraint force [N]")
    return figure
