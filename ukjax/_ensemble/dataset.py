"""An ensemble as an ``xarray.Dataset``, of which nothing is read before it is looked at."""

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

RESERVED = "time", "member", "coordinate", "unit", "direction", "direction_unit", "swept"
"""Names of axes and of their labels."""


def times_of(told: dict[str, Any]) -> Float[np.ndarray, " samples"]:
    """When the samples are that are kept of each member."""
    ts = np.asarray(told["times"])
    return ts[-1:] if told["keep"] == "end" else ts


def empty(name: str, dtype: np.dtype) -> np.ndarray:
    """What stands for a member that is not done."""
    return np.asarray(np.nan if dtype.kind == "f" else RUNNING if name == "result" else 0, dtype)


def title_of(told: dict[str, Any]) -> dict[str, str]:
    """What is said of all of it."""
    return {"Conventions": "CF-1.11", "title": told["model"], "source": "ukjax"}


def dimensions_and_attributes(told: dict[str, Any], name: str, example: np.ndarray) -> tuple[list[str], dict[str, Any]]:
    """The dimensions and attributes of what is called ``name``, of which ``example`` has some members' rows."""
    along = "direction" if "directions" in told and _is_per_velocity(name) else "coordinate"
    t, (names, units) = times_of(told), zip(*told[f"{along}s"], strict=True)
    kinds = dict.fromkeys(units)
    unit_of = lambda written: written.replace("{}", next(iter(kinds))) if len(kinds) == 1 or "{}" not in written else ""
    about = (MOTION | ENDING | OBSERVED_ATTRIBUTES).get(name, {"long_name": name})
    dimensions = ["member"]
    for axis, size in enumerate(example.shape[1:], 1):
        timed = axis == 1 and size == t.size and (name in MOTION or name in OBSERVED)
        by_coordinate = axis == example.ndim - 1 and size == len(names) and not timed
        dimensions.append("time" if timed else along if by_coordinate else f"{name}_{axis}")
    attributes: dict[str, Any] = {"long_name": about["long_name"]}
    if about.get("units") and "{force}" not in about["units"] and unit_of(about["units"]):
        attributes["units"] = unit_of(about["units"])
    if name == "result":
        attributes |= {
            "flag_values": np.array(list(REASONS), example.dtype),
            "flag_meanings": " ".join(reason.replace(" ", "_") for reason in REASONS.values()),
        }
    return dimensions, attributes


def _is_per_velocity(name: str) -> bool:
    """Whether it has an entry for each velocity."""
    return name in ("v", "last_v") or bool(OBSERVED.get(name, {}).get("per_coordinate"))


def labels_of(told: dict[str, Any]) -> list[tuple[str, str, list[str], dict[str, str]]]:
    """Name, dimension, entries and description of what coordinates, and velocities that are not theirs, are called."""
    found = []
    for dimension, what, unit in (
        ("coordinate", "generalised coordinate", "unit"),
        ("direction",) * 2 + ("direction_unit",),
    ):
        if f"{dimension}s" in told:
            names, units = (list(each) for each in zip(*told[f"{dimension}s"], strict=True))
            found.append((dimension, dimension, names, {"long_name": f"name of the {what}"}))
            found.append((unit, dimension, units, {"long_name": f"unit of the {what}"}))
    return found


def as_dataset(
    told: dict[str, Any],
    examples: dict[str, np.ndarray],
    read: Callable[[str, np.ndarray], np.ndarray],
) -> "xarray.Dataset":
    """``read(name, members)`` gives some members' rows of what is called ``name``, of which ``examples`` has a few."""
    import xarray
    from xarray.backends import BackendArray
    from xarray.core import indexing

    class Rows(BackendArray):
        """All members' rows, in one column of them if that is given."""

        def __init__(self, name, column=None):
            self.name, self.column = name, column
            self.dtype = examples[name].dtype
            self.shape = (told["members"], *(examples[name].shape[1:] if column is None else ()))

        def __getitem__(self, key):
            return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

        def _read(self, key):
            which, rest = key[0], key[1:]
            one = isinstance(which, int | np.integer)
            members = np.atleast_1d(np.arange(told["members"])[which])
            rows = read(self.name, members)
            rows = rows if self.column is None else rows[:, self.column]
            for axis, each in enumerate(rest, 1):
                rows = rows[(slice(None),) * axis + (slice(each, each + 1) if isinstance(each, int) else each,)]
            drop = tuple(axis for axis, each in enumerate(key) if isinstance(each, int | np.integer))
            return np.squeeze(rows, drop) if drop or one else rows

    lazy = lambda *given: indexing.LazilyIndexedArray(Rows(*given))
    dataset = xarray.Dataset(
        attrs=title_of(told),
        coords={name: (dimension, entries, about) for name, dimension, entries, about in labels_of(told)},
    )
    for i, name in enumerate(told["over"]):
        dataset[name] = ("member", lazy("over", i), {"long_name": f"{name}, which was swept"})
    for name, example in examples.items():
        if name != "over":
            dimensions, attributes = dimensions_and_attributes(told, name, example)
            dataset[name] = (dimensions, lazy(name), attributes)
    if "time" in dataset.dims:
        dataset = dataset.assign_coords(time=("time", times_of(told), {"units": "s", "long_name": "time"}))
    return dataset
