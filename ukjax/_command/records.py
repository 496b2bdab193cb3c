"""Measured motions from tables: a column of times, and columns of coordinates and rates by their names."""

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .usage import UsageError


class Record(NamedTuple):
    """Times (samples,), values (samples, columns), NaN where a cell was empty, and for each column which entry of
    (q, v) it is."""

    t: np.ndarray
    values: np.ndarray
    places: tuple[int, ...]


def read_record(file: str, coordinates: tuple[tuple[str, str], ...]) -> Record:
    """The record in a .csv file, whose first line names its columns: t, and ``q1`` or ``dq1`` for the rate, each with
    its unit in brackets if need be. Columns of other names are passed over."""
    path = Path(file)
    if path.suffix != ".csv":
        raise UsageError(f"{file!r} must end in .csv: a table whose first line names its columns")
    try:
        with open(path, newline="", encoding="utf-8-sig") as source:
            rows = [row for row in csv.reader(source) if row]
    except OSError as error:
        raise UsageError(f"{file!r} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file!r} is not a table of text") from None
    if len(rows) < 3:
        raise UsageError(f"{file!r} must hold a line of names and at least two of numbers, got {len(rows)} lines")
    names = [name.split("[")[0].strip() for name in rows[0]]
    known = {name: i for i, (name, _) in enumerate(coordinates)}
    known |= {f"d{name}": len(coordinates) + i for i, (name, _) in enumerate(coordinates)}
    time = next((i for i, name in enumerate(names) if name in ("t", "time")), None)
    if time is None:
        raise UsageError(f"{file!r} has no column t or time; it has {', '.join(names)}")
    columns = [i for i, name in enumerate(names) if name in known]
    if not columns:
        raise UsageError(
            f"{file!r} has no column of the system's: there are {', '.join(known)}; it has {', '.join(names)}"
        )
    numbers = np.full((len(rows) - 1, len(columns) + 1), np.nan)
    for i, row in enumerate(rows[1:]):
        for j, column in enumerate([time, *columns]):
            cell = row[column].strip() if column < len(row) else ""
            try:
                numbers[i, j] = float(cell) if cell else np.nan
            except ValueError:
                raise UsageError(f"{file!r}, line {i + 2}: {names[column]} is {cell!r}, not a number") from None
    if not np.all(np.isfinite(numbers[:, 0])):
        raise UsageError(f"{file!r}, line {int(np.argmin(np.isfinite(numbers[:, 0]))) + 2}: the time is missing")
    return Record(numbers[:, 0], numbers[:, 1:], tuple(known[names[i]] for i in columns))
