"""The lines that a motion is drawn by."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from .._check import as_array, call, check_function, kind_of
from .._haste import at_once
from .._motion.trajectory import Trajectory


def check_trajectory(value: Any, single: bool = True) -> None:
    """``value`` is a trajectory, a ``single`` one where a picture has room for no more, or ``ValueError``."""
    if not isinstance(value, Trajectory):
        raise ValueError(f"trajectory must be what ukjax.simulate returned, got {kind_of(value)}")
    if single and value.t.ndim != 1:
        raise ValueError(
            f"trajectory must be a single one, got a batch of {len(value.t)}: take member i by "
            "jax.tree.map(lambda x: x[i], trajectory)"
        )


def outlines(trajectory: Trajectory, outline: Callable | None = None) -> list[np.ndarray]:
    """The lines at every sample, one array (samples, points, d) for each: those of ``outline(t, q)``, or else of the
    mechanism."""
    if outline is None:
        model = trajectory.model
        outline = getattr(model, "outline", None)
        if not callable(outline):
            lacking = "a motion without its model" if model is None else type(model).__name__
            raise ValueError(
                f"a drawing needs a model with outline(t, q), its lines at one instant, which {lacking} has not: "
                "subclass ukjax.systems.AbstractMechanism, give it to ukjax.view(motion, outline), or show q with "
                "ukjax.plot.histories"
            )
    check_function("outline", outline, "t, q")
    return [np.asarray(line) for line in _at_all(outline, trajectory.t, trajectory.q)]


def solids(trajectory: Trajectory) -> list[np.ndarray]:
    """The edges of what its bodies look like, in the same way; few mechanisms say that."""
    edges = getattr(trajectory.model, "solids", None)
    return [] if edges is None else [np.asarray(line) for line in _at_all(edges, trajectory.t, trajectory.q)]


def is_rim(line: np.ndarray) -> bool:
    """Whether its points are those of something round, and not joints, which are marked."""
    return line.shape[1] > 10


def _lines(outline, t, q):
    given = call("outline", outline, t, q)
    lines = [
        as_array("outline", line, "points", "return") for line in (given if isinstance(given, tuple) else (given,))
    ]
    for line in lines:
        if line.ndim != 2 or line.shape[1] not in (2, 3) or line.shape[1] != lines[0].shape[1]:
            raise ValueError(
                "outline must return a line through points, shape (points, 2) or (points, 3), or a tuple of such "
                f"lines, got shape {line.shape}"
            )
    return lines


_at_all = at_once(lambda outline, t, q: jax.vmap(lambda t, q: _lines(outline, t, q))(t, q))
