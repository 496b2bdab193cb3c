"""``ukjax run``."""

import argparse
import json
import time
from typing import Any

from .mechanism import add_system, check_system, mechanism_of, title_and_source
from .outputs import outputs
from .usage import UsageError, check_memory, saying_what_is_refused

TOLERANCE = 1e-11


def add_to(commands: Any) -> None:
    """Its options, among the sub-commands of the command line."""
    parser = commands.add_parser(
        "run",
        help="simulate a system of the gallery, print a summary, save data and figures",
        description="Simulate a system of the gallery: from its source's start, brought onto the constraints, over its "
        "source's time span, unless told otherwise.",
        allow_abbrev=False,
    )
    option = parser.add_argument
    add_system(parser)
    option(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter, or an initial value (q1, dq1)"
    )
    option("--t1", type=float, metavar="SECONDS", help="end of the motion (default: the source's)")
    option("--samples", type=int, default=1001, metavar="N", help="equally spaced samples (default 1001)")
    option("--drift", choices=("projection", "none"), default="projection", help="default: projection")
    option("--method", default="orthogonal", help="how the constrained motion is solved")
    option("--dt", type=float, metavar="SECONDS", help="fixed steps instead of adaptive ones")
    option("--rtol", type=float, help="relative tolerance of adaptive steps (default 1e-11)")
    option("--atol", type=float, help="absolute tolerance of adaptive steps (default 1e-11)")
    option("--as-published", action="store_true", help="the source's own start and law, as printed")
    option("--out", metavar="FILE", help="save the trajectory: .npz, .nc or .csv")
    option(
        "--plot",
        nargs="?",
        const="",
        metavar="FILE",
        help="save a figure (.png, .pdf, .svg); without a name SYSTEM.png, and SYSTEM.npz with the data",
    )
    option("--animate", metavar="FILE", help="save the mechanism in motion: .gif, .mp4 or .html")
    option("--json", action="store_true", help="print the summary as JSON")
    option("--progress", action="store_true", help="show a progress meter")
    parser.set_defaults(call=run_system)


def run_system(options: argparse.Namespace) -> int:
    """Simulate, print a summary, save what was asked for."""
    _check(options)
    wanted = outputs(options)
    began = time.perf_counter()

    # JAX is imported only now, when the words were found to make sense.
    import numpy as np

    from .. import _precision
    from .._cache import enable_compilation_cache
    from .._check import check_step
    from .._mechanism import Mechanism
    from .._motion.project import project
    from .._motion.simulate import simulate
    from .settings import with_settings
    from .summary import summarise, table

    _precision.enable_float64()
    enable_compilation_cache()
    with saying_what_is_refused():
        mechanism, (q0, v0) = with_settings(mechanism_of(options.system, options.floating), options.set)
        numbers = options.samples * (1 + 6 * q0.size)  # t, q, v, q'' and forces
        check_memory(f"--samples {options.samples} take", numbers, "take fewer")
        ts = np.linspace(0.0, mechanism.end if options.t1 is None else options.t1, options.samples)
        if options.dt is not None:
            check_step(options.dt, ts)
        how = {name: getattr(options, name) for name in ("method", "progress")} | _steps(options, mechanism.step, ts)
        if options.as_published:
            versions = mechanism.published()
            if not versions:
                raise UsageError(f"--as-published: {options.system} is run as its source has it without that")
            runs = {
                name: simulate(version, q0, v0, ts, drift="none", throw=False, **how).reached()
                for name, version in versions.items()
            }
        else:
            if options.drift == "projection" and not (isinstance(mechanism, Mechanism) and ts[0] == 0):  # fits already
                q0, v0 = project(mechanism, ts[0], q0, v0, options.method)
            runs = {options.drift: simulate(mechanism, q0, v0, ts, drift=options.drift, **how)}

    files = wanted.save(runs, published=options.as_published)
    title, source = title_and_source(options.system, mechanism)
    report = {
        "system": options.system,
        "title": title,
        "source": source,
        "as_published": options.as_published,
        "runs": {name: summarise(trajectory) for name, trajectory in runs.items()},
        "files": [str(file) for file in files],
        "seconds": round(time.perf_counter() - began, 3),
    }
    if not options.as_published:
        report |= report.pop("runs")[options.drift]
        report["drift"] = options.drift
    print(json.dumps(report, indent=1) if options.json else table(report))
    return 0


def _check(options) -> None:
    """The system and the numbers make sense, or ``UsageError``."""
    check_system(options.system, options.floating)
    if options.samples < 2:
        raise UsageError(f"--samples must be at least 2, got {options.samples}")
    if options.t1 is not None and not 0 < options.t1 < float("inf"):
        raise UsageError(f"--t1 must be a positive time in seconds, got {options.t1:g}")
    for name in ("dt", "rtol", "atol"):
        value = getattr(options, name)
        if value is not None and not 0 < value < float("inf"):
            raise UsageError(f"--{name} must be positive, got {value:g}")


def _steps(options, step, ts) -> dict[str, Any]:
    """The user's steps or tolerances, else those that suit the mechanism."""
    if step is not None and step > ts[-1] - ts[0]:
        step = None
    if options.dt is not None or options.rtol is not None or options.atol is not None:
        step = options.dt
    return {"dt": step} | {name: getattr(options, name) or TOLERANCE for name in ("rtol", "atol")}
