"""A folder that holds an ensemble: what it is, in ``ensemble.json``, and files for each chunk that was done.

Every file is there whole or not at all, and says in its name which members it holds; so nothing else needs to be kept
of what was done. A folder has one writer at a time, or, of several that share the work, one for each share. Its name
says how it is kept, as that of any file does: with the ending .zarr as a Zarr group, else as NumPy archives.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .._check import seen
from .._files import check_writable, locked, remove_abandoned, write_json
from .shards import AbstractShards, NpzShards, Write
from .zarr_shards import ZarrShards

MANIFEST = "ensemble.json"


class Store:
    """The folder ``path``. ``chunk`` is the only one that it takes, if it has begun to be of one alone."""

    def __init__(self, path: Any):
        if not isinstance(path, str | os.PathLike) or not str(path):
            raise ValueError(f"store must be the name of a folder, got {seen(path)}")
        self.path = Path(path)
        there = self.manifest(missing_is_none=True)
        self.chunk: int | None = None if there is None else there.get("chunk")
        zarr = self.path.suffix == ".zarr" if there is None else self.chunk is not None  # it may have been renamed
        self._shards: AbstractShards = ZarrShards(self.path) if zarr else NpzShards(self.path)

    @contextlib.contextmanager
    def writing(self, told: dict[str, Any], chunk: int, rank: int, world: int) -> Iterator[Write]:
        """As long as this holds, nobody else writes the same as what is given writes. The folder is made for the
        ensemble that is ``told``, or is that ensemble's; ``ValueError`` if it is another's, being written, or cannot be
        written."""
        if self._shards.chunk_is_fixed:
            told = told | {"chunk": chunk}
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
                    raise ValueError(
                        f"store {str(self.path)!r} is being written by another process: wait until it is done, or name "
                        "another folder"
                    )
            there = self.manifest(missing_is_none=True)
            if there is None:
                if any(self.done()):
                    raise ValueError(f"store {str(self.path)!r} has members, but lost its {MANIFEST}: remove it")
                write_json(self.path / MANIFEST, told)
            elif difference := first_difference(there | {"chunk": None}, told | {"chunk": None}):
                raise ValueError(
                    f"store {str(self.path)!r} holds another ensemble: {difference}. Name another folder, or remove "
                    "that one"
                )
            elif there.get("chunk") != told.get("chunk"):
                raise ValueError(
                    f"chunk must be {there['chunk']}, with which store {str(self.path)!r} was begun, or left out, got "
                    f"{chunk}"
                )
            yield self._shards.writer(told)

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
        if not isinstance(told, dict) or not {"members", "over", "times", "coordinates"} <= set(told):
            raise ValueError(f"{str(self.path / MANIFEST)!r} is no description of an ensemble: remove the folder")
        return told

    def done(self) -> list[tuple[int, int]]:
        """Which members are there: from, and up to which."""
        return self._shards.done()

    def read(self, first: int, last: int, names: Any = None) -> dict[str, np.ndarray]:
        """What became of members that were done together, or ``ValueError`` where a file is damaged."""
        return self._shards.read(first, last, names)


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


def first_difference(there: Any, wanted: Any, where: str = "") -> str:
    """In which two descriptions differ first, in words; empty if they do not."""
    if isinstance(there, dict) and isinstance(wanted, dict):
        for key in [*wanted, *(key for key in there if key not in wanted)]:
            if found := first_difference(there.get(key), wanted.get(key), f"{where}, {key!r}," if where else repr(key)):
                return found
        return ""
    if there == wanted:
        return ""
    return f"{where} is {_short(there)} there, and {_short(wanted)} now"


def _short(value):
    shown = "not given" if value is None else json.dumps(value) if not isinstance(value, str) else repr(value)
    return shown if len(shown) <= 100 else f"{shown[:90]}..."
