"""Present an ensemble as an ``xarray.Dataset`` whose arrays are read lazily."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from .._motion.result import REASONS, RUNNING
from .._motion.trajectory.files import ENDING, MOTION
from .._motion.trajectory.trajectory import OBSERVED

if TYPE_CHECKING:
    import xarray

OBSERVED_ATTRIBUTES = {
    name: {"long_name": about["long_name"], "units": about.get("units")} for name, about in OBSERVED.items()
}

EVENT_ATTRIBUTES = {
    "event_t": {"long_name": "time of the first occurrence of each event", "units": "s"},
    "event_counts": {"long_name": "number of occurrences of each event"},
}

CONTACT_ATTRIBUTES = {
    "impacts": {"long_name": "number of impacts"},
    "contact_changes": {"long_name": "number of changes of the contact mode"},
}

RESERVED = "time", "member", "coordinate", "unit", "direction", "direction_unit", "event", "swept"
"""Names of dimensions and of their labels, which no swept number and no stored array may have."""


def times_of(metadata: dict[str, Any]) -> Float[np.ndarray, " samples"]:
    """Times of the samples that are stored for each member."""
    ts = np.asarray(metadata["times"])
    return ts[-1:] if metadata["keep"] == "end" else ts


def empty(name: str, dtype: np.dtype) -> np.ndarray:
    """Fill value of the array ``name`` for members that are not computed yet."""
    return np.asarray(np.nan if dtype.kind == "f" else RUNNING if name == "result" else 0, dtype)


def title_of(metadata: dict[str, Any]) -> dict[str, str]:
    """Attributes of the whole dataset."""
    return {"Conventions": "CF-1.11", "title": metadata["model"], "source": "ukjax"}


def dimensions_and_attributes(
    metadata: dict[str, Any], name: str, example: np.ndarray
) -> tuple[list[str], dict[str, Any]]:
    """Dimensions and attributes of the array ``name``; ``example`` has its rows of some members."""
    if name in EVENT_ATTRIBUTES:
        return ["member", "event"], dict(EVENT_ATTRIBUTES[name])
    if name in CONTACT_ATTRIBUTES:
        return ["member"], dict(CONTACT_ATTRIBUTES[name])
    entry_axis = "direction" if "directions" in metadata and _is_per_velocity(name) else "coordinate"
    t, (names, units) = times_of(metadata), zip(*metadata[f"{entry_axis}s"], strict=True)
    distinct_units = dict.fromkeys(units)
    unit_of = lambda template: (
        template.replace("{}", next(iter(distinct_units))) if len(distinct_units) == 1 or "{}" not in template else ""
    )
    description = (MOTION | ENDING | OBSERVED_ATTRIBUTES).get(name, {"long_name": name})
    dimensions = ["member"]
    for axis, size in enumerate(example.shape[1:], 1):
        is_time = axis == 1 and size == t.size and (name in MOTION or name in OBSERVED)
        is_per_entry = axis == example.ndim - 1 and size == len(names) and not is_time
        dimensions.append("time" if is_time else entry_axis if is_per_entry else f"{name}_{axis}")
    attributes: dict[str, Any] = {"long_name": description["long_name"]}
    if description.get("units") and "{force}" not in description["units"] and unit_of(description["units"]):
        attributes["units"] = unit_of(description["units"])
    if name == "result":
        attributes |= {
            "flag_values": np.array(list(REASONS), example.dtype),
            "flag_meanings": " ".join(reason.replace(" ", "_") for reason in REASONS.values()),
        }
    return dimensions, attributes


def _is_per_velocity(name: str) -> bool:
    """Whether the array ``name`` has an entry for each velocity, not for each coordinate."""
    return name in ("v", "last_v") or bool(OBSERVED.get(name, {}).get("per_coordinate"))


def labels_of(metadata: dict[str, Any]) -> list[tuple[str, str, list[str], dict[str, str]]]:
    """Labels of the coordinates, and of the velocities if they are not the rates of these: (name, dimension, entries,
    attributes)."""
    labels = []
    for dimension, noun, unit in (
        ("coordinate", "generalised coordinate", "unit"),
        ("direction",) * 2 + ("direction_unit",),
    ):
        if f"{dimension}s" in metadata:
            names, units = (list(column) for column in zip(*metadata[f"{dimension}s"], strict=True))
            labels.append((dimension, dimension, names, {"long_name": f"name of the {noun}"}))
            labels.append((unit, dimension, units, {"long_name": f"unit of the {noun}"}))
    if "events" in metadata:
        labels.append(("event", "event", metadata["events"], {"long_name": "name of the event"}))
    return labels


def as_dataset(
    metadata: dict[str, Any],
    examples: dict[str, np.ndarray],
    read: Callable[[str, np.ndarray], np.ndarray],
) -> "xarray.Dataset":
    """Make the dataset. ``read(name, members)`` returns rows of the array ``name``; ``examples`` has some rows of each
    array, for shapes and dtypes."""
    import xarray
    from xarray.backends import BackendArray
    from xarray.core import indexing

    class Rows(BackendArray):
        """One array of all members, or one ``column`` of it."""

        def __init__(self, name, column=None):
            self.name, self.column = name, column
            self.dtype = examples[name].dtype
            self.shape = (metadata["members"], *(examples[name].shape[1:] if column is None else ()))

        def __getitem__(self, key):
            return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

        def _read(self, key):
            members_key, other_keys = key[0], key[1:]
            single = isinstance(members_key, int | np.integer)
            members = np.atleast_1d(np.arange(metadata["members"])[members_key])
            rows = read(self.name, members)
            rows = rows if self.column is None else rows[:, self.column]
            for axis, index in enumerate(other_keys, 1):
                rows = rows[(slice(None),) * axis + (slice(index, index + 1) if isinstance(index, int) else index,)]
            drop = tuple(axis for axis, index in enumerate(key) if isinstance(index, int | np.integer))
            return np.squeeze(rows, drop) if drop or single else rows

    lazy = lambda *arguments: indexing.LazilyIndexedArray(Rows(*arguments))
    dataset = xarray.Dataset(
        attrs=title_of(metadata),
        coords={name: (dimension, entries, attributes) for name, dimension, entries, attributes in labels_of(metadata)},
    )
    for i, name in enumerate(metadata["over"]):
        dataset[name] = ("member", lazy("over", i), {"long_name": f"{name}, which was swept"})
    for name, example in examples.items():
        if name != "over":
            dimensions, attributes = dimensions_and_attributes(metadata, name, example)
            dataset[name] = (dimensions, lazy(name), attributes)
    if "time" in dataset.dims:
        dataset = dataset.assign_coords(time=("time", times_of(metadata), {"units": "s", "long_name": "time"}))
    return dataset
