"""A folder that holds an ensemble: what it is, in ``ensemble.json``, and files for each chunk that was done.

Every file is there whole or not at all, and says in its name which members it holds; so nothing else needs to be kept
of what was done. A folder has one writer at a time, or, of several that share the work, one for each share. Its name
says how it is kept, as that of any file does: with the ending .zarr as a Zarr group, else as NumPy archives.
"""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .._check import repr_of
from .._files import check_writable, locked, remove_abandoned, write_json
from .._fingerprint import first_difference
from .shards import AbstractShards, NpzShards, Write
from .zarr_shards import ZarrShards

MANIFEST = "ensemble.json"
REQUIRED_KEYS = {"model", "members", "over", "times", "keep", "coordinates", "archive", "chunk", "fingerprint"}


class Store:
    """The folder ``path``. ``chunk`` is how many members a file was begun to hold, None where nothing was begun; the
    shares of several jobs are counted in such chunks. ``chunk_is_fixed`` where no file may hold another number."""

    def __init__(self, path: Any):
        if not isinstance(path, str | os.PathLike) or not str(path):
            raise ValueError(f"store must be the name of a folder, got {repr_of(path)}")
        self.path = Path(path)
        self._manifest: Any = None
        there = self.manifest(missing_is_none=True)
        by_name = "zarr" if self.path.suffix == ".zarr" else "npz"
        self._archive = by_name if there is None else there["archive"]  # it may have been renamed
        self._shards: AbstractShards = ZarrShards(self.path) if self._archive == "zarr" else NpzShards(self.path)
        self.chunk_is_fixed = self._shards.chunk_is_fixed

    @property
    def chunk(self) -> int | None:
        return None if self._manifest is None else self._manifest["chunk"]

    @contextlib.contextmanager
    def writing(
        self, wanted: dict[str, Any], chunk: int, rank: int, world: int, strict: bool = True
    ) -> Iterator[Write]:
        """Within, nobody else writes what this rank of ``world`` writes. The folder is made for the ensemble of the
        fingerprint ``wanted``, with files of ``chunk`` members, or is that ensemble's; ``ValueError`` if it is
        another's, being written, or cannot be written, or, with ``insist``, if it takes no such chunks."""
        try:
            self.path.mkdir(exist_ok=True)
            check_writable(self.path / MANIFEST)
            remove_abandoned(self.path)
        except OSError as error:
            raise ValueError(f"store {str(self.path)!r} cannot be written: {error.strerror}") from None
        with contextlib.ExitStack() as held:
            locks = [(".lock", world == 1), *([(f".lock-{rank}-of-{world}", True)] if world > 1 else [])]
            for name, alone in locks:
                if not held.enter_context(locked(self.path / name, alone)):
                    raise self._busy_error("another process")
            self._check_other_worlds(world)
            self._begin(wanted | {"archive": self._archive, "chunk": chunk})
            if strict and self.chunk_is_fixed and self.chunk != chunk:
                raise ValueError(
                    f"chunk must be {self.chunk}, with which store {str(self.path)!r} was begun, or left out, got "
                    f"{chunk}"
                )
            yield self._shards.writer(self._manifest)

    def _begin(self, wanted: dict[str, Any]) -> None:
        """Write the manifest ``wanted``, unless one is there: of several processes the first one's counts."""
        there = self.manifest(missing_is_none=True)
        if there is None:
            if self._shards.has_members():
                raise ValueError(f"store {str(self.path)!r} has members, but lost its {MANIFEST}: remove it")
            with contextlib.suppress(FileExistsError):
                write_json(self.path / MANIFEST, wanted, new=True)
            there = self.manifest()
        # A chunk changes no member.
        if difference := first_difference(there | {"chunk": None}, wanted | {"chunk": None}):
            raise ValueError(
                f"store {str(self.path)!r} holds another ensemble: {difference}. Name another folder, or remove this"
            )

    def _check_other_worlds(self, world: int) -> None:
        """Nobody shares the work in another number of parts at the same time: some members would be nobody's."""
        for path in self.path.glob(".lock-*-of-*"):
            if not path.name.endswith(f"-of-{world}"):
                with locked(path, False) as free:
                    if not free:
                        raise self._busy_error(
                            f"a job of world = {path.name.rpartition('-')[2]}, and this one is of {world},"
                        )

    def _busy_error(self, who: str) -> ValueError:
        return ValueError(
            f"store {str(self.path)!r} is being written by {who}: wait until it is done, or name another folder"
        )

    def manifest(self, missing_is_none: bool = False) -> Any:
        """What the folder says of itself, or ``ValueError``."""
        try:
            text = (self.path / MANIFEST).read_text(encoding="utf-8")
            told = json.loads(text)
        except (FileNotFoundError, NotADirectoryError):
            if missing_is_none:
                return None
            raise ValueError(f"{str(self.path)!r} holds no ensemble: there is no {MANIFEST} in it") from None
        except OSError as error:
            raise ValueError(f"{str(self.path)!r} cannot be read: {error.strerror}") from None
        except ValueError:
            told = None
        if not isinstance(told, dict) or not REQUIRED_KEYS <= set(told):
            raise ValueError(
                f"{str(self.path / MANIFEST)!r} is no description of an ensemble by this version of ukjax: remove the "
                "folder, or read it by the version that wrote it"
            )
        self._manifest = told
        return told

    def done(self) -> list[tuple[int, int]]:
        """Which members are there: from, and up to which, for each file. They may overlap. ``ValueError`` for files
        that are not this ensemble's."""
        return self._shards.done(self._manifest) if self._manifest else []

    def read(self, first: int, last: int, names: Any = None) -> dict[str, np.ndarray]:
        """What became of members that were done together, or ``ValueError`` where a file is damaged."""
        return self._shards.read(self._manifest, first, last, names)


def remaining(chunks: list[tuple[int, int]], done: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """What is left of the chunks: those, or parts of them, that are not done."""
    left = []
    for first, last in chunks:
        at = first
        for begin, end in done:
            if end <= at or begin >= last:
                continue
            if begin > at:
                left.append((at, begin))
            at = max(at, end)
        if at < last:
            left.append((at, last))
    return left


def count(spans: Iterable[tuple[int, int]]) -> int:
    """How many members there are in some ranges, which may overlap."""
    number = end = 0
    for first, last in sorted(spans):
        number += max(0, last - max(first, end))
        end = max(end, last)
    return number
