"""Store an ensemble as a standard Zarr 3 group.

Each array has one shard, which is one file, per chunk of the ensemble. Zarr reads a missing shard as fill values, so
every chunk has a file of every array, and it is complete when all these files exist. Zarr encodes the shards in memory;
the files are written here, atomically.
"""

import importlib.metadata
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from .._errors import MissingPackageError
from .._files import write_whole
from .dataset import dimensions_and_attributes, empty, labels_of, times_of, title_of
from .shards import FINGERPRINT, AbstractShards, damaged, foreign, nonempty_files

MIN_VERSION = "3.1.6"
GROUP = "zarr.json"
SHARD = re.compile(r"c\.(\d+)(\.0)*")
KEYS = {"name": "default", "separator": "."}


class ZarrShards(AbstractShards):
    """Arrays by name, (members, ...), with one shard per chunk and one Zarr chunk per block.

    Members that are not computed yet are NaN, 0 in integers, and -1 in ``result``. Raises ``ImportError`` if the
    package zarr is missing.
    """

    chunk_is_fixed = True  # all shards of a Zarr array have the same shape

    def __init__(self, path: Path):
        try:
            version = importlib.metadata.version("zarr")
        except importlib.metadata.PackageNotFoundError:
            version = "0"
        if _version_tuple(version) < _version_tuple(MIN_VERSION):
            raise MissingPackageError(
                f"store {str(path)!r} needs the package zarr, {MIN_VERSION} or newer: pip install 'ukjax[zarr]', or "
                "choose a name that does not end in .zarr"
            )
        self.path = path

    def has_members(self):
        return (self.path / GROUP).exists()

    def done(self, manifest):
        if not self.has_members():
            return []
        arrays = self._arrays(manifest)
        over = arrays["over"]
        size, members = over.shards[0], over.shape[0]
        complete = []
        for array in (array for array in arrays.values() if array.size):
            folder = self.path / array.path
            files = {int(each[1]): file for file in nonempty_files(folder) if (each := SHARD.fullmatch(file))}
            for i, file in files.items():
                if i * size >= members:
                    raise foreign(folder / file, f"there are {members} members here, {size} to a file")
            complete.append(set(files))
        return [(i * size, min((i + 1) * size, members)) for i in sorted(set.intersection(*complete))]

    def read(self, manifest, first, last, names):
        arrays = self._arrays(manifest)
        rows = {}
        for name in arrays if names is None else names:
            array = arrays[name]
            try:
                rows[name] = array[first:last]
            except (ValueError, RuntimeError, OSError) as error:  # Zarr raises any of them for a wrong checksum
                raise damaged(self.path / array.path / _key(first // array.shards[0], array.ndim), error) from None
        return rows

    def _arrays(self, manifest) -> dict[str, Any]:
        """All arrays of the group, by name, in the order in which they were written."""
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
        pending: dict[int, list[tuple[int, dict[str, np.ndarray]]]] = {}

        def write(first, last, arrays):
            # A chunk that was halved for lack of memory is computed in parts. It is written when all parts are
            # computed.
            shard = first // size
            parts = pending.setdefault(shard, [])
            parts.append((first, arrays))
            shard_first, shard_last = shard * size, min((shard + 1) * size, manifest["members"])
            if sum(len(part["over"]) for _, part in parts) < shard_last - shard_first:
                return
            _write_metadata(self.path, manifest, arrays)
            for name in arrays:
                whole = np.concatenate([part[name] for _, part in sorted(parts, key=lambda part: part[0])])
                if whole.size:
                    _write_shard(self.path / _place(name), shard_first, shard_last, whole)
            del pending[shard]

        return write


def _version_tuple(version):
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


def _write_metadata(path: Path, manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write the metadata of the group and its arrays, if they are missing; that of the group last."""
    if all((folder / GROUP).exists() for folder in (path, *(path / _place(name) for name in arrays))):
        return
    import zarr
    from zarr.storage import MemoryStore

    files: dict[str, Any] = {}
    with (
        warnings.catch_warnings()
    ):  # Zarr warns that other versions may store strings and consolidated metadata differently
        warnings.simplefilter("ignore")
        attributes = title_of(manifest) | {
            "coordinates": "unit",
            "kept": list(arrays),
            FINGERPRINT: manifest["fingerprint"],
        }
        group = zarr.create_group(MemoryStore(files), attributes=attributes)
        for name, example in arrays.items():
            _create(group, name, manifest, example)
        _add_labels(group, manifest)
        zarr.consolidate_metadata(group.store)
    for name in sorted(files, key=lambda name: name == GROUP):
        if not (path / name).exists():
            _write(path / name, files[name].to_bytes())


def _create(group: Any, name: str, manifest: dict[str, Any], example: np.ndarray) -> None:
    """Create the empty array ``name`` for all members; ``example`` has its rows of some members."""
    from zarr.codecs import ZstdCodec

    if name == "over":
        dimensions, attributes = ["member", "swept"], {"long_name": "numbers that were swept"}
    else:
        dimensions, attributes = dimensions_and_attributes(manifest, name, example)
    rest = tuple(max(1, size) for size in example.shape[1:])  # a Zarr chunk must not be empty
    group.create_array(
        _place(name),
        shape=(manifest["members"], *example.shape[1:]),
        chunks=(manifest["block"], *rest),
        shards=(manifest["chunk"], *rest),
        dtype=example.dtype,
        fill_value=empty(name, example.dtype).item(),
        compressors=ZstdCodec(level=1, checksum=True),
        dimension_names=dimensions,
        attributes={key: x.tolist() if isinstance(x, np.ndarray) else x for key, x in attributes.items()},
        chunk_key_encoding=KEYS,
    )


def _add_labels(group: Any, manifest: dict[str, Any]) -> None:
    """Create the arrays that label the dimensions."""
    for name, dimension, values, attributes in (
        ("time", "time", times_of(manifest), {"units": "s", "long_name": "time"}),
        *labels_of(manifest),
        ("swept", "swept", list(manifest["over"]), {"long_name": "name of the number that was swept"}),
    ):
        values = np.asarray(values)
        dtype = "string" if values.dtype.kind == "U" else values.dtype
        options = {"dimension_names": (dimension,), "attributes": attributes, "chunk_key_encoding": KEYS}
        group.create_array(name, shape=values.shape, chunks=values.shape, dtype=dtype, **options)[:] = values


def _write_shard(folder: Path, first: int, last: int, rows: np.ndarray) -> None:
    """Write the shard with the ``rows`` of the members ``first``, ..., ``last`` - 1, by the metadata in ``folder``."""
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


def _key(index: int, dimensions: int) -> str:
    """File name of the shard with this index along the members."""
    return ".".join(["c", str(index), *["0"] * (dimensions - 1)])


def _place(name: str) -> str:
    """Folder of the array ``name``. Characters that would make another folder or file of it are escaped."""
    return re.sub(r"[%./\\]", lambda match: f"%{ord(match[0]):02X}", name) or "%"
