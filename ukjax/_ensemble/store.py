"""A folder that holds an ensemble: what it is, in ``ensemble.json``, and a file for each chunk that was done.

Every file is there whole or not at all, and says in its name which members it holds; so nothing else needs to be kept
of what was done. A folder has one writer at a time, or, of several that share the work, one for each share.
"""

import contextlib
import json
import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .._check import seen
from .._files import check_writable, locked, remove_abandoned, write_json, write_whole

MANIFEST = "ensemble.json"
SHARD = re.compile(r"members-(\d+)-(\d+)\.npz")


class Store:
    """The folder ``path``."""

    def __init__(self, path: Any):
        if not isinstance(path, str | os.PathLike) or not str(path):
            raise ValueError(f"store must be the name of a folder, got {seen(path)}")
        self.path = Path(path)

    @contextlib.contextmanager
    def writing(self, told: dict[str, Any], rank: int, world: int) -> Iterator[None]:
        """As long as this holds, nobody else writes the same. The folder is made for the ensemble that is ``told``, or
        is that ensemble's; ``ValueError`` if it is another's, being written, or cannot be written."""
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
            elif difference := first_difference(there, told):
                raise ValueError(
                    f"store {str(self.path)!r} holds another ensemble: {difference}. Name another folder, or remove "
                    "that one"
                )
            yield

    def manifest(self, missing_is_none: bool = False) -> Any:
        """What the folder says of itself, or ``ValueError``."""
        try:
            text = (self.path / MANIFEST).read_text(encoding="utf-8")
            told = json.loads(text)
        except FileNotFoundError:
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
        try:
            names = [entry.name for entry in os.scandir(self.path)]
        except OSError:
            return []
        return sorted((int(found[1]), int(found[2])) for name in names if (found := SHARD.fullmatch(name)))

    def write(self, first: int, last: int, arrays: dict[str, np.ndarray]) -> None:
        """Keep what became of these members."""

        def written(part):
            with open(part, "wb") as file:
                np.savez(file, allow_pickle=False, **arrays)

        write_whole(self._shard(first, last), written)

    def read(self, first: int, last: int, names: Any = None) -> dict[str, np.ndarray]:
        """The same again, or ``ValueError`` where the file is damaged."""
        path = self._shard(first, last)
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as found:
                return {name: found[name] for name in (found.files if names is None else names)}
        except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError, OSError) as error:
            raise ValueError(
                f"{str(path)!r} is damaged ({error}): remove it, and run the ensemble again to have these members"
            ) from None

    def _shard(self, first, last):
        return self.path / f"members-{first:09d}-{last:09d}.npz"


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
