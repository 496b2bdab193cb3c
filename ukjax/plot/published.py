"""Figures in the style of the papers, from runs of the papers' own starts and laws."""

from collections.abc import Callable

from matplotlib.figure import Figure

from .._trajectory import Trajectory
from ..systems.scara import Scara
from .scara import scara_figures

FIGURES: dict[type, Callable[[dict[str, Trajectory]], Figure]] = {Scara: scara_figures}


def published(runs: dict[str, Trajectory]) -> Figure:
    """The paper's figures, from the runs of ``AbstractMechanism.published`` by name."""
    return FIGURES[type(next(iter(runs.values())).model)](runs)
