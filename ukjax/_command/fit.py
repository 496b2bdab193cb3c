"""``ukjax fit``: estimate parameters from measured motions."""

import argparse
import sys
import time
import warnings
from typing import Any

from .mechanism import add_system, check_system, mechanism_of
from .outputs import result_and_figure, save_and_print
from .status import status_line
from .usage import UsageError, check_output, library_errors_as_usage_errors


def add_to(commands: Any) -> None:
    """Add the sub-command and its options to the parser."""
    parser = commands.add_parser(
        "fit",
        help="estimate parameters of a system from measured motions",
        description="Estimate parameters of a system from measured motions. Each motion is a table (.csv) whose first "
        "line names its columns: t, the coordinates of the system (q1, ...), their rates (dq1, ...), and recorded "
        "inputs (tau1 and tau2, the torques of the acrobot). Empty cells are missing values.",
        allow_abbrev=False,
    )
    option = parser.add_argument
    add_system(parser)
    option("data", nargs="+", metavar="FILE", help="table of one measured motion")
    option(
        "--free",
        required=True,
        metavar="NAMES",
        help="parameters to estimate: m1,m2 or ma[0],ma[1]; observe.shift[0] is the offset of the first data column",
    )
    option(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="initial guess of a free parameter, or value of a fixed one",
    )
    option(
        "--known-start",
        action="store_true",
        help="do not estimate the start: take it from the first line, and missing entries from the start of the system",
    )
    option(
        "--sigma",
        type=float,
        help="standard deviation of the noise in all columns (default: estimated per column from the residuals)",
    )
    option("--dt", type=float, metavar="SECONDS", help="largest step (default: chosen automatically)")
    option(
        "--segments", type=int, default=1, metavar="N", help="segments per motion, for multiple shooting (default 1)"
    )
    option(
        "--regress",
        type=float,
        metavar="HZ",
        help="start from a linear regression on differences of the coordinates, low-pass filtered at this frequency",
    )
    option("--loss", default="linear", help="loss function: linear, soft_l1, huber, cauchy or arctan (default linear)")
    option("--checkpoint", metavar="FILE", help="file that stores the state of the search; an existing one is resumed")
    option("--out", metavar="FILE", help="JSON file of the result (default SYSTEM-fit.json)")
    option("--plot", metavar="FILE", help="file of the figure (default SYSTEM-fit.png)")
    option("--json", action="store_true", help="print the result as JSON")
    option("--progress", action="store_true", help="show each iteration")
    parser.set_defaults(call=fit_system)


def fit_system(options: argparse.Namespace) -> int:
    """Estimate parameters from measured motions, print a table, and save JSON and a figure.

    Returns exit code 1 if the data determine none of the parameters, else 0.
    """
    check_system(options.system, options.floating)
    if options.dt is not None and not 0 < options.dt < float("inf"):
        raise UsageError(f"--dt must be positive, got {options.dt:g}")
    result, figure = result_and_figure(options, "fit")
    if options.checkpoint is not None:
        checkpoint = check_output("--checkpoint", options.checkpoint)
        if checkpoint in (result, figure) or options.checkpoint in options.data:
            raise UsageError(f"--checkpoint {options.checkpoint!r} must differ from the data, --out and --plot files")
    start_time = time.perf_counter()

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
    with library_errors_as_usage_errors(), status_line("fitting", hidden=options.progress):
        mechanism, (q0, v0) = with_settings(mechanism_of(options.system, options.floating), options.set)
        records = [read_record(file, mechanism) for file in options.data]
        state_indices = records[0].state_indices
        if any(record.state_indices != state_indices for record in records):
            raise UsageError("all tables must have the same columns")
        start, free = np.concatenate([q0, v0]), names_of(options.free)
        experiments = [
            experiment_of(record, mechanism, start, options.known_start, options.sigma) for record in records
        ]
        completes_state = type(mechanism).placed is not AbstractMechanism.placed
        if options.regress is not None:
            reduced, coordinates_of = measured_coordinates(experiments, state_indices, np.asarray(q0), completes_state)
            mechanism = regress(mechanism, reduced, free, cutoff=options.regress, coordinates_of=coordinates_of).model
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fitted = fit(
                mechanism,
                experiments,
                free,
                observe=MeasuredEntries(jnp.zeros(len(state_indices)), state_indices),
                state=PlacedStart() if completes_state else None,
                fit_starts=not options.known_start,
                dt=options.dt,
                segments=options.segments,
                loss=options.loss,
                progress=options.progress,
                checkpoint=options.checkpoint,
            )
    for warning in caught:
        if issubclass(warning.category, UserWarning):
            print(f"ukjax fit: {' '.join(str(warning.message).split())}", file=sys.stderr)
    save_and_print(options, start_time, fitted, result, figure, plot.fitted)
    if fitted.identifiability.rank:
        return 0
    message = f"the data determine none of {', '.join(fitted.names)}: the estimates are meaningless"
    print(f"ukjax fit: {message}", file=sys.stderr)
    return 1
