"""Self-contained HTML page that animates a trajectory: positions as JSON, a canvas and a time slider."""

import base64
import functools
import html
import json
import os
import string
import sys
import tempfile
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .._check import as_path
from .._errors import InputError
from .._files import write_whole
from .._motion.trajectory.trajectory import Trajectory
from .lines import check_trajectory, is_rim, outlines, solids, touching_points

MAX_POSITION_BYTES = 6_000_000
"""Limit on the bytes of positions in a page, so that browsers open it quickly; longer motions show fewer samples."""

NUMBERS_PER_POSE = 12
"""Numbers per pose of a body: the columns of p and R."""


class View(NamedTuple):
    """Animation of a trajectory as an HTML page. Notebooks display it inline.

    Attributes
    ----------
    title
        Title of the page.
    page
        Text of the HTML page.
    """

    title: str
    page: str

    def __repr__(self) -> str:
        return f"View({self.title!r}, {len(self.page) / 1024:.0f} KiB): .show() opens a browser, .save(path) keeps it"

    def save(self, path: str | os.PathLike) -> Path:
        """Write the page to a file. The file is replaced only after all of it has been written.

        Parameters
        ----------
        path
            File name, ending in .html.

        Returns
        -------
        Path
            The path.

        Raises
        ------
        InputError
            If ``path`` does not end in .html.
        """
        path = as_path(path)
        if path.suffix != ".html":
            raise InputError(f"a page must end in .html, got {str(path)!r}")
        write_whole(path, lambda part: part.write_text(self.page, encoding="utf-8"))
        return path

    def show(self) -> Path:
        """Write the page to a temporary file and open it in the browser, if this machine has a screen.

        Returns
        -------
        Path
            The temporary file. It is not deleted by ukjax.
        """
        path = self.save(Path(tempfile.mkdtemp(prefix="ukjax-")) / "motion.html")
        open_in_browser(path)
        return path

    def _repr_html_(self) -> str:
        frame = "width:100%;height:520px;border:0"
        return f'<iframe title="{html.escape(self.title)}" style="{frame}" srcdoc="{html.escape(self.page)}"></iframe>'


def view(trajectory: Trajectory, outline: Callable | None = None) -> View:
    """Animate a single trajectory as an HTML page: links, edges of bodies, and traces of the ends of the lines.

    In a notebook, ``uk.view(motion)`` displays the animation. ``.show()`` opens it in a browser,
    ``.save("swing.html")`` writes a file. The page stores the positions at the samples and interpolates linearly
    between them. Points of contact are marked while they touch. It needs neither a network connection nor
    matplotlib. Motions of 2 to 30 s play in real time, others faster or slower; the page displays the factor.

    Parameters
    ----------
    trajectory
        The trajectory to animate.
    outline
        Function ``outline(t, q)`` that returns the lines at one instant [m]: an array (points, 2), an array
        (points, 3) with z upwards, or a tuple of such arrays. The last point of each line leaves a trace. By default
        the ``outline`` of the model: gallery systems and ``Mechanism`` have one.

    Returns
    -------
    View
        The page.

    Raises
    ------
    InputError
        If ``trajectory`` is a batch, or if there is no outline.
    """
    check_trajectory(trajectory)
    reached = trajectory.reached()
    links = outlines(reached, outline)
    bodies = [] if outline is not None else solids(reached)
    points = np.concatenate(links, axis=1)
    touching = None if outline is not None else touching_points(reached)
    if touching is None:
        touching = np.zeros((len(points), 0, points.shape[2]))
    t = np.asarray(reached.t, float)
    numbers_per_sample = points[0].size + touching[0].size + NUMBERS_PER_POSE * len(bodies)
    shown = _shown_samples(t, MAX_POSITION_BYTES // (4 * numbers_per_sample))
    all_points = np.concatenate([points, *(body.corners() for body in bodies)], axis=1)
    low, high = np.nanmin(all_points, axis=(0, 1)), np.nanmax(all_points, axis=(0, 1))
    centre = (low + high) / 2  # positions relative to it are accurate enough in single precision
    motion = {
        "title": trajectory.title,
        "ended": "" if bool(trajectory.finished) else f"ended at t = {t[-1]:.4g} s: {trajectory.reason}",
        "dimensions": points.shape[2],
        "centre": centre.tolist(),
        "half": ((high - low) / 2).tolist(),
        "t": t[shown].tolist(),
        "links": [{"points": line.shape[1], "joints": not is_rim(line)} for line in links],
        "bodies": [
            {
                "edges": _numbers(body.edges),
                "poses": _numbers(np.concatenate([(body.p - centre)[..., None], body.R], axis=2)[shown]),
            }
            for body in bodies
        ],
        "touching": _numbers(touching[shown] - centre),
        "positions": _numbers(points[shown] - centre),
    }
    data = json.dumps(motion).replace("<", "\\u003c")  # so that no text closes the enclosing script element
    return View(
        trajectory.title,
        _template().substitute(title=html.escape(trajectory.title), motion=data, script=_read_file("page.js")),
    )


def _numbers(x):
    """Encode an array as the base64 text of its little-endian float32 bytes."""
    return base64.b64encode(x.astype("<f4").tobytes()).decode()


def open_in_browser(path: Path) -> bool:
    """Open a file in the browser if this machine has a screen. Returns whether the browser was opened."""
    has_screen = sys.platform in ("win32", "darwin") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    return bool(has_screen) and webbrowser.open(
        path.resolve().as_uri()
    )  # without a screen, webbrowser may start a text browser


def _shown_samples(t, max_count):
    """Return the indices of the samples to show: all, or about ``max_count`` equally spaced in time."""
    if len(t) <= max_count:
        return np.arange(len(t))
    return np.unique(np.abs(t - np.linspace(t[0], t[-1], max(max_count, 2))[:, None]).argmin(axis=1))


@functools.cache
def _read_file(name):
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _template():
    return string.Template(_read_file("page.html"))
