"""``ukjax run``."""

import argparse
import json
import time
from typing import Any

from .mechanism import title_and_source
from .motion import add_motion, asked, check_motion
from .outputs import outputs
from .usage import UsageError, saying_what_is_refused


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
    add_motion(parser)
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
    parser.set_defaults(call=run_system)


def run_system(options: argparse.Namespace) -> int:
    """Simulate, print a summary, save what was asked for."""
    check_motion(options)
    wanted = outputs(options)
    began = time.perf_counter()
    with saying_what_is_refused():
        what = asked(options)
        runs = _as_published(what, options) if options.as_published else {options.drift: what.motion(options.drift)}

    # With JAX, which a mistaken word does not wait for.
    from .summary import summarise, table

    files = wanted.save(runs, published=options.as_published)
    title, source = title_and_source(options.system, what.mechanism)
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


def _as_published(what, options):
    from .._motion.simulate import simulate

    versions = what.mechanism.published()
    if not versions:
        raise UsageError(f"--as-published: {options.system} is run as its source has it without that")
    return {
        name: simulate(version, what.q0, what.v0, what.ts, drift="none", throw=False, **what.how).reached()
        for name, version in versions.items()
    }
