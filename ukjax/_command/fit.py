"""``ukjax fit``."""

import argparse
import sys
import time
import warnings
from typing import Any

from .mechanism import add_system, check_system, mechanism_of
from .outputs import report, result_and_figure
from .usage import UsageError, check_output, saying_what_is_refused


def add_to(commands: Any) -> None:
    """Its options, among the sub-commands of the command line."""
    parser = commands.add_parser(
        "fit",
        help="estimate parameters of a system from measured motions",
        description="Estimate parameters of a system of the gallery from measured motions: tables (.csv) whose first "
        "line names the columns t, q1, dq1 ... by the system's coordinates, and tau1, tau2 for the acrobot's torques. "
        "Empty cells are missing values.",
        allow_abbrev=False,
    )
    option = parser.add_argument
    add_system(parser)
    option("data", nargs="+", metavar="FILE", help="a motion each")
    option(
        "--free",
        required=True,
        metavar="NAMES",
        help="parameters to estimate: m1,m2 or ma[0],ma[1]; observe.shift[0] is that of the first measured column",
    )
    option("--set", action="append", default=[], metavar="NAME=VALUE", help="another first guess, or value")
    option(
        "--known-start",
        action="store_true",
        help="do not estimate the start: the first line is exact, and the system's own start where it is silent",
    )
    option(
        "--sigma",
        type=float,
        help="standard deviation of the noise in all columns (default: of each column from its residuals)",
    )
    option("--dt", type=float, metavar="SECONDS", help="longest step (default: as short as it takes)")
    option("--segments", type=int, default=1, metavar="N", help="cut each motion: multiple shooting")
    option(
        "--regress",
        type=float,
        metavar="HZ",
        help="begin with linear regression on differences of the coordinates below that frequency",
    )
    option("--loss", default="linear", help="linear, soft_l1, huber, cauchy or arctan")
    option("--checkpoint", metavar="FILE", help="keep the state of the search there, and go on from it")
    option("--out", metavar="FILE", help="the result as JSON (default SYSTEM-fit.json)")
    option("--plot", metavar="FILE", help="the figure (default SYSTEM-fit.png)")
    option("--json", action="store_true", help="print the result as JSON")
    option("--progress", action="store_true", help="show each step")
    parser.set_defaults(call=fit_system)


def fit_system(options: argparse.Namespace) -> int:
    """Estimate parameters of a system of the gallery from measured motions, print a table, save JSON and a figure."""
    check_system(options.system, options.floating)
    if options.dt is not None and not 0 < options.dt < float("inf"):
        raise UsageError(f"--dt must be positive, got {options.dt:g}")
    result, figure = result_and_figure(options, "fit")
    if options.checkpoint is not None:
        kept = check_output("--checkpoint", options.checkpoint)
        if kept in (result, figure) or options.checkpoint in options.data:
            raise UsageError(f"--checkpoint {options.checkpoint!r} is a file of its own, not one that is there anyway")
    began = time.perf_counter()

    import jax.numpy as jnp
    import numpy as np

    from .. import _precision, plot
    from .._cache import enable_compilation_cache
    from .._estimate import fit, regress
    from ..systems.base import AbstractMechanism
    from .records import MeasuredEntries, PlacedStart, experiment_of, measured_coordinates, read_record
    from .settings import names_of, with_settings

    _precision.enable_float64()
    enable_compilation_cache()
    with saying_what_is_refused():
        mechanism, (q0, v0) = with_settings(mechanism_of(options.system, options.floating), options.set)
        records = [read_record(file, mechanism) for file in options.data]
        places = records[0].places
        if any(record.places != places for record in records):
            raise UsageError("all tables must have the same columns")
        start, free = np.concatenate([q0, v0]), names_of(options.free)
        experiments = [
            experiment_of(record, mechanism, start, options.known_start, options.sigma) for record in records
        ]
        places_itself = type(mechanism).placed is not AbstractMechanism.placed
        if options.regress is not None:
            seen, to_q = measured_coordinates(experiments, places, np.asarray(q0), places_itself)
            mechanism = regress(mechanism, seen, free, cutoff=options.regress, coordinates_of=to_q).model
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            found = fit(
                mechanism,
                experiments,
                free,
                observe=MeasuredEntries(jnp.zeros(len(places)), places),
                state=PlacedStart() if places_itself else None,
                fit_starts=not options.known_start,
                dt=options.dt,
                segments=options.segments,
                loss=options.loss,
                progress=options.progress,
                checkpoint=options.checkpoint,
            )
    for warning in warned:
        if issubclass(warning.category, UserWarning):
            print(f"ukjax fit: {' '.join(str(warning.message).split())}", file=sys.stderr)
    report(options, began, found, result, figure, plot.fitted)
    if found.identifiability.rank:
        return 0
    none = f"the data determine none of {', '.join(found.names)}: nothing that was found means anything"
    print(f"ukjax fit: {none}", file=sys.stderr)
    return 1
