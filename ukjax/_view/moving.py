"""Moving pictures in SVG: lines that repeat a motion, without any script."""

import html
from collections.abc import Callable

import numpy as np

from .._motion.trajectory.trajectory import Trajectory
from .lines import check_trajectory, drawing, is_rim

FRAMES = 60
"""Poses in a picture, equally spaced in time."""

SIZE, MARGIN = 420, 14
"""Width and height of the picture, and its margin [px]."""

AZIMUTH, ELEVATION = -1.01, 0.42
"""Angles of view of a motion in space [rad], as in the pages of ``ukjax.view``."""

LINK, EDGE, TRACE, PAPER = "#0b6e99", "#7f8c93", "#d1495b", "#ffffff"


def moving_picture(trajectory: Trajectory, outline: Callable | None = None) -> str:
    """The motion as an animated SVG picture: links, edges of bodies, and traces of the ends of the lines.

    It plays in real time if the motion takes 2 to 30 s, else within 8 s, and repeats.
    """
    check_trajectory(trajectory)
    reached = trajectory.reached()
    t = np.asarray(reached.t, float)
    frames = np.unique(np.abs(t - np.linspace(t[0], t[-1], FRAMES)[:, None]).argmin(axis=1))
    lines, bodies = drawing(reached, outline)
    edges = [np.stack([body.at(i) for i in frames]) for body in bodies]
    project = _projection(lines[0].shape[2])
    flat, flat_edges = [project(line) for line in lines], [project(line) for line in edges]
    every = np.concatenate([x.reshape(-1, 2) for x in (*flat, *flat_edges)])
    low, high = np.nanmin(every, axis=0), np.nanmax(every, axis=0)
    span = np.maximum(high - low, 0.3 * max(float(np.max(high - low)), 1e-9))
    scale = (SIZE - 2 * MARGIN) / float(np.max(span))
    width, height = np.round(span * scale + 2 * MARGIN).astype(int)
    middle = (low + high) / 2
    on_page = lambda x: (x - middle) * scale * [1, -1] + [width / 2, height / 2]
    length = t[-1] - t[0]
    duration = f"{length if 2 <= length <= 30 else 8:.3g}s"
    parts = []
    for line in flat_edges:
        parts += [_moving(on_page(piece), EDGE, 0.8, duration) for piece in _pieces(line)]
    for line in flat:
        if np.ptp(line[:, -1], axis=0).max() > 1e-6 * float(np.max(span)):
            parts.append(
                f'<polyline points="{_points(_thinned(on_page(line[:, -1])))}" stroke="{TRACE}" '
                'stroke-width="1" opacity="0.6"/>'
            )
    for line in flat:
        parts.append(_moving(on_page(line[frames]), LINK, 3, duration, joints=not is_rim(line)))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'fill="none" stroke-linecap="round" stroke-linejoin="round"><title>{html.escape(trajectory.title)}</title>'
        f'<rect width="{width}" height="{height}" fill="{PAPER}"/>{"".join(parts)}</svg>'
    )


def _projection(dimensions):
    """Parallel projection of points (..., d) to the plane."""
    if dimensions == 2:
        return lambda x: x
    (sin_a, sin_e), (cos_a, cos_e) = np.sin([AZIMUTH, ELEVATION]), np.cos([AZIMUTH, ELEVATION])
    axes = np.array([[-sin_a, cos_a, 0], [-sin_e * cos_a, -sin_e * sin_a, cos_e]])
    return lambda x: x @ axes.T


def _pieces(line):
    """The parts of a line (frames, points, 2) between rows of NaN."""
    gaps = np.flatnonzero(~np.isfinite(line[0, :, 0]))
    pieces = (piece[:, np.isfinite(piece[0, :, 0])] for piece in np.split(line, gaps, axis=1))
    return [piece for piece in pieces if piece.shape[1] > 1]


def _thinned(points):
    """At most 300 points of a line."""
    return points[np.unique(np.linspace(0, len(points) - 1, min(len(points), 300)).round().astype(int))]


def _points(points):
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _moving(frames, colour, width, duration, joints=False):
    """A line through points (frames, points, 2), and circles at its points."""
    finite = frames[np.all(np.isfinite(frames), axis=(1, 2))]
    texts = [_points(points) for points in finite]
    if not texts:
        return ""
    moves = len(set(texts)) > 1
    animated = lambda name, values: (
        f'<animate attributeName="{name}" dur="{duration}" repeatCount="indefinite" values="{";".join(values)}"/>'
        if moves
        else ""
    )
    written = (
        f'<polyline points="{texts[0]}" stroke="{colour}" stroke-width="{width}">{animated("points", texts)}</polyline>'
    )
    if not joints:
        return written
    for points in finite.swapaxes(0, 1):
        (x, y), moves = points[0], float(np.ptp(points, axis=0).max()) > 0.05
        ring = "".join(
            animated(name, [f"{value:.1f}" for value in points[:, k]]) for k, name in enumerate(("cx", "cy"))
        )
        shape = f'cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{PAPER}" stroke="{colour}" stroke-width="1.6"'
        written += f"<circle {shape}>{ring}</circle>"
    return written
