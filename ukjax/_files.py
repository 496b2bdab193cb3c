"""Files that appear whole or not at all, in the one place where any are written."""

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
except ImportError:  # as on Windows
    fcntl = None

PART = ".ukjax-part-"
"""How the names of unfinished files begin, whatever their own are, which may be as long as a folder takes. Then follow
the host, the process and the time [ns] that made them."""

NAME = re.compile(rf"{re.escape(PART)}(?P<host>.*)-(?P<process>\d+)-(?P<time>\d+)-\w+(\..*)?")

DAY = 86_400.0
"""Seconds after which an unfinished file of another host counts as abandoned."""

NO_FOLDER_SYNC = frozenset({errno.EINVAL, errno.EACCES, errno.EBADF, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
"""Errors of file systems that cannot write a folder to the disk on demand."""

NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL})
"""Errors of file systems without hard links."""


def write_whole(path: Path, write: Callable[[Path], Any], new: bool = False) -> None:
    """Let ``write`` make a file beside ``path`` and give it that name only when it is complete and on the disk.

    A link stays one, and a file that is replaced leaves its permissions to the new one; if it is to be ``new``, one
    that is there stays, and ``FileExistsError`` is raised, also if another process makes it at the same moment. What a
    process that was killed has left unfinished in the folder is removed. Raises ``OSError`` with ``path`` as it was
    given.
    """
    try:
        target = _target(path)
        remove_abandoned(target.parent)
        with _part(target) as part:
            write(part)
            with open(part, "rb+") as written:
                os.fsync(written.fileno())
            if target.exists():
                os.chmod(part, stat.S_IMODE(target.stat().st_mode))
            if new:
                _link(part, target)
            else:
                os.replace(part, target)
            _sync_folder(target.parent)
    except OSError as error:  # the name of the part says nothing to who gave another
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), str(path)) from error


def check_writable(path: Path) -> None:
    """A file can be made there, as far as that can be known without making it; else ``OSError``."""
    with _part(_target(path)):
        pass


def write_json(path: Path, content: dict[str, Any], new: bool = False) -> Path:
    """``content`` as JSON, as ``write_whole`` writes it."""
    write_whole(path, lambda part: part.write_text(json.dumps(content, indent=1) + "\n"), new)
    return path


@contextlib.contextmanager
def locked(path: Path, alone: bool) -> Iterator[bool]:
    """Lock the file ``path``, ``alone`` or together with others that do not ask to be alone; whether that was possible.
    The lock ends with the process, however that ends. Where the disk or the system has no locks there is a warning,
    and no other process is kept out."""
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
                f"{str(path.parent)!r} is on a disk without locks ({error.strerror}): nothing keeps a second process "
                "from writing there at the same time; start only one, or give each its own rank",
                stacklevel=4,
            )
        yield True


def remove_abandoned(folder: Path) -> None:
    """Remove unfinished files that nobody will finish: those of processes of this host that have ended, and any that
    nobody has written to for a day; none that is locked. Locks alone do not tell: not every disk that several hosts
    share has locks that reach from one to the other."""
    for part in folder.glob(f"{PART}*"):
        with contextlib.suppress(OSError):
            if _is_abandoned(part):
                part.unlink()


def _is_abandoned(part: Path) -> bool:
    made = NAME.fullmatch(part.name)
    ended = False
    if made is not None and made["host"] == _host() and os.name == "posix":  # elsewhere os.kill ends a process
        ended = not _is_running(int(made["process"]))
    if not ended and time.time() - part.stat().st_mtime < DAY:
        return False
    if fcntl is not None:  # a container may have the name of its host, and processes that are not seen from here
        with open(part, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            except OSError:  # not every disk has locks
                pass
    return True


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)  # sends nothing
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _host() -> str:
    return re.sub(r"[^\w.]", "_", socket.gethostname())[:64]


@contextlib.contextmanager
def _part(target: Path) -> Iterator[Path]:
    """An empty file beside ``target``, for others to read no more than that is; locked, where it may be renamed while
    it is open. Nothing is left of it if it is not given another name."""
    made = f"{_host()}-{os.getpid()}-{time.time_ns()}-{secrets.token_hex(4)}"
    path = target.parent / f"{PART}{made}{target.suffix}"
    mode = stat.S_IMODE(target.stat().st_mode) | 0o600 if target.exists() else 0o666  # less what the process masks
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDONLY, mode)
    try:
        if fcntl is None:
            os.close(handle)
        else:
            with contextlib.suppress(OSError):  # not every disk has locks
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield path
    finally:
        if fcntl is not None:
            os.close(handle)
        path.unlink(missing_ok=True)


def _link(part: Path, target: Path) -> None:
    """Give ``part`` the name of ``target``, which must not be there yet."""
    try:
        os.link(part, target)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if target.exists():
            raise FileExistsError(errno.EEXIST, "it is there already") from None
        os.replace(part, target)


def _sync_folder(folder: Path) -> None:
    """Write the folder to the disk, so that a new name is there after a crash."""
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
