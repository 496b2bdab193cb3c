"""Measured motions from tables: a column of times, and columns of coordinates and rates by their names."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._estimate import Experiment
from .._system import split_state
from ..systems.base import AbstractMechanism
from .mechanism import named_coordinates, named_velocities
from .tables import read_table
from .usage import UsageError


class Record(NamedTuple):
    """Times (samples,), values (samples, columns), NaN where a cell was empty, and for each column which entry of
    (q, v) it is; and what the mechanism was driven by (samples, k), where that was recorded."""

    t: np.ndarray
    values: np.ndarray
    places: tuple[int, ...]
    inputs: np.ndarray | None


def read_record(file: str, mechanism: AbstractMechanism) -> Record:
    """The record in a .csv file, whose first line names its columns: t, and ``q1`` or ``dq1`` for the rate, each with
    its unit in brackets if need be, which must be the system's; and the inputs by the mechanism's names. Other columns
    are passed over."""
    table = read_table(file)
    names, state = table.names, (*named_coordinates(mechanism), *named_velocities(mechanism))
    known = {name: (i, unit) for i, (name, unit) in enumerate(state)}
    times = [i for i, name in enumerate(names) if name in ("t", "time")]
    if not times:
        raise UsageError(f"{file!r} has no column t or time; it has {', '.join(names)}")
    columns = [i for i, name in enumerate(names) if name in known]
    if not columns:
        raise UsageError(
            f"{file!r} has no column of the system's: there are {', '.join(known)}; it has {', '.join(names)}"
        )
    driven = [names.index(name) for name in mechanism.record if name in names]
    if driven and len(driven) < len(mechanism.record):
        raise UsageError(f"{file!r} must have all of the columns {', '.join(mechanism.record)}, or none")
    wanted = [times[0], *columns, *driven]
    for column in wanted:
        alike = times if column == times[0] else [i for i, name in enumerate(names) if name == names[column]]
        if len(alike) > 1:
            twice = " and ".join(dict.fromkeys(names[i] for i in alike))
            raise UsageError(f"{file!r} has {len(alike)} columns {twice}: each counts once, so leave out all but one")
        unit = "s" if column == times[0] else known[names[column]][1] if column in columns else ""
        given = table.units[column]
        if unit and given not in ("", "-", unit):
            raise UsageError(
                f"{file!r} has {names[column]} in [{given}], but the system's is in [{unit}]: convert it, or leave the "
                "unit out if it is another word for that"
            )
    numbers = table.numbers(wanted)
    for j in (0, *range(1 + len(columns), len(wanted))):
        if not np.all(np.isfinite(numbers[:, j])):
            line = table.lines[int(np.argmin(np.isfinite(numbers[:, j])))]
            raise UsageError(f"{file!r}, line {line}: {'the time' if j == 0 else names[wanted[j]]} is missing")
    t = numbers[:, 0]
    if not np.all(np.diff(t) > 0):
        i = int(np.argmin(np.diff(t) > 0)) + 1
        raise UsageError(f"{file!r}, line {table.lines[i]}: the time must increase, got {t[i]:g} after {t[i - 1]:g}")
    values, inputs = np.split(numbers[:, 1:], [len(columns)], axis=1)
    if not np.any(np.isfinite(values)):
        raise UsageError(
            f"{file!r} holds no measured value: every cell of {', '.join(names[i] for i in columns)} is empty"
        )
    return Record(t, values, tuple(known[names[i]][0] for i in columns), inputs if driven else None)


class MeasuredEntries(eqx.Module):
    """The measured entries of (q, v), each with the ``shift`` of its sensor."""

    shift: Array
    places: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, t: Array, q: Array, v: Array) -> Array:
        return jnp.concatenate([q, v])[jnp.array(self.places)] + self.shift


class PlacedStart(eqx.Module):
    """A start (q0, v0) whose numbers need not fit each other yet."""

    def __call__(self, model: AbstractMechanism, z: Array, t: Array) -> tuple[Array, Array]:
        return model.placed(*split_state(model, z))


class PlacedColumns(eqx.Module):
    """q from its measured entries, and from ``rest`` where nothing was measured."""

    rest: np.ndarray
    places: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, model: AbstractMechanism, s: Array) -> Array:
        q = jnp.asarray(self.rest).at[jnp.array(self.places)].set(s)
        return model.placed(q, 0 * q)[0]


def experiment_of(
    record: Record, mechanism: AbstractMechanism, start: np.ndarray, known_start: bool, sigma: float | None
) -> Experiment:
    """A record as an experiment. Its states are what was measured, and ``start`` (2n,) where nothing was; a rate that
    has to be estimated begins at the differences of what was measured."""
    states = np.tile(start, (len(record.t), 1))
    for column, place in enumerate(record.places):
        values = record.values[:, column]
        seen = np.isfinite(values)
        if seen.any():
            states[:, place] = np.interp(record.t, record.t[seen], values[seen])
    state = [name for name, _ in (*named_coordinates(mechanism), *named_velocities(mechanism))]
    rates = {state.index(name): state.index(f"d{name}") for name in state if f"d{name}" in state}
    for i, rate in () if known_start else rates.items():
        if i in record.places and rate not in record.places:
            states[:, rate] = np.gradient(states[:, i], record.t)
    setting = None if record.inputs is None else mechanism.recorded(record.t, record.inputs)  # pyright: ignore
    measured = np.isfinite(record.values)
    return Experiment(record.t, record.values, states, sigma=sigma, measured=measured, setting=setting)


def measured_coordinates(
    experiments: list[Experiment], places: tuple[int, ...], q0: np.ndarray, places_itself: bool
) -> tuple[list[Experiment], PlacedColumns | None]:
    """The same with the measured coordinates alone, in their order, and how they make q; None where they are q. Raises
    ``UsageError`` if some are missing which the mechanism does not place itself."""
    columns = sorted((i for i, place in enumerate(places) if place < q0.size), key=lambda i: places[i])
    if not columns or len(columns) < q0.size and not places_itself:
        raise UsageError(
            f"--regress needs all {q0.size} coordinates of this system in the table, got {len(columns)}: measure more, "
            "or leave it out"
        )
    reduced = [
        Experiment(e.t, e.y[:, columns], e.start, measured=e.measured[:, columns], setting=e.setting)
        for e in experiments
    ]
    return reduced, PlacedColumns(q0, tuple(places[i] for i in columns)) if places_itself else None
