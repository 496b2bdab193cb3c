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

Write = Callable[[int, int, dict[str, np.ndarray]], None]
"""Keep what became of the members from, and up to which."""


class AbstractShards(abc.ABC):
    """Those of one folder. ``chunk_is_fixed`` where the first chunk's size is that of all, whoever goes on with it."""

    chunk_is_fixed: bool

    @abc.abstractmethod
    def done(self) -> list[tuple[int, int]]:
        """Which members are there: from, and up to which."""

    @abc.abstractmethod
    def read(self, first: int, last: int, names: Iterable[str] | None) -> dict[str, np.ndarray]:
        """What is there of members that were done together, all of it or by ``names``; ``ValueError`` where it is
        damaged."""

    @abc.abstractmethod
    def writer(self, told: dict[str, Any]) -> Write:
        """Who keeps what became of members of the ensemble that is ``told``."""


class NpzShards(AbstractShards):
    """A NumPy archive for each chunk that was done, which says in its name which members it holds."""

    chunk_is_fixed = False
    name = re.compile(r"members-(\d+)-(\d+)\.npz")

    def __init__(self, path: Path):
        self.path = path

    def done(self):
        found = (self.name.fullmatch(name) for name in names_in(self.path))
        return sorted((int(each[1]), int(each[2])) for each in found if each)

    def read(self, first, last, names):
        path = self._file(first, last)
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as found:
                return {name: found[name] for name in (found.files if names is None else names)}
        except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError, OSError) as error:
            raise damaged(path, error) from None

    def writer(self, told):
        def write(first, last, arrays):
            def written(part):
                with open(part, "wb") as file:
                    np.savez(file, allow_pickle=False, **arrays)

            write_whole(self._file(first, last), written)

        return write

    def _file(self, first, last):
        return self.path / f"members-{first:09d}-{last:09d}.npz"


def damaged(path: Path, error: Exception) -> ValueError:
    """What is said of a file that cannot be read."""
    return ValueError(
        f"{str(path)!r} is damaged ({error}): remove it, and run the ensemble again to have these members"
    )


def names_in(folder: Path) -> list[str]:
    """Those of the files that have something in them; none where there is no such folder."""
    found = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            with contextlib.suppress(OSError):  # another's unfinished file, which has got its name meanwhile
                if entry.stat().st_size:
                    found.append(entry.name)
    return found
