"""An ensemble as a Zarr 3 group, which anything that reads Zarr opens as it is.

An array has a shard, one file, for each chunk of the ensemble. Zarr takes what has no file for empty; so every chunk
has a file of every array, and is done when all of them are there. Zarr makes the bytes, in memory; the files are made
in our own way, whole or not at all.
"""

import importlib.metadata
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from .._files import write_whole
from .dataset import dimensions_and_attributes, empty, labels_of, times_of, title_of
from .shards import FINGERPRINT, AbstractShards, damaged, foreign, nonempty_files

MIN_VERSION = "3.1.6"
GROUP = "zarr.json"
SHARD = re.compile(r"c\.(\d+)(\.0)*")
KEYS = {"name": "default", "separator": "."}


class ZarrShards(AbstractShards):
    """Arrays by name, (members, ...), in shards of a chunk and pieces of a block; where members are not done they have
    NaN, or 0, or as ``result`` -1. Raises ``ImportError`` without the package zarr."""

    chunk_is_fixed = True  # as Zarr's grid is

    def __init__(self, path: Path):
        try:
            version = importlib.metadata.version("zarr")
        except importlib.metadata.PackageNotFoundError:
            version = "0"
        if _version_tuple(version) < _version_tuple(MIN_VERSION):
            raise ImportError(
                f"{str(path)!r} is kept by the package zarr, {MIN_VERSION} or newer: pip install 'ukjax[zarr]', or let the "
                "name not end in .zarr"
            )
        self.path = path

    def has_members(self):
        return (self.path / GROUP).exists()

    def done(self, manifest):
        if not self.has_members():
            return []
        arrays = self._arrays(manifest)
        one = arrays["over"]
        size, members = one.shards[0], one.shape[0]
        there = []
        for array in (array for array in arrays.values() if array.size):
            folder = self.path / array.path
            found = {int(each[1]): file for file in nonempty_files(folder) if (each := SHARD.fullmatch(file))}
            for i, file in found.items():
                if i * size >= members:
                    raise foreign(folder / file, f"there are {members} members here, {size} to a file")
            there.append(set(found))
        return [(i * size, min((i + 1) * size, members)) for i in sorted(set.intersection(*there))]

    def read(self, manifest, first, last, names):
        arrays = self._arrays(manifest)
        found = {}
        for name in arrays if names is None else names:
            array = arrays[name]
            try:
                found[name] = array[first:last]
            except (ValueError, RuntimeError, OSError) as error:  # Zarr says by any of them that a checksum is wrong
                raise damaged(self.path / array.path / _key(first // array.shards[0], array.ndim), error) from None
        return found

    def _arrays(self, manifest) -> dict[str, Any]:
        """All that is kept, in the order in which it was given."""
        import zarr

        try:
            group: Any = zarr.open_group(self.path, mode="r")
            arrays = {name: group[_place(name)] for name in group.attrs["kept"]}
            fingerprint, members = group.attrs.get(FINGERPRINT), arrays["over"].shape[0]
        except (ValueError, TypeError, KeyError, OSError) as error:
            raise damaged(self.path / GROUP, error) from None
        if fingerprint != manifest["fingerprint"] or members != manifest["members"]:
            raise foreign(self.path / GROUP, "its fingerprint is not that of this ensemble")
        return arrays

    def writer(self, manifest):
        size = manifest["chunk"]
        waiting: dict[int, list[tuple[int, dict[str, np.ndarray]]]] = {}

        def write(first, last, arrays):
            # What did not fit into memory comes in parts, and is kept when the last of them is there.
            at = first // size
            parts = waiting.setdefault(at, [])
            parts.append((first, arrays))
            begin, end = at * size, min((at + 1) * size, manifest["members"])
            if sum(len(part["over"]) for _, part in parts) < end - begin:
                return
            _write_metadata(self.path, manifest, arrays)
            for name in arrays:
                whole = np.concatenate([part[name] for _, part in sorted(parts, key=lambda part: part[0])])
                if whole.size:
                    _write_shard(self.path / _place(name), begin, end, whole)
            del waiting[at]

        return write


def _version_tuple(version):
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


def _write_metadata(path: Path, told: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """What the group and its arrays are, where it is not there yet; the group's comes last."""
    if all((folder / GROUP).exists() for folder in (path, *(path / _place(name) for name in arrays))):
        return
    import zarr
    from zarr.storage import MemoryStore

    files: dict[str, Any] = {}
    with warnings.catch_warnings():  # that another version may keep texts, and all metadata in one file, otherwise
        warnings.simplefilter("ignore")
        about = title_of(told) | {"coordinates": "unit", "kept": list(arrays), FINGERPRINT: told["fingerprint"]}
        group = zarr.create_group(MemoryStore(files), attributes=about)
        for name, example in arrays.items():
            _create(group, name, told, example)
        _add_labels(group, told)
        zarr.consolidate_metadata(group.store)
    for name in sorted(files, key=lambda name: name == GROUP):
        if not (path / name).exists():
            _write(path / name, files[name].to_bytes())


def _create(group: Any, name: str, told: dict[str, Any], example: np.ndarray) -> None:
    from zarr.codecs import ZstdCodec

    if name == "over":
        dimensions, attributes = ["member", "swept"], {"long_name": "numbers that were swept"}
    else:
        dimensions, attributes = dimensions_and_attributes(told, name, example)
    rest = tuple(max(1, size) for size in example.shape[1:])  # of a chunk, where there may be nothing
    group.create_array(
        _place(name),
        shape=(told["members"], *example.shape[1:]),
        chunks=(told["block"], *rest),
        shards=(told["chunk"], *rest),
        dtype=example.dtype,
        fill_value=empty(name, example.dtype).item(),
        compressors=ZstdCodec(level=1, checksum=True),
        dimension_names=dimensions,
        attributes={key: x.tolist() if isinstance(x, np.ndarray) else x for key, x in attributes.items()},
        chunk_key_encoding=KEYS,
    )


def _add_labels(group: Any, told: dict[str, Any]) -> None:
    """What the axes are."""
    for name, dimension, values, about in (
        ("time", "time", times_of(told), {"units": "s", "long_name": "time"}),
        *labels_of(told),
        ("swept", "swept", list(told["over"]), {"long_name": "name of the number that was swept"}),
    ):
        values = np.asarray(values)
        dtype = "string" if values.dtype.kind == "U" else values.dtype
        given = {"dimension_names": (dimension,), "attributes": about, "chunk_key_encoding": KEYS}
        group.create_array(name, shape=values.shape, chunks=values.shape, dtype=dtype, **given)[:] = values


def _write_shard(folder: Path, first: int, last: int, rows: np.ndarray) -> None:
    """The members' rows, by the metadata that is there."""
    import zarr
    from zarr.buffer import cpu
    from zarr.storage import MemoryStore

    files: dict[str, Any] = {GROUP: cpu.Buffer.from_bytes((folder / GROUP).read_bytes())}
    array = zarr.open_array(MemoryStore(files), mode="r+").with_config({"write_empty_chunks": True})
    array[first:last] = rows
    assert array.shards is not None
    key = _key(first // array.shards[0], array.ndim)
    _write(folder / key, files[key].to_bytes())


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    write_whole(path, lambda part: part.write_bytes(content))


def _key(at: int, dimensions: int) -> str:
    return ".".join(["c", str(at), *["0"] * (dimensions - 1)])


def _place(name: str) -> str:
    """The folder of what is called so: no other folder, and none of the files beside it."""
    return re.sub(r"[%./\\]", lambda found: f"%{ord(found[0]):02X}", name) or "%"
