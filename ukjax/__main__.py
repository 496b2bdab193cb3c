"""The command line: ``ukjax`` or ``python -m ukjax``. Parses, calls what a Python user would call, prints."""

import argparse
import os
import sys
from typing import NoReturn

from . import __version__


class _Parser(argparse.ArgumentParser):
    """Bad usage is one line on standard error and exit code 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def parser() -> argparse.ArgumentParser:
    """All sub-commands and their options."""
    top = _Parser(prog="ukjax", description="Constrained mechanical systems by the Udwadia–Kalaba equation.")
    top.add_argument("--version", action="version", version=f"ukjax {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="command", parser_class=_Parser)

    gallery = commands.add_parser("list", help="the gallery, with the source of each system")
    gallery.add_argument("--json", action="store_true", help="print JSON")

    run = commands.add_parser(
        "run",
        help="simulate a system of the gallery, print a summary, save data and figures",
        description="Simulate a system of the gallery: from its source's start, brought onto the constraints, over its "
        "source's time span, unless told otherwise.",
        allow_abbrev=False,
    )
    run.add_argument("system", help="a name from `ukjax list`")
    run.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter, or an initial value (q1, dq1)"
    )
    run.add_argument("--t1", type=float, metavar="SECONDS", help="end of the motion (default: the source's)")
    run.add_argument("--samples", type=int, default=1001, metavar="N", help="equally spaced samples (default 1001)")
    run.add_argument("--drift", choices=("projection", "none"), default="projection", help="default: projection")
    run.add_argument("--method", default="orthogonal", help="how the constrained motion is solved")
    run.add_argument("--dt", type=float, metavar="SECONDS", help="fixed steps instead of adaptive ones")
    run.add_argument("--rtol", type=float, help="relative tolerance of adaptive steps (default 1e-11)")
    run.add_argument("--atol", type=float, help="absolute tolerance of adaptive steps (default 1e-11)")
    run.add_argument("--as-published", action="store_true", help="the source's own start and law, as printed")
    run.add_argument("--out", metavar="FILE", help="save the trajectory: .npz, .nc or .csv")
    run.add_argument(
        "--plot",
        nargs="?",
        const="",
        metavar="FILE",
        help="save a figure (.png, .pdf, .svg); without a name SYSTEM.png, and SYSTEM.npz with the data",
    )
    run.add_argument("--animate", metavar="FILE", help="save the mechanism in motion: .gif, .mp4 or .html")
    run.add_argument("--json", action="store_true", help="print the summary as JSON")
    run.add_argument("--progress", action="store_true", help="show a progress meter")

    fit = commands.add_parser(
        "fit",
        help="estimate parameters of a system from measured motions",
        description="Estimate parameters of a system of the gallery from measured motions: tables (.csv) whose first "
        "line names the columns t, q1, dq1 ... by the system's coordinates, and tau1, tau2 for the acrobot's torques. "
        "Empty cells are missing values.",
        allow_abbrev=False,
    )
    fit.add_argument("system", help="a name from `ukjax list`")
    fit.add_argument("data", nargs="+", metavar="FILE", help="a motion each")
    fit.add_argument("--free", required=True, metavar="NAMES", help="parameters to estimate: m1,m2 or ma[0],ma[1]")
    fit.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="another first guess, or value")
    fit.add_argument(
        "--known-start",
        action="store_true",
        help="do not estimate the start: the first line is exact, and the system's own start where it is silent",
    )
    fit.add_argument("--sigma", type=float, help="standard deviation of the noise (default: from the residuals)")
    fit.add_argument("--dt", type=float, metavar="SECONDS", help="longest step (default: the sampling, at most 0.01)")
    fit.add_argument("--segments", type=int, default=1, metavar="N", help="cut each motion: multiple shooting")
    fit.add_argument(
        "--regress",
        type=float,
        metavar="HZ",
        help="begin with linear regression on differences of the coordinates below that frequency",
    )
    fit.add_argument("--loss", default="linear", help="linear, soft_l1, huber, cauchy or arctan")
    fit.add_argument("--checkpoint", metavar="FILE", help="keep the state of the search there, and go on from it")
    fit.add_argument("--out", metavar="FILE", help="the result as JSON (default SYSTEM-fit.json)")
    fit.add_argument("--plot", metavar="FILE", help="the figure (default SYSTEM-fit.png)")
    fit.add_argument("--json", action="store_true", help="print the result as JSON")
    fit.add_argument("--progress", action="store_true", help="show each step")

    tune = commands.add_parser(
        "tune",
        help="choose gains of a system by gradients through its motion",
        description="Choose gains, or dimensions, of a system of the gallery with which it follows its task best from "
        "starts scattered around the source's. As many other starts are held out to try the result on.",
        allow_abbrev=False,
    )
    tune.add_argument("system", help="a name from `ukjax list`")
    tune.add_argument("--free", required=True, metavar="NAMES", help="parameters to choose: alpha,beta")
    tune.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="another first guess, or value")
    tune.add_argument("--effort", type=float, default=0.0, metavar="W", help="weight of the mean squared force (0)")
    tune.add_argument("--starts", type=int, default=8, metavar="N", help="starts to tune on (default 8)")
    tune.add_argument("--spread", type=float, default=0.01, metavar="S", help="their standard deviation (default 0.01)")
    tune.add_argument("--seed", type=int, default=0, help="of the scatter (default 0)")
    tune.add_argument("--t1", type=float, metavar="SECONDS", help="end of the motions (default: the source's)")
    tune.add_argument("--dt", type=float, default=0.005, metavar="SECONDS", help="fixed steps (default 0.005)")
    tune.add_argument("--samples", type=int, default=201, metavar="N", help="samples that count (default 201)")
    tune.add_argument("--drift", choices=("projection", "none"), default="none", help="default: none")
    tune.add_argument("--out", metavar="FILE", help="the result as JSON (default SYSTEM-tune.json)")
    tune.add_argument("--plot", metavar="FILE", help="the figure (default SYSTEM-tune.png)")
    tune.add_argument("--json", action="store_true", help="print the result as JSON")
    tune.add_argument("--progress", action="store_true", help="show each step")

    bench = commands.add_parser(
        "bench",
        help="measure how fast this machine is: accelerations and steps per second",
        description="Measure constrained accelerations and Runge-Kutta steps of two closed loops of the gallery, in a "
        "batch, in double and in single precision.",
        allow_abbrev=False,
    )
    bench.add_argument("--batch", type=int, default=4096, metavar="N", help="members of the batch (default 4096)")
    bench.add_argument("--seconds", type=float, default=0.2, metavar="T", help="length of a motion (default 0.2)")
    bench.add_argument("--json", action="store_true", help="print JSON")
    return top


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit code is 0, 1 where a motion failed, 2 for bad usage."""
    options = parser().parse_args(arguments)
    # The checks that equinox compiles into a program keep it out of the compilation cache; ukjax checks the results.
    os.environ.setdefault("EQX_ON_ERROR", "off")
    from ._command import bench, fit_system, list_gallery, run_system, tune_system

    commands = {"bench": bench, "fit": fit_system, "list": list_gallery, "run": run_system, "tune": tune_system}
    try:
        return commands[options.command](options)
    except _usage_errors() as error:
        print(f"ukjax {options.command}: {' '.join(str(error).split())}", file=sys.stderr)
        return 1 if isinstance(error, RuntimeError) else 2
    except KeyboardInterrupt:
        print(f"ukjax {options.command}: interrupted", file=sys.stderr)
        return 130


def _usage_errors():
    """What a user's words can cause. Anything else is a defect of ours, and shows its traceback."""
    from ._command import UsageError

    if "ukjax._motion.diagnose" not in sys.modules:
        return (UsageError,)
    from ._motion.diagnose import SimulationError

    return (UsageError, SimulationError)


if __name__ == "__main__":
    sys.exit(main())
