"""``ukjax run``: simulate a system and print a summary."""

import argparse
import json
import time
from typing import Any

from .mechanism import title_and_source
from .motion import add_motion, check_motion, simulation_request
from .outputs import outputs
from .status import status_line
from .usage import UsageError, library_errors_as_usage_errors


def add_to(commands: Any) -> None:
    """Add the sub-command and its options to the parser."""
    parser = commands.add_parser(
        "run",
        help="simulate a system, print a summary, save data and figures",
        description="Simulate a system. By default it starts from the state given in its source, projected onto the "
        "constraints, and runs over the time span of the source.",
        allow_abbrev=False,
    )
    option = parser.add_argument
    add_motion(parser)
    option(
        "--as-published", action="store_true", help="use the start and the control law exactly as printed in the source"
    )
    option("--out", metavar="FILE", help="save the trajectory (.npz, .nc, .csv)")
    option(
        "--plot",
        nargs="?",
        const="",
        metavar="FILE",
        help="save a figure (.png, .pdf, .svg); without FILE, save SYSTEM.png and the data as SYSTEM.npz",
    )
    option("--animate", metavar="FILE", help="save an animation of the mechanism (.gif, .mp4, .html)")
    option("--json", action="store_true", help="print the summary as JSON")
    option("--verbose", action="store_true", help="also print how the motion was integrated: solver, steps, fallbacks")
    parser.set_defaults(call=run_system)


def run_system(options: argparse.Namespace) -> int:
    """Simulate, save the requested files and print a summary. Returns exit code 0."""
    check_motion(options)
    output_files = outputs(options)
    start_time = time.perf_counter()
    with library_errors_as_usage_errors(), status_line("simulating", hidden=options.progress):
        request = simulation_request(options)
        trajectories = (
            _as_published(request, options) if options.as_published else {options.drift: request.motion(options.drift)}
        )

    # Imports JAX, so only after the options have been checked.
    from .summary import summarise, table

    with status_line("writing") as status:
        files = output_files.save(trajectories, options.as_published, status)
    title, source = title_and_source(options.system, request.mechanism)
    with status_line("evaluating forces"):
        runs = {name: summarise(trajectory) for name, trajectory in trajectories.items()}
    report = {
        "system": options.system,
        "title": title,
        "source": source,
        "as_published": options.as_published,
        "runs": runs,
        "files": [str(file) for file in files],
        "seconds": round(time.perf_counter() - start_time, 3),
    }
    if not options.as_published:
        report |= report.pop("runs")[options.drift]
        report["drift"] = options.drift
    print(json.dumps(report, indent=1) if options.json else table(report, options.verbose))
    return 0


def _as_published(request, options):
    from .._motion.simulate.simulate import simulate

    versions = request.mechanism.published()
    if not versions:
        raise UsageError(
            f"--as-published: {options.system} has no published variants, its default run is that of the source"
        )
    return {
        name: simulate(
            version, request.q0, request.v0, request.ts, drift="none", throw=False, **request.simulate_options
        ).reached()
        for name, version in versions.items()
    }
