"""Mistakes on the command line, and files that cannot be written, found before anything is computed."""

import os
import tempfile
from pathlib import Path


class UsageError(Exception):
    """One line for the user; the command ends with exit code 2."""


def check_output(option: str, path: str, endings: tuple[str, ...]) -> Path:
    """``path`` as something that can be written, or ``UsageError``."""
    target = Path(path)
    if target.suffix not in endings:
        raise UsageError(f"{option} must end in {', '.join(endings)}, got {path!r}")
    folder = target.parent
    if not folder.is_dir():
        raise UsageError(f"{option} {path!r} cannot be written: there is no folder {str(folder)!r}; make it first")
    if target.is_dir():
        raise UsageError(f"{option} {path!r} cannot be written: it is a folder")
    if not os.access(folder, os.W_OK) or (target.exists() and not os.access(target, os.W_OK)):
        raise UsageError(f"{option} {path!r} cannot be written: permission denied; choose another place")
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UsageError(f"{option} {path!r} cannot be written: {error.strerror}; choose another place") from None
    return target
