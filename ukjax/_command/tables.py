"""Read tables of numbers: separated by commas, semicolons or tabs, with decimal points or decimal commas."""

import codecs
import csv
import io
import math
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .usage import UsageError, did_you_mean_file

SEPARATORS = ",;\t"


class Table(NamedTuple):
    """Contents of a .csv file.

    Attributes
    ----------
    file
        Its path.
    names
        Column names, from the first line.
    units
        Units of the columns, from brackets in the first line; empty if there are none.
    lines
        Line number of each row.
    rows
        Cells of each row.
    commas
        Whether cells are separated by commas. Otherwise a comma in a number is a decimal comma.
    """

    file: str
    names: list[str]
    units: list[str]
    lines: list[int]
    rows: list[list[str]]
    commas: bool

    def numbers(self, columns: list[int]) -> np.ndarray:
        """Return the numbers (rows, columns) of some columns; NaN for empty cells and "nan".

        Raises ``UsageError`` for a cell that is not a finite number.
        """
        cells = [[row[i] if i < len(row) else "" for i in columns] for row in self.rows]
        if not self.commas:
            self._check_decimals(cells)
        values = np.full((len(cells), len(columns)), np.nan)
        for i, row in enumerate(cells):
            for j, cell in enumerate(row):
                if cell:
                    values[i, j] = self._number(cell, f"{self.file!r}, line {self.lines[i]}: {self.names[columns[j]]}")
        return values

    def _check_decimals(self, cells):
        """Raise ``UsageError`` if the table has both decimal points and commas: either could separate thousands."""
        numbered_cells = [(line, cell) for line, row in zip(self.lines, cells, strict=True) for cell in row]
        with_comma, with_point = (next(((line, x) for line, x in numbered_cells if mark in x), None) for mark in ",.")
        if with_comma and with_point:
            raise UsageError(
                f"{self.file!r} has numbers with a comma, {with_comma[1]!r} in line {with_comma[0]}, and with a point, "
                f"{with_point[1]!r} in line {with_point[0]}: write all of them in one way"
            )

    def _number(self, cell, where):
        shown = cell if len(cell) <= 40 else f"{cell[:37]}..."
        try:
            value = float(cell if self.commas else cell.replace(",", "."))
        except ValueError:
            value = None
        if value is None or "_" in cell:
            raise UsageError(f"{where} is {shown!r}, not a number")
        if math.isinf(value):
            raise UsageError(
                f"{where} is {shown!r}, not a finite number: leave the cell empty where a value is missing"
            )
        return value


def read_table(file: str) -> Table:
    """Read a table from a .csv file. Raises ``UsageError``."""
    if Path(file).suffix != ".csv":
        raise UsageError(f"{file!r} must end in .csv: a table whose first line names its columns")
    text = _text(file)
    first = next((line for line in text.splitlines() if line.strip()), "")
    separator = max(SEPARATORS, key=first.count)
    rows = _cells(file, text, separator)
    if len(rows) < 3:
        raise UsageError(f"{file!r} must have a line of names and at least two lines of numbers, got {len(rows)} lines")
    names = [name.split("[")[0].strip() for name in rows[0][1]]
    units = [name.partition("[")[2].partition("]")[0].strip() for name in rows[0][1]]
    for line, row in rows[1:]:
        if any(row[len(names) :]) and names[0].startswith("#"):
            raise UsageError(f"{file!r} must begin with the names of the columns, without the comment {names[0]!r}")
        if any(row[len(names) :]):
            raise UsageError(
                f"{file!r}, line {line} has {len(row)} cells for {len(names)} names: separate numbers with "
                "decimal commas by semicolons"
            )
    lines, cells = zip(*rows[1:], strict=True)
    return Table(file, names, units, list(lines), list(cells), separator == ",")


def _text(file):
    """Return the text of a file, in UTF-8, or in UTF-16 if it begins with a byte order mark."""
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        hint = did_you_mean_file(file) if isinstance(error, FileNotFoundError) else ""
        raise UsageError(f"{file!r} cannot be read: {error.strerror}{hint}") from None
    has_utf16_mark = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = content.decode("utf-16" if has_utf16_mark else "utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise UsageError(f"{file!r} is not a table of text")
    return text


def _cells(file, text, separator):
    """Return the rows that are not empty, each with its line number."""
    old_limit = csv.field_size_limit(sys.maxsize)  # a global setting of the csv module, restored below
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader]
    except csv.Error as error:
        raise UsageError(f"{file!r} is not a table: {error}") from None
    finally:
        csv.field_size_limit(old_limit)
    return [(line, row) for line, row in rows if any(row)]
