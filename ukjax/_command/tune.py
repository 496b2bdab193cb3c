"""``ukjax tune``: optimise parameters of a system for its task."""

import argparse
import time
from typing import Any

from .mechanism import add_system, check_system, mechanism_of
from .outputs import result_and_figure, save_and_print
from .status import status_line
from .usage import UsageError, check_memory, library_errors_as_usage_errors, one_of


def add_to(commands: Any) -> None:
    """Add the sub-command and its options to the parser."""
    parser = commands.add_parser(
        "tune",
        help="optimise gains of a system by gradients of its simulated motion",
        description="Optimise gains or dimensions of a system so that it follows its task best, from initial states "
        "scattered around that of the source. The result is validated on as many other initial states.",
        allow_abbrev=False,
    )
    option = parser.add_argument
    add_system(parser)
    option("--free", required=True, metavar="NAMES", help="parameters to optimise: alpha,beta")
    option(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="initial guess of a free parameter, or value of a fixed one",
    )
    option("--effort", type=float, default=0.0, metavar="W", help="weight of the mean squared force (default 0)")
    option(
        "--starts",
        type=int,
        default=8,
        metavar="N",
        help="number of initial states to tune on, and of others that are held out (default 8)",
    )
    option(
        "--spread",
        type=float,
        default=0.01,
        metavar="S",
        help="standard deviation of the initial states (default 0.01)",
    )
    option("--seed", type=int, default=0, help="seed of the initial states (default 0)")
    option("--t1", type=float, metavar="SECONDS", help="end time (default: that of the source)")
    option("--dt", type=float, metavar="SECONDS", help="largest step (default: chosen automatically)")
    option(
        "--samples",
        type=int,
        default=201,
        metavar="N",
        help="number of samples at which the cost is evaluated (default 201)",
    )
    option(
        "--drift",
        **one_of("projection", "none"),
        default="none",
        help="how drift off the constraints is removed (default: none)",
    )
    option("--out", metavar="FILE", help="JSON file of the result (default SYSTEM-tune.json)")
    option("--plot", metavar="FILE", help="file of the figure (default SYSTEM-tune.png)")
    option("--json", action="store_true", help="print the result as JSON")
    option("--progress", action="store_true", help="show each iteration")
    parser.set_defaults(call=tune_system)


def tune_system(options: argparse.Namespace) -> int:
    """Tune parameters over initial states scattered around the start of the source.

    Prints a table and saves JSON and a figure. Returns exit code 0.
    """
    check_system(options.system, options.floating)
    for name in ("t1", "dt", "spread"):
        value = getattr(options, name)
        if value is not None and not 0 < value < float("inf"):
            raise UsageError(f"--{name} must be positive, got {value:g}")
    if options.starts < 2:
        raise UsageError(f"--starts must be at least 2, got {options.starts}")
    if options.samples < 2:
        raise UsageError(f"--samples must be at least 2, got {options.samples}")
    if options.seed < 0:
        raise UsageError(f"--seed must not be negative, got {options.seed}")
    if not 0 <= options.effort < float("inf"):
        raise UsageError(f"--effort must be a number that is not negative, got {options.effort:g}")
    result, figure = result_and_figure(options, "tune")
    start_time = time.perf_counter()

    import numpy as np

    from .. import _precision, plot
    from .._cache import enable_compilation_cache
    from .._estimate import tune
    from .settings import names_of, with_settings

    _precision.enable_float64()
    enable_compilation_cache()
    with library_errors_as_usage_errors(), status_line("tuning", hidden=options.progress):
        mechanism, (q0, v0) = with_settings(mechanism_of(options.system, options.floating), options.set)
        array_entries = options.starts * options.samples * (1 + 2 * q0.size)
        check_memory(f"--starts {options.starts} of --samples {options.samples} take", array_entries, "take fewer")
        end = options.t1 or mechanism.end
        rng = np.random.default_rng(options.seed)
        scatter = lambda x: np.asarray(x) + options.spread * rng.normal(size=(2 * options.starts, np.size(x)))
        q, v = scatter(q0), scatter(v0)
        count = options.starts
        optimum = tune(
            mechanism,
            names_of(options.free),
            q[:count],
            v[:count],
            np.linspace(0.0, end, options.samples),
            dt=options.dt,
            effort=options.effort,
            held_out=(q[count:], v[count:]),
            start_of=lambda model, q, v: model.placed(q, v),
            drift=options.drift,
            progress=options.progress,
        )
    return save_and_print(options, start_time, optimum, result, figure, plot.tuned)
