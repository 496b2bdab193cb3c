"""Animations of a mechanism."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.animation import AbstractMovieWriter, FFMpegWriter, FuncAnimation, PillowWriter
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from .._check import as_path, kind_of
from .._errors import InputError
from .._files import write_whole
from .._motion.trajectory.trajectory import Trajectory
from .._view import check_trajectory, drawing
from .drawing import EDGE_STYLE, link_style, set_limits
from .style import COLOURS

FRAMES_PER_SECOND = 25
MIN_FRAMES, MAX_FRAMES = 100, 150  # 4 to 6 s, a file of a few megabytes
MOVIES = (".gif", ".mp4")


def animate(trajectory: Trajectory) -> FuncAnimation:
    """Animate a single trajectory with matplotlib: links, edges of bodies, traces of the ends of the lines, and time.

    The animation has 100 to 150 frames at 25 frames per second. Motions of 4 to 6 s play in real time, other motions
    faster or slower; the title displays the factor. For notebooks and web pages use ``ukjax.view`` instead.

    Parameters
    ----------
    trajectory
        Trajectory of a model with an ``outline(t, q)`` method, such as the gallery systems.

    Returns
    -------
    matplotlib.animation.FuncAnimation
        The animation, to be written by ``save_animation``.

    Raises
    ------
    InputError
        If ``trajectory`` is a batch, or its model has no outline.
    """
    check_trajectory(trajectory)
    (lines, solid_bodies), t = drawing(trajectory), np.asarray(trajectory.t)
    count = int(np.clip(round(FRAMES_PER_SECOND * (t[-1] - t[0])), MIN_FRAMES, MAX_FRAMES))
    frame_samples = np.abs(t - np.linspace(t[0], t[-1], count)[:, None]).argmin(axis=1)
    is_spatial = lines[0].shape[-1] == 3

    figure = Figure(figsize=(5.0, 5.0), dpi=72, layout="constrained")
    FigureCanvasAgg(figure)
    ax = figure.add_subplot(projection="3d" if is_spatial else None)
    set_limits(ax, [*lines, *(body.corners() for body in solid_bodies)])
    traces = [ax.plot(*line[:0, 0].T, color=COLOURS[1], linewidth=1.0)[0] for line in lines]
    bodies = [ax.plot(*body.at(0).T, **EDGE_STYLE)[0] for body in solid_bodies]
    links = [ax.plot(*line[0].T, link_style(line), color=COLOURS[0], linewidth=2.5, markersize=4)[0] for line in lines]
    speed = _speed_text((t[-1] - t[0]) / (count / FRAMES_PER_SECOND))
    title = ax.set_title("", fontsize=10)

    set_points = lambda artist, points: artist.set_data_3d(*points.T) if is_spatial else artist.set_data(*points.T)

    def draw(i):
        for line, link, trace in zip(lines, links, traces, strict=True):
            for artist, points in ((link, line[i]), (trace, line[: i + 1, -1])):
                set_points(artist, points)
        for artist, body in zip(bodies, solid_bodies, strict=True):
            set_points(artist, body.at(i))
        title.set_text(f"{trajectory.title}, t = {t[i]:.{_time_digits(t)}f} s{speed}")
        return [*bodies, *links, *traces, title]

    draw(frame_samples[0])
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # the layout of the first frame, not computed again for each
    return FuncAnimation(
        figure, draw, frames=frame_samples, interval=1000 / FRAMES_PER_SECOND, blit=False, cache_frame_data=False
    )


def save_animation(
    animation: FuncAnimation, path: str | os.PathLike, *, on_frame: Callable[[int, int], None] | None = None
) -> Path:
    """Write an animation to a file. The file is replaced only after all of it has been written.

    Parameters
    ----------
    animation
        Result of ``animate``.
    path
        File name, ending in .gif or .mp4. The latter needs the program ffmpeg.
    on_frame
        Function of the index of a frame and the number of frames, called after each frame. Default: none.

    Returns
    -------
    Path
        The path.

    Raises
    ------
    InputError
        If ``path`` has another ending, or ffmpeg is missing.
    """
    if not isinstance(animation, FuncAnimation):
        raise InputError(f"animation must be what ukjax.plot.animate returned, got {kind_of(animation)}")
    path = as_path(path)
    if complaint := why_not_writable(path):
        raise InputError(complaint)

    def write(part: Path) -> None:
        writer: AbstractMovieWriter = (
            PillowWriter(FRAMES_PER_SECOND) if path.suffix == ".gif" else FFMpegWriter(FRAMES_PER_SECOND)
        )
        animation.save(str(part), writer=writer, dpi=100, progress_callback=on_frame)

    write_whole(path, write)
    return path


def why_not_writable(path: Path) -> str:
    """Return why an animation cannot be written to ``path``, or an empty string if it can."""
    if path.suffix not in MOVIES:
        page = "; for a page, ukjax.view(trajectory).save(path)" if path.suffix == ".html" else ""
        return f"an animation must end in {', '.join(MOVIES)}, got {str(path)!r}{page}"
    if path.suffix == ".mp4" and shutil.which("ffmpeg") is None:
        return f"{path.name} needs the program ffmpeg, which is not installed: install it, or choose .gif"
    return ""


def _speed_text(factor):
    if 0.95 < factor < 1.05:
        return ""
    return f", {factor:.3g}× as fast" if factor > 1 else f", {1 / factor:.3g}× slower"


def _time_digits(t):
    return int(np.clip(2 - np.floor(np.log10(t[-1] - t[0])), 1, 6))
