"""Mistakes on the command line, and files that cannot be written, found before anything is computed."""

import contextlib
import traceback
from collections.abc import Iterator
from pathlib import Path

from .._files import check_writable

PACKAGE = Path(__file__).parent.parent


class UsageError(Exception):
    """One line for the user; the command ends with exit code 2."""


@contextlib.contextmanager
def saying_what_is_refused() -> Iterator[None]:
    """What the library refuses in words of its own becomes ``UsageError``, and so does a package that it says is
    missing. What comes out of something that the library has called is a defect, and keeps its traceback."""
    try:
        yield
    except (ValueError, ImportError) as error:
        if _is_refusal(error):
            raise UsageError(str(error)) from None
        raise


def _is_refusal(error: Exception) -> bool:
    """Whether one of our own lines raised it. JAX cuts its frames out of tracebacks, so that what it raised seems to
    come from the line of ours that called it: only a line that says raise is one that refuses."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return Path(last.filename).is_relative_to(PACKAGE) and (last.line or "").startswith("raise ")


def check_output(option: str, path: str, endings: tuple[str, ...] = ()) -> Path:
    """``path`` as something that can be written, with one of the ``endings`` if there are any; or ``UsageError``."""
    target = Path(path)
    if endings and target.suffix not in endings:
        raise UsageError(f"{option} must end in {', '.join(endings)}, got {path!r}")
    try:
        check_writable(target)
    except OSError as error:
        raise UsageError(f"{option} {path!r} cannot be written: {error.strerror}") from None
    return target


def check_memory(what: str, numbers: int, advice: str) -> None:
    """So many ``numbers``, the least that is kept, fit into this machine, or ``UsageError``."""
    from .._check import memory

    needed, there = 8.0 * numbers / 2**30, memory() / 2**30
    if needed > there:
        raise UsageError(f"{what} at least {needed:.3g} GiB of memory, and there are {there:.3g} GiB: {advice}")
