"""One page that shows a motion: a canvas, a slider, and the numbers; it needs nothing but a browser."""

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
from .._files import write_whole
from .._motion.trajectory.trajectory import Trajectory
from .lines import check_trajectory, is_rim, outlines, solids

LARGEST = 6_000_000
"""Bytes of positions in a page, which browsers open without a wait; longer motions are shown by fewer samples."""

POSE = 12
"""Numbers that say where a body is."""


class View(NamedTuple):
    """A page (HTML) that shows the motion called ``title``. A notebook shows it by itself."""

    title: str
    page: str

    def __repr__(self) -> str:
        return f"View({self.title!r}, {len(self.page) / 1024:.0f} KiB): .show() opens a browser, .save(path) keeps it"

    def save(self, path: str | os.PathLike) -> Path:
        """Write to ``path`` (.html), whole or not at all. Raises ``ValueError`` for another ending."""
        path = as_path(path)
        if path.suffix != ".html":
            raise ValueError(f"a page must end in .html, got {str(path)!r}")
        write_whole(path, lambda part: part.write_text(self.page, encoding="utf-8"))
        return path

    def show(self) -> Path:
        """Open it in the browser, if this machine has a screen; where the page lies, until the machine is switched
        off, in any case."""
        path = self.save(Path(tempfile.mkdtemp(prefix="ukjax-")) / "motion.html")
        open_in_browser(path)
        return path

    def _repr_html_(self) -> str:
        frame = "width:100%;height:520px;border:0"
        return f'<iframe title="{html.escape(self.title)}" style="{frame}" srcdoc="{html.escape(self.page)}"></iframe>'


def view(trajectory: Trajectory, outline: Callable | None = None) -> View:
    """A single trajectory as a page to look at: links, the edges of bodies, the traces of its ends, playing in real
    time where that is between 2 and 30 s, otherwise faster or slower, as the page says.

    In a notebook ``uk.view(motion)`` is the moving picture; ``.show()`` opens a browser, ``.save("swing.html")`` keeps
    it. ``outline(t, q)`` gives the lines at one instant [m]: an array (points, 2), or (points, 3) with z upwards, or a
    tuple of them, whose last points leave traces; left out, they are those of the mechanism (the gallery's,
    ``Mechanism``, or your own with an ``outline``). The page holds the positions at the samples and goes straight
    between them; it needs no network and no matplotlib. Raises ``ValueError`` for a batch, and without lines.
    """
    check_trajectory(trajectory)
    reached = trajectory.reached()
    links = outlines(reached, outline)
    bodies = [] if outline is not None else solids(reached)
    points = np.concatenate(links, axis=1)
    t = np.asarray(reached.t, float)
    shown = _shown(t, LARGEST // (4 * (points[0].size + POSE * len(bodies))))
    all_points = np.concatenate([points, *(body.corners() for body in bodies)], axis=1)
    low, high = np.nanmin(all_points, axis=(0, 1)), np.nanmax(all_points, axis=(0, 1))
    centre = (low + high) / 2  # near which single precision is fine enough to look at
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
        "positions": _numbers(points[shown] - centre),
    }
    data = json.dumps(motion).replace("<", "\\u003c")  # nothing in it ends the script that holds it
    return View(
        trajectory.title,
        _template().substitute(title=html.escape(trajectory.title), motion=data, script=_file("page.js")),
    )


def _numbers(x):
    return base64.b64encode(x.astype("<f4").tobytes()).decode()


def open_in_browser(path: Path) -> bool:
    """Open a file where there is a screen; whether that was possible."""
    has_screen = sys.platform in ("win32", "darwin") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    return bool(has_screen) and webbrowser.open(path.resolve().as_uri())  # else it would be one in the terminal


def _shown(t, most):
    """The samples to be shown: all, or as many as there is room for, equally far apart in time."""
    if len(t) <= most:
        return np.arange(len(t))
    return np.unique(np.abs(t - np.linspace(t[0], t[-1], max(most, 2))[:, None]).argmin(axis=1))


@functools.cache
def _file(name):
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _template():
    return string.Template(_file("page.html"))
