"""Errors in the usage of the command line, and checks that run before the computation."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from .._errors import InputError, MissingPackageError
from .._files import check_writable


class UsageError(Exception):
    """Error in the usage of the command line: printed as one line, exit code 2."""


@contextlib.contextmanager
def library_errors_as_usage_errors() -> Iterator[None]:
    """Context manager: turn an error that the library raises for bad input into a ``UsageError``.

    Any other exception is a defect: it passes unchanged, with its traceback.
    """
    try:
        yield
    except (InputError, MissingPackageError) as error:
        raise UsageError(str(error)) from None


def check_output(option: str, path: str, endings: tuple[str, ...] = ()) -> Path:
    """Return ``path`` if it is writable and has one of the ``endings``, if any are given; else raise ``UsageError``."""
    target = Path(path)
    if endings and target.suffix not in endings:
        raise UsageError(f"{option} must end in {', '.join(endings)}, got {path!r}")
    try:
        check_writable(target)
    except OSError as error:
        raise UsageError(f"{option} {path!r} cannot be written: {error.strerror}") from None
    return target


def check_memory(subject: str, numbers: int, advice: str) -> None:
    """Raise ``UsageError`` if that many float64 ``numbers`` exceed the memory of this machine."""
    from .._check import memory

    needed_gib, available_gib = 8.0 * numbers / 2**30, memory() / 2**30
    if needed_gib > available_gib:
        raise UsageError(
            f"{subject} at least {needed_gib:.3g} GiB of memory, and there are {available_gib:.3g} GiB: {advice}"
        )
