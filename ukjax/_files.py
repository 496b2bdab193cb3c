"""Files that appear whole or not at all, in the one place where any are written."""

import contextlib
import errno
import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # as on Windows
    fcntl = None

PART = ".ukjax-part-"
"""How the names of unfinished files begin, whatever their own are, which may be as long as a folder takes."""


def write_whole(path: Path, write: Callable[[Path], Any]) -> None:
    """Let ``write`` make a file beside ``path`` and give it that name only when it is complete and on the disk.

    A link stays one, and a file that is replaced leaves its permissions to the new one. What a process that was killed
    has left unfinished in the folder is removed. Raises ``OSError`` with ``path`` as it was given.
    """
    try:
        target = _target(path)
        remove_abandoned(target.parent)
        with _part(target) as part:
            write(part)
            with open(part, "rb+") as written:
                os.fsync(written.fileno())
            os.chmod(part, _permissions(target))
            os.replace(part, target)
    except OSError as error:  # the name of the part says nothing to who gave another
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), str(path)) from error


def check_writable(path: Path) -> None:
    """A file can be made there, as far as that can be known without making it; else ``OSError``."""
    with _part(_target(path)):
        pass


def write_json(path: Path, content: dict[str, Any]) -> Path:
    """``content`` as JSON."""
    write_whole(path, lambda part: part.write_text(json.dumps(content, indent=1) + "\n"))
    return path


@contextlib.contextmanager
def locked(path: Path, alone: bool) -> Iterator[bool]:
    """Hold the file ``path``, ``alone`` or with others that do not want it for themselves; whether that was possible.
    The lock ends with the process, whatever becomes of it."""
    with open(path, "ab") as file:
        try:
            if fcntl is not None:
                fcntl.flock(file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError:  # not every disk has locks
            pass
        yield True


def remove_abandoned(folder: Path) -> None:
    """Remove the unfinished files of processes that are no more: one that still writes holds a lock."""
    if fcntl is None:
        return
    for part in folder.glob(f"{PART}*"):
        with contextlib.suppress(OSError), open(part, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            part.unlink()


@contextlib.contextmanager
def _part(target: Path) -> Iterator[Path]:
    """An empty file beside ``target``, locked; nothing is left of it if it is not given another name."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=PART, suffix=target.suffix)
    with open(handle, "rb") as held:
        try:
            if fcntl is not None:
                with contextlib.suppress(OSError):  # not every disk has locks
                    fcntl.flock(held, fcntl.LOCK_EX)
            yield Path(name)
        finally:
            Path(name).unlink(missing_ok=True)


def _target(path: Path) -> Path:
    """Where the file will be: not in place of a link, but of what it leads to. Only an ordinary file that may be
    written to is replaced, although its folder would allow more."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, f"there is no folder {str(path.parent)!r}; make it first")
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "it is a device or a pipe, no ordinary file")
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "permission denied")
    return target


def _permissions(target: Path) -> int:
    """Those of the file that is replaced; or as if a new one had been opened in the ordinary way."""
    if target.exists():
        return stat.S_IMODE(target.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
