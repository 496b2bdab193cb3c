"""Errors in the usage of the command line, and checks that run before the computation."""

import argparse
import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from .._errors import InputError, MissingPackageError
from .._files import check_writable
from .._names import closest, did_you_mean_one_of


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


def one_of(*words: str) -> dict[str, Any]:
    """Return the keywords of an option whose value is one of ``words``; its error suggests a similar word."""

    def word(value: str) -> str:
        if value not in words:
            raise argparse.ArgumentTypeError(f"unknown value {value!r}{did_you_mean_one_of(value, words)}")
        return value

    return {"type": word, "choices": words}


def did_you_mean_file(name: str, others: Iterable[str] = ()) -> str:
    """Return the end of an error sentence about a missing file, which suggests a file with a similar name.

    ``others`` are further names, beside those of the files in the same folder.
    """
    folder = Path(name).parent
    if not folder.is_dir():
        return f": there is no folder {str(folder)!r}"
    files = [str(file) for file in folder.iterdir() if file.suffix == Path(name).suffix]
    by_stem = {Path(file).stem: file for file in (*others, *files)}
    match = closest(Path(name).stem, by_stem)
    return "" if match is None else f"; did you mean {by_stem[match]!r}?"


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
