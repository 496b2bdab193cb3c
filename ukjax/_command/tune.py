"""``ukjax tune``."""

import argparse
import time
from typing import Any

from .mechanism import add_system, check_system, mechanism_of
from .outputs import report, result_and_figure
from .usage import UsageError, check_memory, saying_what_is_refused


def add_to(commands: Any) -> None:
    """Its options, among the sub-commands of the command line."""
    parser = commands.add_parser(
        "tune",
        help="choose gains of a system by gradients through its motion",
        description="Choose gains, or dimensions, of a system of the gallery with which it follows its task best from "
        "starts scattered around the source's. As many other starts are held out to try the result on.",
        allow_abbrev=False,
    )
    option = parser.add_argument
    add_system(parser)
    option("--free", required=True, metavar="NAMES", help="parameters to choose: alpha,beta")
    option("--set", action="append", default=[], metavar="NAME=VALUE", help="another first guess, or value")
    option("--effort", type=float, default=0.0, metavar="W", help="weight of the mean squared force (0)")
    option("--starts", type=int, default=8, metavar="N", help="starts to tune on (default 8)")
    option("--spread", type=float, default=0.01, metavar="S", help="their standard deviation (default 0.01)")
    option("--seed", type=int, default=0, help="of the scatter (default 0)")
    option("--t1", type=float, metavar="SECONDS", help="end of the motions (default: the source's)")
    option("--dt", type=float, metavar="SECONDS", help="longest step (default: as short as it takes)")
    option("--samples", type=int, default=201, metavar="N", help="samples that count (default 201)")
    option("--drift", choices=("projection", "none"), default="none", help="default: none")
    option("--out", metavar="FILE", help="the result as JSON (default SYSTEM-tune.json)")
    option("--plot", metavar="FILE", help="the figure (default SYSTEM-tune.png)")
    option("--json", action="store_true", help="print the result as JSON")
    option("--progress", action="store_true", help="show each step")
    parser.set_defaults(call=tune_system)


def tune_system(options: argparse.Namespace) -> int:
    """Tune gains of a system of the gallery over starts scattered around the source's, print a table, save JSON and a
    figure."""
    check_system(options.system, options.floating)
    for name in ("t1", "dt", "spread"):
        value = getattr(options, name)
        if value is not None and not 0 < value < float("inf"):
            raise UsageError(f"--{name} must be positive, got {value:g}")
    if options.starts < 2:
        raise UsageError(f"--starts must be at least 2, half of them held out, got {options.starts}")
    if options.samples < 2:
        raise UsageError(f"--samples must be at least 2, got {options.samples}")
    if options.seed < 0:
        raise UsageError(f"--seed must not be negative, got {options.seed}")
    if not 0 <= options.effort < float("inf"):
        raise UsageError(f"--effort must be a number that is not negative, got {options.effort:g}")
    result, figure = result_and_figure(options, "tune")
    began = time.perf_counter()

    import numpy as np

    from .. import _precision, plot
    from .._cache import enable_compilation_cache
    from .._estimate import tune
    from .settings import names_of, with_settings

    _precision.enable_float64()
    enable_compilation_cache()
    with saying_what_is_refused():
        mechanism, (q0, v0) = with_settings(mechanism_of(options.system, options.floating), options.set)
        numbers = options.starts * options.samples * (1 + 2 * q0.size)
        check_memory(f"--starts {options.starts} of --samples {options.samples} take", numbers, "take fewer")
        end = options.t1 or mechanism.end
        rng = np.random.default_rng(options.seed)
        scatter = lambda x: np.asarray(x) + options.spread * rng.normal(size=(2 * options.starts, np.size(x)))
        q, v = scatter(q0), scatter(v0)
        half = options.starts
        found = tune(
            mechanism,
            names_of(options.free),
            q[:half],
            v[:half],
            np.linspace(0.0, end, options.samples),
            dt=options.dt,
            effort=options.effort,
            held_out=(q[half:], v[half:]),
            start_of=lambda model, q, v: model.placed(q, v),
            drift=options.drift,
            progress=options.progress,
        )
    return report(options, began, found, result, figure, plot.tuned)
