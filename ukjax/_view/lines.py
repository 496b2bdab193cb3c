"""The lines that a motion is drawn by."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from .._check import as_array, call, check_function, kind_of
from .._motion.trajectory.trajectory import Trajectory
from .._run.compile import jit_unoptimised


def check_trajectory(value: Any, single: bool = True) -> None:
    """``value`` is a trajectory, a ``single`` one where a picture has room for no more, or ``ValueError``."""
    if not isinstance(value, Trajectory):
        raise ValueError(f"trajectory must be what ukjax.simulate returned, got {kind_of(value)}")
    if single and value.t.ndim != 1:
        raise ValueError(
            f"trajectory must be a single one, got a batch of {len(value)}: use trajectory[i] for member i"
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


class Solid(NamedTuple):
    """A body that moves as one: its ``edges`` in its own frame, with NaN between them, and at every sample the place
    ``p`` and rotation ``R`` of that."""

    edges: Float[np.ndarray, "points 3"]
    p: Float[np.ndarray, "samples 3"]
    R: Float[np.ndarray, "samples 3 3"]

    def at(self, i: int) -> Float[np.ndarray, "points 3"]:
        """Where the edges are at one sample."""
        return self.p[i] + self.edges @ self.R[i].T

    def corners(self) -> Float[np.ndarray, "samples 8 3"]:
        """Those of a box that holds it, at every sample."""
        ends = np.nanmin(self.edges, axis=0), np.nanmax(self.edges, axis=0)
        box = np.stack(np.meshgrid(*np.stack(ends, axis=1)), axis=-1).reshape(8, 3)
        return self.p[:, None] + np.einsum("sij,kj->ski", self.R, box)


def solids(trajectory: Trajectory) -> list[Solid]:
    """What its bodies look like; few mechanisms say that."""
    model: Any = trajectory.model
    found = model.edges() if hasattr(model, "edges") else {}
    if not found:
        return []
    there = jax.tree.map(np.asarray, _poses(model.pose, trajectory.t, trajectory.q))
    return [Solid(points, there[name].p, there[name].R) for name, points in found.items()]


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


_at_all = jit_unoptimised(lambda outline, t, q: jax.vmap(lambda t, q: _lines(outline, t, q))(t, q))
_poses = jit_unoptimised(lambda pose, t, q: jax.vmap(pose)(q, t))
