"""Files of a motion: NumPy archives (.npz), netCDF with CF attributes (.nc), tables (.csv)."""

import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..._errors import InputError
from ..._extras import extra_package
from ..._labels import Labels, Named, force_unit
from ..result import REASONS, all_ended_well, in_words

if TYPE_CHECKING:
    import xarray

MOTION = {
    "q": {"long_name": "generalised coordinates", "units": "{}"},
    "v": {"long_name": "generalised velocities", "units": "{} s-1"},
}
ENDING = {
    "result": {"long_name": "how the motion ended"},
    "steps": {"long_name": "steps taken", "units": "1"},
    "last_t": {"long_name": "time that the motion came to", "units": "s"},
    "last_q": {"long_name": "generalised coordinates it came to", "units": "{}"},
    "last_v": {"long_name": "generalised velocities it came to", "units": "{} s-1"},
}
"""Metadata of each quantity in files; ``Observation`` declares those of the others. {} is the unit of the coordinates,
or of their forces, if all have the same.
"""


LONG_NAMES = {"coordinate": "generalised coordinate", "input": "actuator", "state": "first-order state"}
"""Names of dimensions in words, where they differ."""

CONTACTS, EVENTS = "contacts_", "events_"
"""Prefixes of the names of the fields of ``ContactHistory`` and ``EventHistory`` in .npz files."""


class SavedMotion(NamedTuple):
    """Contents of a file.

    ``arrays`` by name: t, q, v, those of ``ENDING`` and any of ``observed``, the metadata of further quantities;
    ``labels``, the names of entries; and ``contacts`` and ``events``, the fields of ``ContactHistory`` and
    ``EventHistory``, which only .npz files have.
    """

    arrays: dict[str, np.ndarray]
    observed: dict[str, Any]
    labels: Labels
    contacts: dict[str, np.ndarray] = {}
    events: dict[str, np.ndarray] = {}

    @property
    def batch(self) -> tuple[str, ...]:
        """Name of the batch axis: () or ('member',)."""
        return ("member",) if self.arrays["t"].ndim == 2 else ()


def write_npz(saved: SavedMotion, path: Path) -> None:
    """Write every array by its name, and texts.

    Fields of ``ContactHistory`` have the prefix ``contacts_``, those of ``EventHistory`` the prefix ``events_``. The
    texts are ``title``, ``reason``, ``coordinates`` and
    ``inputs`` (name and unit in each row), and ``residual_row`` and so on, the names of rows.
    """
    labels = saved.labels
    texts = {
        "title": np.array(labels.title),
        "reason": np.array(in_words(saved.arrays["result"])),
        "coordinates": _text(labels.coordinates).reshape(-1, 2),
        "inputs": _text(labels.inputs).reshape(-1, 2),
        **({} if labels.directions is None else {"directions": _text(labels.directions).reshape(-1, 2)}),
        **({"states": _text(labels.states).reshape(-1, 2)} if labels.states else {}),
    } | {f"{name}_row": _text(rows) for name, rows in labels.rows}
    with open(path, "wb") as file:
        contacts = {f"{CONTACTS}{name}": value for name, value in saved.contacts.items()}
        events = {f"{EVENTS}{name}": value for name, value in saved.events.items()}
        np.savez_compressed(file, allow_pickle=False, **saved.arrays, **texts, **contacts, **events)


def read_npz(path: Path, observed: dict[str, Any]) -> SavedMotion:
    """Read a file by ``write_npz``, or raise ``InputError``."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = dict(archive)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{str(path)!r} is not a complete archive of arrays (.npz): {error}") from None
    _check_complete(path, arrays, ("t", "q", "v", *ENDING, "title", "coordinates", "inputs"))
    pairs = lambda name: tuple((str(a), str(b)) for a, b in arrays[name])
    rows = [name for name in observed if f"{name}_row" in arrays]
    labels = Labels(
        title=str(arrays["title"]),
        coordinates=pairs("coordinates"),
        inputs=pairs("inputs"),
        rows=tuple((name, tuple(str(row) for row in arrays[f"{name}_row"])) for name in rows),
        directions=pairs("directions") if "directions" in arrays else None,
        states=pairs("states") if "states" in arrays else (),
    )
    names = ("t", "q", "v", *ENDING, *observed)
    with_prefix = lambda prefix: {name.removeprefix(prefix): x for name, x in arrays.items() if name.startswith(prefix)}
    found = {name: arrays[name] for name in names if name in arrays}
    return SavedMotion(found, observed, labels, with_prefix(CONTACTS), with_prefix(EVENTS))


def as_dataset(saved: SavedMotion) -> "xarray.Dataset":
    """Convert to a dataset with named coordinates, units and names of rows, by the CF conventions.

    ``time`` is a coordinate if all members have the same times; ``t`` is added if it differs between members.
    """
    xarray = extra_package("xarray", "data", "a file of netCDF (.nc)")
    arrays, labels, batch = saved.arrays, saved.labels, saved.batch
    dataset = xarray.Dataset(attrs={"Conventions": "CF-1.11", "title": labels.title, "source": "ukjax"})
    dataset.attrs["finished"] = int(all_ended_well(arrays["result"]))
    has_directions = labels.directions is not None or bool(labels.states)
    directions = labels.along if has_directions else ()
    named_by_dimension = {"coordinate": labels.coordinates, "direction": directions, "input": labels.inputs}
    named_by_dimension["state"] = labels.states
    for dimension, named in named_by_dimension.items():
        if named:
            names, units = zip(*named, strict=True)
            which = LONG_NAMES.get(dimension, dimension)
            unit = "unit" if dimension == "coordinate" else f"{dimension}_unit"
            dataset = dataset.assign_coords(
                {
                    dimension: (dimension, list(names), {"long_name": f"name of the {which}"}),
                    unit: (dimension, list(units), {"long_name": f"unit of the {which}"}),
                }
            )
    t = arrays["t"]
    times = _common_times(t)
    seconds = {"units": "s", "long_name": "time"}
    if times is not None:
        dataset = dataset.assign_coords(time=("time", times, seconds))
    if times is None or not np.array_equal(t, np.broadcast_to(times, t.shape)):
        about = seconds | {"long_name": "time of each sample that was reached"}
        dataset = dataset.assign_coords(t=((*batch, "time"), t, about))
    rows, empty = dict(labels.rows), []
    for name, about in (MOTION | ENDING | saved.observed).items():
        if name not in arrays:
            continue
        value, attributes = arrays[name], {"long_name": about["long_name"]}
        sampled = () if name in ENDING else ("time",)
        last = ()
        if value.ndim > len(batch) + len(sampled):
            along = "direction" if has_directions and name not in ("q", "last_q") else "coordinate"
            known = name in MOTION or name in ENDING or about["per_coordinate"]
            last = (along if known else "input" if name == "control" else f"{name}_row",)
            if value.shape[-1] == 0:  # netCDF has no dimension of length 0
                empty.append(name)
                continue
        if unit := _unit(about.get("units"), name, labels):
            attributes["units"] = unit
        if name == "result":
            attributes |= {
                "flag_values": np.array(list(REASONS), value.dtype),
                "flag_meanings": " ".join(reason.replace(" ", "_") for reason in REASONS.values()),
            }
        if name in rows:
            about_rows = {"long_name": f"names of the rows of {name}"}
            dataset = dataset.assign_coords({last[0]: (last[0], list(rows[name]), about_rows)})
        dataset[name] = ((*batch, *sampled, *last), value, attributes)
    dataset.attrs["without_rows"] = " ".join(empty)
    return dataset


def read_netcdf(path: Path, observed: dict[str, Any]) -> SavedMotion:
    """Read a file by ``write_netcdf``, or raise ``InputError``."""
    xarray = extra_package("xarray", "data", "a file of netCDF (.nc)")
    try:
        dataset = xarray.load_dataset(path, engine="scipy")
    except (ValueError, TypeError, IndexError, EOFError, OverflowError) as error:
        raise InputError(f"{str(path)!r} is not a complete netCDF file of classic format: {error}") from None
    arrays = {str(name): np.asarray(value) for name, value in dataset.variables.items()}
    names = (*MOTION, *ENDING, *observed)
    empty = str(dataset.attrs.get("without_rows", "")).split()
    if "t" not in arrays and "time" in arrays and "q" in arrays:
        arrays["t"] = np.broadcast_to(arrays["time"], arrays["q"].shape[:-1])
    _check_complete(path, arrays, ("t", *MOTION, *ENDING, "coordinate", "unit"))
    arrays |= {name: np.zeros((*arrays["t"].shape, 0), arrays["q"].dtype) for name in empty}
    pairs = lambda *names: tuple(zip(*([str(x) for x in arrays[name]] for name in names), strict=True))
    named = {name: arrays.get(f"{name}_row", ()) for name in observed if f"{name}_row" in arrays or name in empty}
    coordinates, states = pairs("coordinate", "unit"), pairs("state", "state_unit") if "state" in arrays else ()
    directions = pairs("direction", "direction_unit") if "direction" in arrays else None
    if directions is not None and states:
        directions = None if directions[: -len(states)] == coordinates else directions[: -len(states)]
    labels = Labels(
        title=str(dataset.attrs.get("title", "")),
        coordinates=coordinates,
        inputs=pairs("input", "input_unit") if "input" in arrays else (),
        directions=directions,
        states=states,
        rows=tuple((name, tuple(str(row) for row in rows)) for name, rows in named.items() if name != "control"),
    )
    return SavedMotion({name: arrays[name] for name in ("t", *names) if name in arrays}, observed, labels)


def write_netcdf(saved: SavedMotion, path: Path) -> None:
    """Write ``as_dataset`` in the classic netCDF format, which all readers support."""
    as_dataset(saved).to_netcdf(path, engine="scipy")


def write_csv(saved: SavedMotion, path: Path) -> None:
    """Write a table of one motion, with one column per number, named with its unit."""
    arrays, labels = saved.arrays, saved.labels
    columns, n = {"t [s]": arrays["t"]}, len(labels.moving)
    for prefix, name, suffix in (("", "q", ""), ("d", "v", "/s"), ("dd", "acceleration", "/s^2")):
        named = labels.coordinates if name == "q" else labels.moving
        prefix = prefix if labels.directions is None else prefix[1:]
        for i, (coordinate, unit) in enumerate(named):
            full = f"{unit or '-'}{suffix}".replace(" s/s^2", "/s").replace(" s/s", "")  # of velocities in other units
            columns[f"{prefix}{coordinate} [{full}]"] = arrays[name][:, i]
    for prefix, name, suffix in (("", "v", ""), ("rate of ", "acceleration", "/s")):
        for i, (state, unit) in enumerate(labels.states):
            columns[f"{prefix}{state} [{unit or '-'}{suffix}]"] = arrays[name][:, n + i]
    for i, (coordinate, unit) in enumerate(labels.moving):
        columns[f"force on {coordinate} [{force_unit(unit)}]"] = arrays["constraint_force"][:, i]
    for i, (actuator, unit) in enumerate(labels.inputs):
        columns[f"control {actuator} [{unit or '-'}]"] = arrays["control"][:, i]
    for i in range(arrays["residual"].shape[1]):
        columns[f"residual {i + 1}"] = arrays["residual"][:, i]
    write_table(columns, path)


def write_table(columns: dict[str, Any], path: Path) -> None:
    """Write columns of numbers, by name, as comma-separated text."""
    table = np.column_stack([np.asarray(column) for column in columns.values()])
    np.savetxt(path, table, delimiter=",", header=",".join(columns), comments="", fmt="%.17g")


def _text(values) -> np.ndarray:
    return np.array(values, dtype=str)


def _check_complete(path, arrays, names):
    missing = [name for name in names if name not in arrays]
    if missing:
        raise InputError(
            f"{str(path)!r} must be a file that Trajectory.save wrote, got one without {missing[0]}; it contains "
            f"{', '.join(sorted(arrays)) or 'nothing'}"
        )


def _common_times(t):
    """The times that all members share, as far as each was integrated; None if there are none, for example with
    events.
    """
    members = np.atleast_2d(t)
    member = np.argmax(np.isfinite(members), axis=0)
    times = members[member, np.arange(members.shape[1])]
    same = np.all((members == times) | np.isnan(members))
    return times if same and np.all(np.isfinite(times)) else None


def _unit(written, name, labels) -> str:
    """The unit of a quantity if all its entries have the same unit; else an empty text."""
    of_coordinates = labels.coordinates if name in ("q", "last_q") else labels.along
    named: Named = labels.inputs if name == "control" else of_coordinates
    units = {unit for _, unit in named}
    if written is None or "{" in written and (len(units) != 1 or "" in units):
        return ""
    unit = units.pop() if "{" in written else ""
    return written.format(unit, force=force_unit(unit))
