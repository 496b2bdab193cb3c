"""The mechanism in motion."""

import os
import shutil
from pathlib import Path

import numpy as np
from matplotlib.animation import AbstractMovieWriter, FFMpegWriter, FuncAnimation, PillowWriter
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from .._check import as_path, kind_of
from .._files import write_whole
from .._motion.trajectory.trajectory import Trajectory
from .._view import check_trajectory, outlines, solids
from .drawing import EDGES, frame, link_style
from .style import COLOURS

RATE = 25  # frames per second
FEWEST, MOST = 100, 150  # frames: long enough to look at, and a file of a few megabytes
MOVIES = (".gif", ".mp4")


def animate(trajectory: Trajectory) -> FuncAnimation:
    """A single trajectory of a mechanism of the gallery as an animation: its links, the traces of its ends, the time.

    In real time where that takes 100 to 150 frames, 25 per second, otherwise faster or slower, as its title says. In a
    notebook, or for a page, take ``ukjax.view``; ``save_animation`` writes a film.
    """
    check_trajectory(trajectory)
    lines, moving, t = outlines(trajectory), solids(trajectory), np.asarray(trajectory.t)
    count = int(np.clip(round(RATE * (t[-1] - t[0])), FEWEST, MOST))
    shown = np.abs(t - np.linspace(t[0], t[-1], count)[:, None]).argmin(axis=1)
    is_spatial = lines[0].shape[-1] == 3

    figure = Figure(figsize=(5.0, 5.0), dpi=72, layout="constrained")
    FigureCanvasAgg(figure)
    ax = figure.add_subplot(projection="3d" if is_spatial else None)
    frame(ax, [*lines, *(body.corners() for body in moving)])
    traces = [ax.plot(*line[:0, 0].T, color=COLOURS[1], linewidth=1.0)[0] for line in lines]
    bodies = [ax.plot(*body.at(0).T, **EDGES)[0] for body in moving]
    links = [ax.plot(*line[0].T, link_style(line), color=COLOURS[0], linewidth=2.5, markersize=4)[0] for line in lines]
    speed = _speed((t[-1] - t[0]) / (count / RATE))
    title = ax.set_title("", fontsize=10)

    place = lambda artist, points: artist.set_data_3d(*points.T) if is_spatial else artist.set_data(*points.T)

    def draw(i):
        for line, link, trace in zip(lines, links, traces, strict=True):
            for artist, points in ((link, line[i]), (trace, line[: i + 1, -1])):
                place(artist, points)
        for artist, body in zip(bodies, moving, strict=True):
            place(artist, body.at(i))
        title.set_text(f"{trajectory.title}, t = {t[i]:.{_digits(t)}f} s{speed}")
        return [*bodies, *links, *traces, title]

    draw(shown[0])
    return FuncAnimation(figure, draw, frames=shown, interval=1000 / RATE, blit=False, cache_frame_data=False)


def save_animation(animation: FuncAnimation, path: str | os.PathLike) -> Path:
    """Write to ``path``: .gif, or .mp4 (needs ffmpeg). Whole or not at all.

    Raises ``ValueError`` for another ending, or where ffmpeg is missing.
    """
    if not isinstance(animation, FuncAnimation):
        raise ValueError(f"animation must be what ukjax.plot.animate returned, got {kind_of(animation)}")
    path = as_path(path)
    if complaint := cannot_write(path):
        raise ValueError(complaint)

    def write(part: Path) -> None:
        writer: AbstractMovieWriter = PillowWriter(RATE) if path.suffix == ".gif" else FFMpegWriter(RATE)
        animation.save(str(part), writer=writer, dpi=100)

    write_whole(path, write)
    return path


def cannot_write(path: Path) -> str:
    """Why an animation cannot be written to ``path``; empty if it can."""
    if path.suffix not in MOVIES:
        page = "; for a page, ukjax.view(trajectory).save(path)" if path.suffix == ".html" else ""
        return f"an animation must end in {', '.join(MOVIES)}, got {str(path)!r}{page}"
    if path.suffix == ".mp4" and shutil.which("ffmpeg") is None:
        return f"{path.name} needs the program ffmpeg, which is not there: install it, or choose .gif"
    return ""


def _speed(factor):
    if 0.95 < factor < 1.05:
        return ""
    return f", {factor:.3g}× as fast" if factor > 1 else f", {1 / factor:.3g}× slower"


def _digits(t):
    return int(np.clip(2 - np.floor(np.log10(t[-1] - t[0])), 1, 6))
