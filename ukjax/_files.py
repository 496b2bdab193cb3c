"""Atomic writing of files and locks. All files of ukjax are written here."""

import contextlib
import errno
import json
import os
import re
import secrets
import socket
import stat
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

PART = ".ukjax-part-"
"""Prefix of the names of temporary files. The host, the process id and the time [ns] follow. The name of the target is
not included, because it may already have the maximal length."""

NAME = re.compile(rf"{re.escape(PART)}(?P<host>.*)-(?P<process>\d+)-(?P<time>\d+)-\w+(\..*)?")

MAX_AGE_SECONDS = 86_400.0
"""Age [s] after which a temporary file counts as abandoned if its process cannot be checked."""

NO_FOLDER_SYNC = frozenset({errno.EINVAL, errno.EACCES, errno.EBADF, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
"""Errors of file systems that do not support fsync of a folder."""

NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL})
"""Errors of file systems without hard links."""


def write_whole(path: Path, write: Callable[[Path], Any], new: bool = False) -> None:
    """Write a file atomically: ``write`` fills a temporary file, which is synced to disk and renamed to ``path``.

    A symbolic link at ``path`` is kept and its target is replaced. The permissions of a replaced file are kept. If
    ``new``, an existing file is not replaced and ``FileExistsError`` is raised, also if another process creates it at
    the same time. Abandoned temporary files in the folder are removed. Raises ``OSError`` with the given ``path``.
    """
    try:
        target = _target(path)
        remove_abandoned(target.parent)
        with _part(target) as part:
            write(part)
            with open(part, "rb+") as file:
                os.fsync(file.fileno())
            if target.exists():
                os.chmod(part, stat.S_IMODE(target.stat().st_mode))
            if new:
                _link(part, target)
            else:
                os.replace(part, target)
            _sync_folder(target.parent)
    except OSError as error:  # report the given path, not the temporary one
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), str(path)) from error


def check_writable(path: Path) -> None:
    """Raise ``OSError`` if a file cannot be written at ``path``, as far as this can be tested without writing it."""
    with _part(_target(path)):
        pass


def write_json(path: Path, content: dict[str, Any], new: bool = False) -> Path:
    """Write ``content`` as JSON by ``write_whole``."""
    write_whole(path, lambda part: part.write_text(json.dumps(content, indent=1) + "\n"), new)
    return path


@contextlib.contextmanager
def locked(path: Path, alone: bool) -> Iterator[bool]:
    """Lock the file ``path``, exclusively if ``alone``, else shared. Yields whether the lock was acquired.

    The lock ends with the process. If the disk or the system has no locks, there is a warning and no protection.
    """
    with open(path, "ab") as file:
        try:
            if fcntl is None:
                raise OSError(errno.ENOSYS, "this system has no flock")
            fcntl.flock(file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError as error:
            warnings.warn(
                f"{str(path.parent)!r} is on a disk without file locks ({error.strerror}), so that a second process "
                "could write there at the same time: start only one process, or give each its own rank",
                stacklevel=4,
            )
        yield True


def remove_abandoned(folder: Path) -> None:
    """Remove abandoned temporary files: those of ended processes of this host, and those not modified for a day.

    Locked files are not removed. Locks alone are not sufficient, because on some shared disks the locks of one host are
    not visible to others.
    """
    for part in folder.glob(f"{PART}*"):
        with contextlib.suppress(OSError):
            if _is_abandoned(part):
                part.unlink()


def _is_abandoned(part: Path) -> bool:
    match = NAME.fullmatch(part.name)
    ended = False
    if match is not None and match["host"] == _host() and os.name == "posix":  # elsewhere os.kill ends the process
        ended = not _is_running(int(match["process"]))
    if not ended and time.time() - part.stat().st_mtime < MAX_AGE_SECONDS:
        return False
    if fcntl is not None:  # a container may share the name of its host, whose processes it cannot see
        with open(part, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            except OSError:  # no locks on this disk
                pass
    return True


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)  # signal 0 only tests existence
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _host() -> str:
    return re.sub(r"[^\w.]", "_", socket.gethostname())[:64]


@contextlib.contextmanager
def _part(target: Path) -> Iterator[Path]:
    """Create an empty temporary file in the folder of ``target``, with the permissions of ``target``. It is deleted on
    exit unless renamed.

    It is locked on systems that can rename an open file.
    """
    suffix = f"{_host()}-{os.getpid()}-{time.time_ns()}-{secrets.token_hex(4)}"
    path = target.parent / f"{PART}{suffix}{target.suffix}"
    mode = stat.S_IMODE(target.stat().st_mode) | 0o600 if target.exists() else 0o666  # minus the umask
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDONLY, mode)
    try:
        if fcntl is None:
            os.close(handle)
        else:
            with contextlib.suppress(OSError):  # no locks on this disk
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield path
    finally:
        if fcntl is not None:
            os.close(handle)
        path.unlink(missing_ok=True)


def _link(part: Path, target: Path) -> None:
    """Rename ``part`` to ``target``. Raises ``FileExistsError`` if ``target`` exists."""
    try:
        os.link(part, target)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if target.exists():
            raise FileExistsError(errno.EEXIST, "it is there already") from None
        os.replace(part, target)


def _sync_folder(folder: Path) -> None:
    """Sync the folder to disk, so that a new name survives a crash."""
    if os.name != "posix":
        return
    try:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in NO_FOLDER_SYNC:
            raise


def _target(path: Path) -> Path:
    """Resolve links and check that a file can be written there. Raises ``OSError`` otherwise.

    Only a regular, writable file may be replaced, although the folder may allow more.
    """
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
