"""``ukjax equilibrium``: find the equilibrium of a system nearest to its start."""

import argparse
import json
from typing import TYPE_CHECKING, Any

from .mechanism import add_system, check_system, mechanism_of, title_and_source
from .status import status_line
from .usage import library_errors_as_usage_errors

if TYPE_CHECKING:
    from .._analysis import Equilibrium


def add_to(commands: Any) -> None:
    """Add the sub-command and its options to the parser."""
    parser = commands.add_parser(
        "equilibrium",
        help="find an equilibrium, the forces of its constraints, and whether it is stable",
        description="Find the equilibrium nearest to the start, the multipliers of the constraints there, and whether "
        "small deviations grow.",
        allow_abbrev=False,
    )
    add_equilibrium(parser)
    parser.set_defaults(call=print_equilibrium)


def add_equilibrium(parser: argparse.ArgumentParser) -> None:
    """Add the options for the system, its parameters, the start of the search, and held coordinates."""
    option = parser.add_argument
    add_system(parser)
    option("--set", action="append", default=[], metavar="NAME=VALUE", help="set a parameter, or q where to search")
    option("--hold", default="", metavar="NAMES", help="coordinates that keep their value, separated by commas")
    option("--json", action="store_true", help="print JSON")


def print_equilibrium(options: argparse.Namespace) -> int:
    """Print the equilibrium. Returns exit code 0."""
    check_system(options.system, options.floating)
    with library_errors_as_usage_errors(), status_line("searching"):
        found, report = find(options)
    print(json.dumps(report, indent=1) if options.json else "\n".join(lines_of_equilibrium(report)))
    return 0


def find(options: argparse.Namespace) -> tuple["Equilibrium", dict[str, Any]]:
    """Find the equilibrium, in double precision, and describe it for a report.

    Raises ``UsageError`` or ``InputError``.
    """
    # JAX is imported only after the options have been checked.
    from .. import _precision
    from .._analysis import equilibrium
    from .._cache import enable_compilation_cache
    from .settings import names_of, with_settings

    _precision.enable_float64()
    enable_compilation_cache()
    mechanism, (q, _) = with_settings(mechanism_of(options.system, options.floating), options.set)
    found = equilibrium(mechanism, q, hold=tuple(names_of(options.hold)))
    title, source = title_and_source(options.system, mechanism)
    return found, {"system": options.system, "title": title, "source": source} | _of_equilibrium(found)


def _of_equilibrium(found: "Equilibrium") -> dict[str, Any]:
    """Coordinates, stability, and the multiplier of each row."""
    import numpy as np

    from .._labels import named_coordinates

    q, multipliers = np.asarray(found.q), np.asarray(found.multipliers)
    coordinates = named_coordinates(found.system, q.size)
    return {
        "q": {name: float(value) for (name, _), value in zip(coordinates, q, strict=True)},
        "units": dict(coordinates),
        "stable": bool(found.stable),
        "multipliers": dict(zip(found.rows, map(float, multipliers), strict=True)),
        "unique": dict(zip(found.rows, map(bool, np.asarray(found.unique)), strict=True)),
    }


def lines_of_equilibrium(report: dict[str, Any]) -> list[str]:
    """The report as lines of text."""
    units = report["units"]
    lines = [report["title"], report["source"], ""]
    q = ", ".join(f"{name} {rounded(value):.6g} {units[name]}".rstrip() for name, value in report["q"].items())
    lines.append(f"  {'equilibrium':14}{q}")
    lines.append(f"  {'stable':14}{'yes' if report['stable'] else 'no: a small deviation grows'}")
    for i, (name, value) in enumerate(report["multipliers"].items()):
        note = "" if report["unique"][name] else ", not unique: it shares its load with other rows"
        lines.append(f"  {'multipliers' if i == 0 else '':14}{name} {rounded(value):.6g}{note}")
    return lines


def rounded(value: float) -> float:
    """The value for a text, with 0 in the place of rounding errors of 0."""
    return round(value, 12) + 0.0
