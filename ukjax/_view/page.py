"""Self-contained HTML page that animates a trajectory."""

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
from typing import Any, NamedTuple

from .._check import as_path
from .._errors import InputError
from .._files import write_whole
from .._motion.trajectory.trajectory import Trajectory
from .._precision import Numbers
from .lines import check_trajectory
from .scene import scene

SCRIPTS = ("motion", "camera", "flat", "solids", "chart", "page")
"""The parts of the script of a page, in the order in which they are joined."""


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


def view(
    trajectory: Trajectory,
    outline: Callable | None = None,
    *,
    forces: bool = False,
    traces: Callable | None = None,
    ghosts: Trajectory | None = None,
    colour: Numbers | None = None,
) -> View:
    """Animate a single trajectory as an HTML page: shaded bodies, lines between joints, traces and contacts.

    In a notebook, ``uk.view(motion)`` displays the animation. ``.show()`` opens it in a browser,
    ``.save("swing.html")`` writes a file. The page needs neither a network connection nor matplotlib. It has a switch
    for each displayed item; a camera that shows the whole motion, the present pose, or one body; time histories below
    the picture; and buttons that save a picture or a video.

    The page stores the positions at the samples and interpolates linearly between them. Motions of 2 to 30 s play in
    real time, other motions faster or slower; the page displays the factor.

    Parameters
    ----------
    trajectory
        The trajectory to animate.
    outline
        Function ``outline(t, q)`` that returns the lines at one instant [m]: an array (points, 2), an array
        (points, 3) with z upwards, or a tuple of such arrays. The last point of each line leaves a trace. By default
        the ``outline`` of the model: gallery systems and ``Mechanism`` have one.
    forces
        Whether forces and moments are drawn as arrows, with a switch for each name, and plotted. For a ``Mechanism``:
        the weights, the contact forces, and without contacts the forces and moments of its joints on their child
        bodies. For other systems: the forces of ``Trajectory.forces`` on the points of the outline, if the
        generalised forces determine them.
    traces
        Function ``traces(t, q)`` that returns further points at one instant [m], (k, 2) or (k, 3). They leave traces.
    ghosts
        A batch of motions, such as an ensemble, with the times of ``trajectory``. They are drawn as thin lines. At most
        100 are shown.
    colour
        A number for each motion of ``ghosts``, (members,), shown as its colour.

    Returns
    -------
    View
        The page.

    Raises
    ------
    InputError
        If ``trajectory`` is a batch, if there is no outline, or if ``traces``, ``ghosts`` or ``colour`` do not fit
        ``trajectory``.
    """
    check_trajectory(trajectory)
    return View(trajectory.title, page_of(scene(trajectory, outline, forces, traces, ghosts, colour)))


def page_of(motion: dict[str, Any], controls: str = "", scripts: tuple[str, ...] = ()) -> str:
    """The text of a page that shows a ``scene``, with further ``controls`` and ``scripts``."""
    data = json.dumps(motion).replace("<", "\\u003c")  # so that no text closes the enclosing script element
    script = "\n".join(_read_file(f"script/{name}.js") for name in (*SCRIPTS, *scripts))
    page = string.Template(_read_file("page.html"))
    return page.substitute(title=html.escape(motion["title"]), motion=data, script=script, controls=controls)


def open_in_browser(path: Path) -> bool:
    """Open a file in the browser if this machine has a screen. Returns whether the browser was opened."""
    return open_address(path.resolve().as_uri())


def open_address(address: str) -> bool:
    """Open an address in the browser if this machine has a screen. Returns whether the browser was opened."""
    has_screen = sys.platform in ("win32", "darwin") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    return bool(has_screen) and webbrowser.open(address)  # without a screen, webbrowser may start a text browser


@functools.cache
def _read_file(name):
    return (Path(__file__).parent / name).read_text(encoding="utf-8")
