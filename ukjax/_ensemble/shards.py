"""Files of a store, one or a set of files for each chunk of members; each file is written atomically."""

import abc
import contextlib
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from .._errors import InputError
from .._files import write_whole

FINGERPRINT = "fingerprint"
"""Name of the array, or attribute, that identifies the ensemble that a file belongs to."""

Write = Callable[[int, int, dict[str, np.ndarray]], None]
"""``write(first, last, arrays)`` stores the arrays of the members ``first``, ..., ``last`` - 1."""


class AbstractShards(abc.ABC):
    """The files of one folder.

    ``chunk_is_fixed`` is whether all files must have as many members as the first. The argument ``manifest`` describes
    the ensemble of the folder. Methods raise ``InputError`` for files that do not belong to it.
    """

    chunk_is_fixed: bool

    @abc.abstractmethod
    def has_members(self) -> bool:
        """Whether the folder has any members."""

    @abc.abstractmethod
    def done(self, manifest: dict[str, Any]) -> list[tuple[int, int]]:
        """The computed members, as (first, last) with ``last`` excluded, for each file or set of files."""

    @abc.abstractmethod
    def read(
        self, manifest: dict[str, Any], first: int, last: int, names: Iterable[str] | None
    ) -> dict[str, np.ndarray]:
        """The arrays ``names`` (None: all) of the members ``first``, ..., ``last`` - 1, which one file contains.

        Raises ``InputError`` if the file is damaged.
        """

    @abc.abstractmethod
    def writer(self, manifest: dict[str, Any]) -> Write:
        """The function that stores the arrays of members."""


class NpzShards(AbstractShards):
    """A NumPy archive for each computed chunk. Its name contains the range of members."""

    chunk_is_fixed = False
    name = re.compile(r"members-(\d+)-(\d+)\.npz")

    def __init__(self, path: Path):
        self.path = path

    def has_members(self):
        return any(map(self.name.fullmatch, nonempty_files(self.path)))

    def done(self, manifest):
        files = sorted(
            (int(each[1]), int(each[2]), name)
            for name in nonempty_files(self.path)
            if (each := self.name.fullmatch(name)) is not None
        )
        for first, last, name in files:
            if not first < last <= manifest["members"]:
                raise foreign(self.path / name, f"there are {manifest['members']} members here")
        return [(first, last) for first, last, _ in files]

    def read(self, manifest, first, last, names):
        path = self._file(first, last)
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
                written = archive[FINGERPRINT].tobytes().hex()
                wanted = [name for name in archive.files if name != FINGERPRINT] if names is None else names
                arrays = {name: archive[name] for name in wanted}
        except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError, OSError) as error:
            raise damaged(path, error) from None
        if written != manifest["fingerprint"]:
            raise foreign(path, "its fingerprint is not that of this ensemble")
        for name, array in arrays.items():
            if array.shape[:1] != (last - first,):
                raise damaged(path, InputError(f"{name!r} has shape {array.shape} for {last - first} members"))
        return arrays

    def writer(self, manifest):
        fingerprint = np.frombuffer(bytes.fromhex(manifest["fingerprint"]), np.uint8)

        def write(first, last, arrays):
            def write_archive(part):
                # numpy.savez is not used: it would not allow arrays with the names of its own arguments.
                with zipfile.ZipFile(part, "w") as archive:
                    for name, array in {**arrays, FINGERPRINT: fingerprint}.items():
                        with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                            np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)

            write_whole(self._file(first, last), write_archive)

        return write

    def _file(self, first, last):
        return self.path / f"members-{first:09d}-{last:09d}.npz"


def foreign(path: Path, reason: str) -> InputError:
    """The error for a file that belongs to another ensemble."""
    return InputError(f"{str(path)!r} is of another ensemble ({reason}): move it away")


def damaged(path: Path, error: Exception) -> InputError:
    """The error for a file that cannot be read."""
    return InputError(
        f"{str(path)!r} is damaged ({error}): remove it, and run the ensemble again to compute these members"
    )


def nonempty_files(folder: Path) -> list[str]:
    """Names of the files that are not empty; none if the folder does not exist."""
    names = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            with contextlib.suppress(OSError):  # an unfinished file of another process, renamed meanwhile
                if entry.stat().st_size:
                    names.append(entry.name)
    return names
