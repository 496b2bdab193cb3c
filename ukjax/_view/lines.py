"""Lines and solid edges from which a trajectory is drawn."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from .._check import as_array, call, check_function, kind_of
from .._errors import InputError
from .._motion.trajectory.trajectory import Trajectory
from .._run.compile import jit_unoptimised


def check_trajectory(value: Any, single: bool = True) -> None:
    """Raise ``InputError`` unless ``value`` is a ``Trajectory``, and with ``single`` not a batch of them."""
    if not isinstance(value, Trajectory):
        raise InputError(f"trajectory must be what ukjax.simulate returned, got {kind_of(value)}")
    if single and value.t.ndim != 1:
        raise InputError(
            f"trajectory must be a single one, got a batch of {len(value)}: use trajectory[i] for member i"
        )


def outlines(trajectory: Trajectory, outline: Callable | None = None, name: str = "outline") -> list[np.ndarray]:
    """Evaluate the outline at every sample: one array (samples, points, d) per line [m].

    ``outline(t, q)`` returns the lines at one instant; by default it is the method of the mechanism. ``name`` is its
    name in messages.
    """
    outline = _checked_outline(trajectory, outline, name)
    return [np.asarray(line) for line in _outline_at_samples(outline, name, trajectory.t, trajectory.q)]


def _checked_outline(trajectory, outline, name):
    if outline is None:
        model = trajectory.model
        outline = getattr(model, "outline", None)
        if not callable(outline):
            subject = "a motion without its model" if model is None else type(model).__name__
            raise InputError(
                f"a drawing needs a model with outline(t, q), its lines at one instant, and {subject} has none: "
                "subclass ukjax.systems.AbstractMechanism, give it to ukjax.view(motion, outline), or show q with "
                "ukjax.plot.histories"
            )
    check_function(name, outline, "t, q")
    return outline


class Solid(NamedTuple):
    """A rigid body that is drawn, and its pose at every sample.

    Attributes
    ----------
    name
        Name of the body.
    edges
        Polylines (points, 3) in the body frame [m], separated by rows of NaN.
    vertices, faces
        Surface as vertices (k, 3) in the body frame [m] and triangles (f, 3), the indices of their vertices.
    p
        Position of the body frame (samples, 3) [m].
    R
        Rotation matrix of the body frame (samples, 3, 3).
    """

    name: str
    edges: Float[np.ndarray, "points 3"]
    vertices: Float[np.ndarray, "k 3"]
    faces: Int[np.ndarray, "f 3"]
    p: Float[np.ndarray, "samples 3"]
    R: Float[np.ndarray, "samples 3 3"]

    def at(self, i: int) -> Float[np.ndarray, "points 3"]:
        """Return the edges (points, 3) in the world frame at sample ``i``."""
        return self.p[i] + self.edges @ self.R[i].T

    def corners(self) -> Float[np.ndarray, "samples 8 3"]:
        """Return the corners (samples, 8, 3) of the bounding box, in the world frame."""
        bounds = np.nanmin(self.edges, axis=0), np.nanmax(self.edges, axis=0)
        box = np.stack(np.meshgrid(*np.stack(bounds, axis=1)), axis=-1).reshape(8, 3)
        return self.p[:, None] + np.einsum("sij,kj->ski", self.R, box)


def drawing(trajectory: Trajectory, outline: Callable | None = None) -> tuple[list[np.ndarray], list[Solid]]:
    """The lines of ``outlines``, and the bodies that have edges, evaluated by one program.

    There are no bodies with an ``outline``, or if the mechanism defines no edges.
    """
    model: Any = trajectory.model
    edges = model.edges() if outline is None and hasattr(model, "edges") else {}
    if not edges:
        return outlines(trajectory, outline), []
    outline = _checked_outline(trajectory, outline, "outline")
    at_samples = _outline_and_poses_at_samples(outline, model.pose, trajectory.t, trajectory.q)
    lines, poses = jax.tree.map(np.asarray, at_samples)
    surfaces = model.surfaces() if hasattr(model, "surfaces") else {}
    found = []
    for name, points in edges.items():
        vertices, faces = surfaces.get(name, (np.zeros((0, 3)), np.zeros((0, 3), int)))
        found.append(Solid(name, points, vertices, faces, poses[name].p, poses[name].R))
    return lines, found


def touching_points(trajectory: Trajectory) -> np.ndarray | None:
    """Return the points of contact at the samples (samples, gaps, d) [m], or None if the model has none.

    They are NaN at samples at which the gap is open, except for the sample next to an impact of that gap.
    """
    contacts, find = trajectory.contacts, getattr(trajectory.model, "contact_points", None)
    if contacts is None or find is None:
        return None
    points = _contact_points(find, trajectory.t, trajectory.q)
    if points is None:
        return None
    touches = np.array(contacts.closed)
    t, times, impulses = (np.asarray(x) for x in (trajectory.t, contacts.impact_times, contacts.impulses))
    for time, impulse in zip(times[np.isfinite(times)], impulses, strict=False):
        touches[np.abs(t - time).argmin()] |= impulse[: touches.shape[1]] != 0
    return np.where(touches[..., None], np.asarray(points), np.nan)


def is_rim(line: np.ndarray) -> bool:
    """Whether a line (samples, points, d) has more than 10 points: a rim, whose points are not marked as joints."""
    return line.shape[1] > 10


def _lines(outline, name, t, q):
    returned = call(name, outline, t, q)
    lines = [
        as_array(name, line, "points", "return") for line in (returned if isinstance(returned, tuple) else (returned,))
    ]
    for line in lines:
        if line.ndim != 2 or line.shape[1] not in (2, 3) or line.shape[1] != lines[0].shape[1]:
            raise InputError(
                f"{name} must return a line through points, shape (points, 2) or (points, 3), or a tuple of such "
                f"lines, got shape {line.shape}"
            )
    return lines


_outline_at_samples = jit_unoptimised(
    lambda outline, name, t, q: jax.vmap(lambda t, q: _lines(outline, name, t, q))(t, q)
)
_outline_and_poses_at_samples = jit_unoptimised(
    lambda outline, pose, t, q: jax.vmap(lambda t, q: (_lines(outline, "outline", t, q), pose(q, t)))(t, q)
)
_contact_points = jit_unoptimised(lambda points, t, q: jax.vmap(points)(t, q))
