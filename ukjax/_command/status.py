"""A status line on the terminal while a command takes long: what it is doing, and for how many seconds."""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

DELAY = 2.0
"""Time after which the line appears [s]."""

INTERVAL = 0.5
"""Time between two updates of the line [s]."""

COMPILERS = ("jax._src.compiler", "jax._src.interpreters", "ukjax._kernel", "llvmlite")
"""Modules that trace, lower or compile. A compiled program is run by a ``__call__`` in one of them."""

ERASE = "\x1b[K"


class Status:
    """What the line says.

    Attributes
    ----------
    doing
        What the command does, such as "simulating".
    fraction
        The part of the work that is done, from 0 to 1; None if it is not known.
    """

    def __init__(self, doing: str):
        self.doing = doing
        self.fraction: float | None = None

    def line(self, seconds: float, compiling: bool) -> str:
        """Return the line after some ``seconds``: "simulating … 5 s", "writing … 5 s, 25 %, 15 s left"."""
        if self.fraction and self.fraction < 1:
            left = seconds * (1 - self.fraction) / self.fraction
            return f"{self.doing} … {seconds:.0f} s, {self.fraction:.0%}, {left:.0f} s left".replace("%", " %")
        return f"{'compiling' if compiling else self.doing} … {seconds:.0f} s"


@contextlib.contextmanager
def status_line(doing: str, hidden: bool = False) -> Iterator[Status]:
    """Context manager: show a line from ``DELAY`` on, if standard error is a terminal, unless ``hidden``.

    The cursor stays at the beginning of the line, so that any other output replaces it.
    """
    status, out = Status(doing), sys.stderr
    if hidden or not out.isatty():
        yield status
        return
    finished, thread, start = threading.Event(), threading.get_ident(), time.monotonic()

    def show():
        if finished.wait(DELAY):
            return
        while not finished.is_set():
            compiling = is_compiling(sys._current_frames().get(thread))
            out.write(f"{status.line(time.monotonic() - start, compiling)}{ERASE}\r")
            out.flush()
            finished.wait(INTERVAL)
        out.write(ERASE)
        out.flush()

    watcher = threading.Thread(target=show, daemon=True)
    watcher.start()
    try:
        yield status
    finally:
        finished.set()
        watcher.join()


def is_compiling(frame: FrameType | None) -> bool:
    """Return whether a thread whose innermost frame is ``frame`` traces, lowers or compiles a program."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(COMPILERS):
            return frame.f_code.co_name != "__call__"
        frame = frame.f_back
    return False
