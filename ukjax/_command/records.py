"""Read measured motions from tables with a time column and columns named after coordinates and rates."""

from collections.abc import Iterable
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._estimate import Experiment
from .._names import closest
from .._system import split_state
from ..systems.base import AbstractMechanism
from .mechanism import named_coordinates, named_velocities
from .tables import read_table
from .usage import UsageError


class Record(NamedTuple):
    """A measured motion.

    Attributes
    ----------
    t
        Times (samples,) [s].
    values
        Measured values (samples, columns), NaN for empty cells.
    state_indices
        For each column, its index in the state (q, v).
    inputs
        Recorded inputs (samples, k), or None.
    """

    t: np.ndarray
    values: np.ndarray
    state_indices: tuple[int, ...]
    inputs: np.ndarray | None


def read_record(file: str, mechanism: AbstractMechanism) -> Record:
    """Read a measured motion from a .csv file. Raises ``UsageError``.

    The first line names the columns: ``t`` or ``time``, coordinates (``q1``), rates (``dq1``), and the recorded inputs
    of the mechanism. A unit may follow in brackets; it must be the unit of the mechanism. Other columns are ignored.
    """
    table = read_table(file)
    names, state = table.names, (*named_coordinates(mechanism), *named_velocities(mechanism))
    state_of_name = {name: (i, unit) for i, (name, unit) in enumerate(state)}
    times = [i for i, name in enumerate(names) if name in ("t", "time")]
    if not times:
        hint = did_you_mean_as(names, ("t", "time"))
        raise UsageError(f"{file!r} has no column t or time; it has {', '.join(names)}{hint}")
    columns = [i for i, name in enumerate(names) if name in state_of_name]
    if not columns:
        raise UsageError(
            f"{file!r} has no column of the system: the system has {', '.join(state_of_name)}; "
            f"the table has {', '.join(names)}{did_you_mean_as(names, state_of_name)}"
        )
    for name in names:
        for own in state_of_name:
            if name != own and name.lower() == own.lower() and own not in names:
                raise UsageError(f"{file!r} has a column {name!r}; did you mean {own!r}, a coordinate of the system?")
    input_columns = [names.index(name) for name in mechanism.record if name in names]
    if input_columns and len(input_columns) < len(mechanism.record):
        raise UsageError(f"{file!r} must have all of the columns {', '.join(mechanism.record)}, or none")
    used_columns = [times[0], *columns, *input_columns]
    for column in used_columns:
        same_name = times if column == times[0] else [i for i, name in enumerate(names) if name == names[column]]
        if len(same_name) > 1:
            duplicates = " and ".join(dict.fromkeys(names[i] for i in same_name))
            raise UsageError(f"{file!r} has {len(same_name)} columns {duplicates}: keep only one of them")
        unit = "s" if column == times[0] else state_of_name[names[column]][1] if column in columns else ""
        unit_in_file = table.units[column]
        if unit and unit_in_file not in ("", "-", unit):
            raise UsageError(
                f"{file!r} has {names[column]} in [{unit_in_file}], but the system's is in [{unit}]: convert it, "
                "or omit the unit if it is a synonym"
            )
    numbers = table.numbers(used_columns)
    for j in (0, *range(1 + len(columns), len(used_columns))):
        if not np.all(np.isfinite(numbers[:, j])):
            line = table.lines[int(np.argmin(np.isfinite(numbers[:, j])))]
            raise UsageError(f"{file!r}, line {line}: {'the time' if j == 0 else names[used_columns[j]]} is missing")
    t = numbers[:, 0]
    if not np.all(np.diff(t) > 0):
        i = int(np.argmin(np.diff(t) > 0)) + 1
        raise UsageError(f"{file!r}, line {table.lines[i]}: the time must increase, got {t[i]:g} after {t[i - 1]:g}")
    values, inputs = np.split(numbers[:, 1:], [len(columns)], axis=1)
    if not np.any(np.isfinite(values)):
        raise UsageError(
            f"{file!r} has no measured value: every cell of {', '.join(names[i] for i in columns)} is empty"
        )
    return Record(t, values, tuple(state_of_name[names[i]][0] for i in columns), inputs if input_columns else None)


def did_you_mean_as(names: Iterable[str], known: Iterable[str]) -> str:
    """Return "; did you mean ... as ...?" for the first of ``names`` that is similar to a known one, or ""."""
    pairs = ((closest(name, known), name) for name in names)
    return next((f"; did you mean {match!r} as {name!r}?" for match, name in pairs if match is not None), "")


class MeasuredEntries(eqx.Module):
    """Observation function: the measured entries of (q, v), each plus the offset ``shift`` of its sensor."""

    shift: Array
    state_indices: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, t: Array, q: Array, v: Array) -> Array:
        return jnp.concatenate([q, v])[jnp.array(self.state_indices)] + self.shift


class PlacedStart(eqx.Module):
    """Start (q0, v0) from free parameters z, with dependent entries recomputed by ``AbstractMechanism.placed``."""

    def __call__(self, model: AbstractMechanism, z: Array, t: Array) -> tuple[Array, Array]:
        return model.placed(*split_state(model, z))


class PlacedColumns(eqx.Module):
    """q from the measured entries ``s``; the other entries come from ``rest`` and ``AbstractMechanism.placed``."""

    rest: np.ndarray
    state_indices: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, model: AbstractMechanism, s: Array) -> Array:
        q = jnp.asarray(self.rest).at[jnp.array(self.state_indices)].set(s)
        return model.placed(q, 0 * q)[0]


def experiment_of(
    record: Record, mechanism: AbstractMechanism, start: np.ndarray, known_start: bool, sigma: float | None
) -> Experiment:
    """Convert a record to an ``Experiment``.

    The states that initialise the search are the measured values, interpolated over empty cells, and the entries of
    ``start`` (2n,) in columns that were not measured. Unless the start is known, the rate of a measured coordinate
    that was not measured itself is initialised by finite differences.
    """
    states = np.tile(start, (len(record.t), 1))
    for column, state_index in enumerate(record.state_indices):
        values = record.values[:, column]
        is_measured = np.isfinite(values)
        if is_measured.any():
            states[:, state_index] = np.interp(record.t, record.t[is_measured], values[is_measured])
    state = [name for name, _ in (*named_coordinates(mechanism), *named_velocities(mechanism))]
    rates = {state.index(name): state.index(f"d{name}") for name in state if f"d{name}" in state}
    for i, rate in () if known_start else rates.items():
        if i in record.state_indices and rate not in record.state_indices:
            states[:, rate] = np.gradient(states[:, i], record.t)
    setting = None if record.inputs is None else mechanism.recorded(record.t, record.inputs)  # pyright: ignore
    measured = np.isfinite(record.values)
    return Experiment(record.t, record.values, states, sigma=sigma, measured=measured, setting=setting)


def measured_coordinates(
    experiments: list[Experiment], state_indices: tuple[int, ...], q0: np.ndarray, completes_state: bool
) -> tuple[list[Experiment], PlacedColumns | None]:
    """Reduce experiments to their measured coordinates, in the order of q.

    Also return the function that completes them to q, or None if they are all of q. Raises ``UsageError`` if
    coordinates are missing that the mechanism cannot compute itself.
    """
    columns = sorted(
        (i for i, state_index in enumerate(state_indices) if state_index < q0.size), key=lambda i: state_indices[i]
    )
    if not columns or len(columns) < q0.size and not completes_state:
        raise UsageError(
            f"--regress needs all {q0.size} coordinates of this system in the table, got {len(columns)}: measure more, "
            "or leave it out"
        )
    reduced = [
        Experiment(e.t, e.y[:, columns], e.start, measured=e.measured[:, columns], setting=e.setting)
        for e in experiments
    ]
    return reduced, PlacedColumns(q0, tuple(state_indices[i] for i in columns)) if completes_state else None
