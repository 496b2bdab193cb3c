"""How a folder keeps what became of its members: in files of which each is there whole or not at all."""

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

from .._files import write_whole

FINGERPRINT = "fingerprint"
"""What the array is called by which a file says to which ensemble it belongs."""

Write = Callable[[int, int, dict[str, np.ndarray]], None]
"""Keep what became of the members from, and up to which."""


class AbstractShards(abc.ABC):
    """Those of one folder. ``chunk_is_fixed`` where the first chunk's size is that of all, whoever goes on with it.

    The ``manifest`` that methods take describes the ensemble of the folder. Files that do not belong to it are a
    ``ValueError``.
    """

    chunk_is_fixed: bool

    @abc.abstractmethod
    def has_members(self) -> bool:
        """Whether there are any members."""

    @abc.abstractmethod
    def done(self, manifest: dict[str, Any]) -> list[tuple[int, int]]:
        """Which members are there: from, and up to which, for each file or set of files."""

    @abc.abstractmethod
    def read(
        self, manifest: dict[str, Any], first: int, last: int, names: Iterable[str] | None
    ) -> dict[str, np.ndarray]:
        """What is there of members that were done together, all of it or by ``names``; ``ValueError`` where it is
        damaged."""

    @abc.abstractmethod
    def writer(self, manifest: dict[str, Any]) -> Write:
        """A function that keeps what became of members."""


class NpzShards(AbstractShards):
    """A NumPy archive for each chunk that was done, which says in its name which members it holds."""

    chunk_is_fixed = False
    name = re.compile(r"members-(\d+)-(\d+)\.npz")

    def __init__(self, path: Path):
        self.path = path

    def has_members(self):
        return any(map(self.name.fullmatch, nonempty_files(self.path)))

    def done(self, manifest):
        found = sorted(
            (int(each[1]), int(each[2]), name)
            for name in nonempty_files(self.path)
            if (each := self.name.fullmatch(name)) is not None
        )
        for first, last, name in found:
            if not first < last <= manifest["members"]:
                raise foreign(self.path / name, f"there are {manifest['members']} members here")
        return [(first, last) for first, last, _ in found]

    def read(self, manifest, first, last, names):
        path = self._file(first, last)
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as found:
                written = found[FINGERPRINT].tobytes().hex()
                wanted = [name for name in found.files if name != FINGERPRINT] if names is None else names
                arrays = {name: found[name] for name in wanted}
        except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError, OSError) as error:
            raise damaged(path, error) from None
        if written != manifest["fingerprint"]:
            raise foreign(path, "its fingerprint is not that of this ensemble")
        for name, array in arrays.items():
            if array.shape[:1] != (last - first,):
                raise damaged(path, ValueError(f"{name!r} has shape {array.shape} for {last - first} members"))
        return arrays

    def writer(self, manifest):
        mark = np.frombuffer(bytes.fromhex(manifest["fingerprint"]), np.uint8)

        def write(first, last, arrays):
            def written(part):
                # Not by numpy.savez, whose own arguments no array could be named after.
                with zipfile.ZipFile(part, "w") as archive:
                    for name, array in {**arrays, FINGERPRINT: mark}.items():
                        with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                            np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)

            write_whole(self._file(first, last), written)

        return write

    def _file(self, first, last):
        return self.path / f"members-{first:09d}-{last:09d}.npz"


def foreign(path: Path, why: str) -> ValueError:
    """What is said of a file that belongs to another ensemble."""
    return ValueError(f"{str(path)!r} is of another ensemble ({why}): move it away")


def damaged(path: Path, error: Exception) -> ValueError:
    """What is said of a file that cannot be read."""
    return ValueError(
        f"{str(path)!r} is damaged ({error}): remove it, and run the ensemble again to have these members"
    )


def nonempty_files(folder: Path) -> list[str]:
    """Those of the files that have something in them; none where there is no such folder."""
    found = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            with contextlib.suppress(OSError):  # another's unfinished file, which has got its name meanwhile
                if entry.stat().st_size:
                    found.append(entry.name)
    return found
