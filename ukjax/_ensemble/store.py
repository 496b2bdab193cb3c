"""A folder that stores an ensemble: a manifest ``ensemble.json``, and files for each computed chunk.

Every file is written atomically, and its name contains its range of members, so the list of files is the only record of
the progress. A folder has one writer at a time, or one for each rank if several processes share the work. The suffix of
its name determines the format: a Zarr group for ``.zarr``, else NumPy archives.
"""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .._check import repr_of
from .._errors import InputError
from .._files import check_writable, locked, remove_abandoned, write_json
from .._fingerprint import first_difference
from .shards import AbstractShards, NpzShards, Write
from .zarr_shards import ZarrShards

MANIFEST = "ensemble.json"
REQUIRED_KEYS = {"model", "members", "over", "times", "keep", "coordinates", "archive", "chunk", "fingerprint"}


class Store:
    """The folder ``path`` of an ensemble.

    ``chunk`` is the number of members per file with which the store was created, None if it does not exist yet; the
    shares of several ranks are counted in such chunks. ``chunk_is_fixed`` is whether every file must have that number.
    """

    def __init__(self, path: Any):
        if not isinstance(path, str | os.PathLike) or not str(path):
            raise InputError(f"store must be the name of a folder, got {repr_of(path)}")
        self.path = Path(path)
        self._manifest: Any = None
        manifest = self.manifest(missing_is_none=True)
        from_suffix = "zarr" if self.path.suffix == ".zarr" else "npz"
        # The manifest decides, since the folder may have been renamed.
        self._archive = from_suffix if manifest is None else manifest["archive"]
        self._shards: AbstractShards = ZarrShards(self.path) if self._archive == "zarr" else NpzShards(self.path)
        self.chunk_is_fixed = self._shards.chunk_is_fixed

    @property
    def chunk(self) -> int | None:
        return None if self._manifest is None else self._manifest["chunk"]

    @contextlib.contextmanager
    def writing(
        self, wanted: dict[str, Any], chunk: int, rank: int, world: int, strict: bool = True
    ) -> Iterator[Write]:
        """A context in which this process alone writes the share of ``rank``. Yields the function that stores members.

        Creates the folder for the ensemble with the fingerprint ``wanted`` and files of ``chunk`` members, or resumes
        it. Raises ``InputError`` if the folder has another ensemble, if another process is writing, if it cannot be
        written, or, with ``strict``, if its files must have another number of members.
        """
        try:
            self.path.mkdir(exist_ok=True)
            check_writable(self.path / MANIFEST)
            remove_abandoned(self.path)
        except OSError as error:
            raise InputError(f"store {str(self.path)!r} cannot be written: {error.strerror}") from None
        with contextlib.ExitStack() as stack:
            locks = [(".lock", world == 1), *([(f".lock-{rank}-of-{world}", True)] if world > 1 else [])]
            for name, exclusive in locks:
                if not stack.enter_context(locked(self.path / name, exclusive)):
                    raise self._busy_error("another process")
            self._check_other_worlds(world)
            self._begin(wanted | {"archive": self._archive, "chunk": chunk})
            if strict and self.chunk_is_fixed and self.chunk != chunk:
                raise InputError(
                    f"chunk must be {self.chunk}, as in the existing store {str(self.path)!r}, or left out, got {chunk}"
                )
            yield self._shards.writer(self._manifest)

    def _begin(self, wanted: dict[str, Any]) -> None:
        """Write the manifest ``wanted`` unless there is one; if several processes begin, the first writes it."""
        manifest = self.manifest(missing_is_none=True)
        if manifest is None:
            if self._shards.has_members():
                raise InputError(
                    f"store {str(self.path)!r} has members, but its file {MANIFEST} is missing: remove the store"
                )
            with contextlib.suppress(FileExistsError):
                write_json(self.path / MANIFEST, wanted, new=True)
            manifest = self.manifest()
        # The chunk size does not change the results.
        if difference := first_difference(manifest | {"chunk": None}, wanted | {"chunk": None}):
            raise InputError(
                f"store {str(self.path)!r} holds another ensemble: {difference}. Name another folder, or remove "
                "this one"
            )

    def _check_other_worlds(self, world: int) -> None:
        """Raise ``InputError`` if a job with another ``world`` is writing: some members would belong to no rank."""
        for path in self.path.glob(".lock-*-of-*"):
            if not path.name.endswith(f"-of-{world}"):
                with locked(path, False) as free:
                    if not free:
                        raise self._busy_error(
                            f"a job of world = {path.name.rpartition('-')[2]}, and this one is of {world},"
                        )

    def _busy_error(self, who: str) -> InputError:
        return InputError(
            f"store {str(self.path)!r} is being written by {who}: wait until it is done, or name another folder"
        )

    def manifest(self, missing_is_none: bool = False) -> Any:
        """Read the manifest. Raises ``InputError`` if it cannot be read, or is missing without ``missing_is_none``."""
        try:
            text = (self.path / MANIFEST).read_text(encoding="utf-8")
            manifest = json.loads(text)
        except (FileNotFoundError, NotADirectoryError):
            if missing_is_none:
                return None
            raise InputError(f"{str(self.path)!r} contains no ensemble: it has no file {MANIFEST}") from None
        except OSError as error:
            raise InputError(f"{str(self.path)!r} cannot be read: {error.strerror}") from None
        except ValueError:
            manifest = None
        if not isinstance(manifest, dict) or not REQUIRED_KEYS <= set(manifest):
            raise InputError(
                f"{str(self.path / MANIFEST)!r} does not describe an ensemble of this version of ukjax: remove the "
                "folder, or read it by the version that wrote it"
            )
        self._manifest = manifest
        return manifest

    def done(self) -> list[tuple[int, int]]:
        """The computed members, as (first, last) with ``last`` excluded, for each file. The ranges may overlap.

        Raises ``InputError`` for files of another ensemble.
        """
        return self._shards.done(self._manifest) if self._manifest else []

    def read(self, first: int, last: int, names: Any = None) -> dict[str, np.ndarray]:
        """The arrays ``names`` (None: all) of members in one file. Raises ``InputError`` if the file is damaged."""
        return self._shards.read(self._manifest, first, last, names)


def remaining(chunks: list[tuple[int, int]], done: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The chunks, or parts of them, that are not in ``done``. All ranges are (first, last) with ``last`` excluded."""
    missing = []
    for first, last in chunks:
        start = first
        for done_first, done_last in done:
            if done_last <= start or done_first >= last:
                continue
            if done_first > start:
                missing.append((start, done_first))
            start = max(start, done_last)
        if start < last:
            missing.append((start, last))
    return missing


def count(spans: Iterable[tuple[int, int]]) -> int:
    """The number of members in ranges that may overlap."""
    number = end = 0
    for first, last in sorted(spans):
        number += max(0, last - max(first, end))
        end = max(end, last)
    return number
