"""The data of a motion that a page shows, as numbers in JSON."""

import base64
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from .._check import as_numbers
from .._errors import InputError
from .._mechanism import Mechanism
from .._motion.trajectory.trajectory import Trajectory
from .histories import histories
from .lines import Solid, check_trajectory, drawing, is_rim, outlines, touching_points
from .loads import loads

MAX_POSITION_BYTES = 6_000_000
"""Limit on the bytes of positions in a page, so that browsers open it quickly; longer motions show fewer samples."""

MAX_GHOSTS = 100
"""Largest number of members of an ensemble in a page."""

NUMBERS_PER_POSE = 12
"""Numbers per pose of a body: the columns of p and R."""


class Ghosts(NamedTuple):
    """Members of an ensemble that are drawn together with a motion.

    Attributes
    ----------
    positions
        Points of their outlines (members, samples, points, d) [m].
    colour
        A number for each member, or None: all have the same colour.
    """

    positions: Float[np.ndarray, "members samples points d"]
    colour: Float[np.ndarray, " members"] | None


def scene(
    trajectory: Trajectory,
    outline: Callable | None = None,
    forces: bool = False,
    traces: Callable | None = None,
    ghosts: Trajectory | None = None,
    colour: Any = None,
) -> dict[str, Any]:
    """The data of a page, for the arguments of ``ukjax.view``. ``script/motion.js`` describes them."""
    check_trajectory(trajectory)
    reached = trajectory.reached()
    lines, bodies = drawing(reached, outline)
    names = _names(reached, outline, len(lines))
    beside = ghosts_of(ghosts, colour, reached, outline)
    traced = [] if traces is None else _traced(reached, traces, lines[0].shape[2])
    touching = None if outline is not None else touching_points(reached)
    points = np.concatenate([*lines, *traced], axis=1)
    if touching is None:
        touching = np.zeros((len(points), 0, points.shape[2]))
    arrows = loads(reached) if forces and outline is None else []
    t = np.asarray(reached.t, float)
    numbers = points[0].size * (1 + (0 if beside is None else len(beside.positions))) + touching[0].size
    numbers += NUMBERS_PER_POSE * len(bodies) + sum(2 * arrow.at[0].size for arrow in arrows) + 2 * reached.q.shape[1]
    shown = _shown_samples(t, MAX_POSITION_BYTES // (4 * numbers))
    low, high = _extent(np.concatenate([points, *(body.corners() for body in bodies)], axis=1), 1)
    corners = [low.min(axis=0), high.max(axis=0)] + ([] if beside is None else [*_extent(beside.positions, (0, 1, 2))])
    centre, half = (np.min(corners, axis=0) + np.max(corners, axis=0)) / 2, np.ptp(corners, axis=0) / 2
    indices = {name: i for i, name in enumerate(reached.model.bodies)} if isinstance(reached.model, Mechanism) else {}
    return {
        "title": trajectory.title,
        "ended": "" if bool(trajectory.finished) else f"ended at t = {t[-1]:.4g} s: {trajectory.reason}",
        "dimensions": points.shape[2],
        "centre": centre.tolist(),
        "half": half.tolist(),
        "radius": max(float(np.max(np.linalg.norm(high - low, axis=1))) / 2, 1e-3 * float(np.linalg.norm(half)), 1e-9),
        "centres": _numbers(((low + high) / 2 - centre)[shown]),
        "t": t[shown].tolist(),
        "links": [
            {"points": line.shape[1], "joints": not is_rim(line), "name": name, "body": indices.get(name, -1)}
            for line, name in zip(lines, names, strict=True)
        ]
        + [
            {"points": 1, "joints": False, "name": f"point {i + 1}", "body": -1, "traced": True}
            for i in range(len(traced))
        ],
        "bodies": [_body(i, body, indices, centre, shown) for i, body in enumerate(bodies)],
        "touching": _numbers(touching[shown] - centre),
        "positions": _numbers(points[shown] - centre),
        "arrows": [_arrow(arrow, centre, shown) for arrow in arrows],
        "ghosts": None if beside is None else _ghosts(beside, centre, shown, len(traced)),
        "histories": [_history(each, shown) for each in histories(reached, arrows if forces else None)],
    }


def ghosts_of(ghosts: Any, colour: Any, trajectory: Trajectory, outline: Callable | None) -> Ghosts | None:
    """The other members, with the samples of ``trajectory``. Raises ``InputError``."""
    if ghosts is None:
        if colour is not None:
            raise InputError("colour needs ghosts, a batch of motions: it has one number for each")
        return None
    if not isinstance(ghosts, Trajectory) or ghosts.t.ndim != 2:
        raise InputError(
            "ghosts must be a batch of motions, as ukjax.simulate returns for several starts, got "
            f"{'one motion' if isinstance(ghosts, Trajectory) else type(ghosts).__name__}"
        )
    values = None if colour is None else np.asarray(as_numbers("colour", colour), float)
    if values is not None and values.shape != (len(ghosts),):
        raise InputError(f"colour must have one number for each of {len(ghosts)} motions, got shape {values.shape}")
    if values is not None and not np.all(np.isfinite(values)):
        raise InputError(f"colour must be finite, got {values[~np.isfinite(values)][0]} for a motion")
    members = np.unique(np.linspace(0, len(ghosts) - 1, MAX_GHOSTS).round().astype(int))
    samples = len(trajectory.t)
    times, own = np.asarray(ghosts.t)[:, :samples], np.asarray(trajectory.t)
    both = np.isfinite(times) & np.isfinite(own) if times.shape[1] == samples else None
    if both is None or np.any(both & (times != own)):  # members may have ended early
        raise InputError("ghosts must have the same times as the motion: simulate both with the same ts")
    positions = [np.concatenate(outlines(ghosts[i], outline), axis=1)[:samples] for i in members]
    return Ghosts(np.stack(positions), None if values is None else values[members])


def _names(trajectory, outline, count):
    """Names of the bodies to which the lines belong, or numbers for several lines."""
    if outline is None and isinstance(trajectory.model, Mechanism):
        return tuple(trajectory.model.bodies)
    return ("",) if count == 1 else tuple(f"line {i + 1}" for i in range(count))


def _traced(trajectory, traces, dimensions):
    """The chosen points, each as a line with one point."""
    found = [
        point for line in outlines(trajectory, traces, "traces") for point in np.split(line, line.shape[1], axis=1)
    ]
    if found[0].shape[2] != dimensions:
        raise InputError(
            f"traces must return points with {dimensions} components, as the outline has, got shape "
            f"{(len(found), found[0].shape[2])}"
        )
    return found


def _extent(points, axis):
    return np.nanmin(points, axis=axis), np.nanmax(points, axis=axis)


def _body(i, body: Solid, indices, centre, shown):
    return {
        "name": body.name,
        "index": indices.get(body.name, i),
        "edges": _numbers(body.edges),
        "vertices": _numbers(body.vertices),
        "faces": base64.b64encode(body.faces.astype("<u4").tobytes()).decode(),
        "poses": _numbers(np.concatenate([(body.p - centre)[..., None], body.R], axis=2)[shown]),
    }


def _arrow(arrow, centre, shown):
    at, vector = arrow.at[shown] - centre, arrow.vector[shown]
    return {
        "name": arrow.name,
        "unit": arrow.unit,
        "count": at.shape[1],
        "largest": float(np.nanmax(np.linalg.norm(arrow.vector, axis=-1))),
        "at": _numbers(at),
        "vector": _numbers(vector),
    }


def _ghosts(ghosts, centre, shown, traced):
    positions = ghosts.positions[:, shown] - centre
    positions = np.concatenate([positions, np.full((*positions.shape[:2], traced, positions.shape[3]), np.nan)], axis=2)
    low, high, share = None, None, []
    if ghosts.colour is not None:
        low, high = float(np.nanmin(ghosts.colour)), float(np.nanmax(ghosts.colour))
        low = 0.0 if abs(low) < 1e-9 * abs(high) else low  # rounding error
        share = ((ghosts.colour - low) / (high - low if high > low else 1.0)).tolist()
    return {"members": len(positions), "positions": _numbers(positions), "colour": share, "low": low, "high": high}


def _history(history, shown):
    finite = history.values[np.isfinite(history.values)]
    return {
        "title": history.title,
        "unit": history.unit,
        "names": history.names,
        "low": float(finite.min(initial=np.inf)) if finite.size else 0.0,
        "high": float(finite.max(initial=-np.inf)) if finite.size else 0.0,
        "values": _numbers(history.values[shown]),
    }


def _numbers(x):
    """Encode an array as the base64 text of its little-endian float32 bytes."""
    return base64.b64encode(np.ascontiguousarray(x, "<f4").tobytes()).decode()


def _shown_samples(t, max_count):
    """Return the indices of the samples to show: all, or about ``max_count`` equally spaced in time."""
    if len(t) <= max_count:
        return np.arange(len(t))
    return np.unique(np.abs(t - np.linspace(t[0], t[-1], max(max_count, 2))[:, None]).argmin(axis=1))
