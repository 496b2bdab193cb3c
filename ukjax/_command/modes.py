"""``ukjax modes``: natural frequencies, damping ratios and shapes of small motions about an equilibrium."""

import argparse
import json
import math
from typing import Any

from .equilibrium import add_equilibrium, find, lines_of_equilibrium, rounded
from .mechanism import check_system
from .status import status_line
from .usage import library_errors_as_usage_errors

SHOWN = 0.05
"""Smallest amplitude of a coordinate in the text, relative to the largest one of the mode."""


def add_to(commands: Any) -> None:
    """Add the sub-command and its options to the parser."""
    parser = commands.add_parser(
        "modes",
        help="natural frequencies, damping ratios and mode shapes about an equilibrium",
        description="Find the equilibrium nearest to the start, and the modes of small motions about it: natural "
        "frequency, damping ratio, eigenvalue, and amplitude of each coordinate.",
        allow_abbrev=False,
    )
    add_equilibrium(parser)
    parser.set_defaults(call=print_modes)


def print_modes(options: argparse.Namespace) -> int:
    """Print the equilibrium and its modes. Returns exit code 0."""
    check_system(options.system, options.floating)
    with library_errors_as_usage_errors(), status_line("searching"):
        found, report = find(options)
        linear = found.linear
        report["states"] = [name for name, _ in linear.states]
        report["modes"] = [_of_mode(mode, list(report["q"])) for mode in linear.modes]
    print(json.dumps(report, indent=1) if options.json else "\n".join(_lines(report)))
    return 0


def _of_mode(mode, names) -> dict[str, Any]:
    """A mode for the report; complex numbers are pairs of their real and imaginary parts."""
    pair = lambda z: [float(z.real), float(z.imag)]
    return {
        "frequency": mode.frequency,
        "hertz": mode.frequency / (2 * math.pi),
        "damping": mode.damping,
        "eigenvalue": pair(mode.eigenvalue),
        "shape": dict(zip(names, map(pair, mode.shape), strict=True)),
    }


def _lines(report) -> list[str]:
    lines = [*lines_of_equilibrium(report), "", f"  {'rad/s':>12}{'Hz':>12}{'damping':>10}   shape"]
    for mode in report["modes"]:
        sizes = {name: math.hypot(*amplitude) for name, amplitude in mode["shape"].items()}
        largest = max(sizes.values(), default=0.0)
        shown = [
            f"{name} {_amplitude(mode['shape'][name])}"
            for name, size in sizes.items()
            if size >= SHOWN * largest and size > 0
        ]
        numbers = f"{mode['frequency']:12.6g}{mode['hertz']:12.6g}{rounded(mode['damping']):10.3g}"
        lines.append(f"  {numbers}   {', '.join(shown)}")
    return lines


def _amplitude(pair):
    """An amplitude, with its phase in degrees unless that is 0 or 180."""
    size, phase = math.hypot(*pair), math.degrees(math.atan2(pair[1], pair[0]))
    if abs(math.sin(math.radians(phase))) < 1e-3:
        return f"{math.copysign(size, pair[0]):.3g}"
    return f"{size:.3g} ({phase:.0f}°)"
