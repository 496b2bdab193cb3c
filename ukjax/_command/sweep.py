"""``ukjax sweep``: simulate an ensemble into a folder, or summarise such a folder."""

import argparse
import contextlib
import json
import logging
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .mechanism import add_system, check_system, file_stem, mechanism_of
from .outputs import FIGURES, require_package
from .usage import UsageError, check_output, library_errors_as_usage_errors, one_of

DISTRIBUTIONS = ("normal(mean,deviation)", "lognormal(median,deviation of the logarithm)", "uniform(low,high)")


def add_to(commands: Any) -> None:
    """Add the sub-command and its options to the parser."""
    parser = commands.add_parser(
        "sweep",
        help="simulate an ensemble of a system with varied parameters into a folder",
        description="Simulate an ensemble: members of one system that differ in the swept parameters or initial "
        "values. Grids are given as NAME=LOW:HIGH:COUNT or NAME=VALUE,VALUE,..., random numbers as NAME=LOW:HIGH or "
        f"as NAME= and one of {', '.join(DISTRIBUTIONS)}. The results are stored in a folder, and an interrupted sweep "
        "can be resumed. With --summary, summarise and plot the results in a folder.",
        allow_abbrev=False,
    )
    option = parser.add_argument
    add_system(parser, required=False)
    option(
        "--over",
        action="append",
        default=[],
        metavar="NAME=VALUES",
        help="a swept parameter or initial value; may be repeated",
    )
    option("--members", type=int, metavar="N", help="number of members (default: all points of the grid)")
    option(
        "--combine", metavar="HOW", help="how swept values are combined: grid, each, random or sobol (default: grid)"
    )
    option("--seed", type=int, default=0, help="seed of the random numbers (default 0)")
    option(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set a parameter or an initial value of all members",
    )
    option("--fix-swept", action="store_true", help="keep the values of swept coordinates and project only the others")
    option("--t1", type=float, metavar="SECONDS", help="end time (default: that of the source)")
    option("--samples", type=int, metavar="N", help="store N samples of each motion (default: only its end)")
    option(
        "--drift",
        **one_of("projection", "none"),
        help="how drift off the constraints is removed (default: projection)",
    )
    option(
        "--method", default="orthogonal", help="linear solver of the constrained accelerations (default: orthogonal)"
    )
    option(
        "--dt",
        type=float,
        metavar="SECONDS",
        help="size of fixed Runge-Kutta steps (default: that of the system, or adaptive steps)",
    )
    option("--rtol", type=float, help="relative tolerance of adaptive steps")
    option("--atol", type=float, help="absolute tolerance of adaptive steps")
    option("--out", metavar="DIR", help="output folder (default SYSTEM-sweep); a Zarr group if it ends in .zarr")
    option(
        "--chunk", type=int, metavar="N", help="members simulated at once (default: chosen from the available memory)"
    )
    option("--resume", action="store_true", help="resume the sweep in the folder")
    option("--workers", type=int, default=1, metavar="N", help="number of worker processes (default 1)")
    option(
        "--rank",
        type=int,
        default=0,
        metavar="I",
        help="index of this job among the --world jobs that share the work (default 0)",
    )
    option("--world", type=int, default=1, metavar="N", help="number of jobs that share the work (default 1)")
    option("--scheduler", metavar="ADDRESS", help="Dask scheduler that runs the work: tcp://host:8786")
    option("--summary", metavar="DIR", help="summarise the results in a folder, without simulating")
    option("--plot", metavar="FILE", help="save a map over the first two swept values (.png, .pdf, .svg)")
    option("--json", action="store_true", help="print the summary as JSON")
    option("--progress", action="store_true", help="show a progress meter (default: on a terminal)")
    parser.set_defaults(call=sweep)


def sweep(options: argparse.Namespace) -> int:
    """Simulate into a folder, or open one, and print a summary. Returns exit code 1 if every member failed."""
    start_time = time.perf_counter()
    if options.plot is not None:
        require_package("matplotlib", "--plot", "plot")
        check_output("--plot", options.plot, FIGURES)
    if options.summary is not None:
        if options.system is not None or options.over:
            raise UsageError("--summary reads a folder: leave out the system and --over")
        from .._ensemble import open_ensemble

        with library_errors_as_usage_errors():
            return _report(options, open_ensemble(options.summary), options.summary, start_time)
    _check(options)
    options.progress = options.progress or sys.stderr.isatty()
    folder = options.out or f"{file_stem(options.system)}-sweep"
    path = Path(folder)
    if path.is_dir() and any(path.iterdir()) and not options.resume and options.world == 1:
        raise UsageError(f"--out {folder!r} exists: pass --resume to continue that sweep, or name another folder")
    swept = dict(map(_parse, options.over))
    if len(swept) < len(options.over):
        raise UsageError("--over has a name twice")

    import numpy as np

    from .. import _precision
    from .._cache import enable_compilation_cache
    from .._ensemble import ensemble
    from .settings import with_settings

    _precision.enable_float64()
    enable_compilation_cache()
    with library_errors_as_usage_errors():
        mechanism, (q0, v0) = with_settings(mechanism_of(options.system, options.floating), options.set)
        fixed_start = _sets_start(options.set, mechanism)
        ts = np.linspace(0.0, mechanism.end if options.t1 is None else options.t1, options.samples or 2)
        dt = options.dt or (None if options.rtol or options.atol else mechanism.step)
        with _executor(options) as executor, _log_to_stderr(options):
            results = ensemble(
                mechanism,
                {name: _swept_values(values) for name, values in swept.items()},
                options.members,
                ts=ts,
                q0=q0 if fixed_start else None,
                v0=v0 if fixed_start else None,
                combine=options.combine,
                seed=options.seed,
                start_of=_placed,
                fix_swept=options.fix_swept,
                keep="samples" if options.samples else "end",
                store=folder,
                chunk=options.chunk,
                executor=executor,
                rank=options.rank,
                world=options.world,
                drift=options.drift,
                dt=dt,
                rtol=None if dt else options.rtol,
                atol=None if dt else options.atol,
                method=options.method,
                solver=_runge_kutta(options.dt),
                progress=options.progress,
            )
        return _report(options, results, folder, start_time)


@contextlib.contextmanager
def _log_to_stderr(options) -> Iterator[None]:
    """Context manager: print the library's log messages on stderr, unless the progress meter shows them."""
    logger, handler = logging.getLogger("ukjax"), logging.StreamHandler()
    handler.setFormatter(logging.Formatter("ukjax sweep: %(message)s"))
    level = logger.level
    if not options.progress:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def _placed(model, q, v):
    """Complete a start. A module-level function, so that it can be pickled for worker processes."""
    return model.placed(q, v)


def _runge_kutta(dt):
    if dt is None:
        return None
    from .._motion.stepper.runge_kutta4 import RungeKutta4

    return RungeKutta4()


def _sets_start(assignments, mechanism):
    fields = vars(mechanism)
    return any(re.split(r"[=.\[]", each)[0].strip() not in fields for each in assignments)


def _check(options) -> None:
    """Check the options without importing JAX. Raises ``UsageError``."""
    if options.system is None:
        raise UsageError("the following arguments are required: system, or --summary DIR")
    check_system(options.system, options.floating)
    if not options.over:
        raise UsageError("--over is required: --over q1=-0.5:0.5:100")
    for name in ("members", "chunk", "workers", "world"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise UsageError(f"--{name} must be at least 1, got {value}")
    if options.samples is not None and options.samples < 2:
        raise UsageError(f"--samples must be at least 2, got {options.samples}")
    for name in ("t1", "dt", "rtol", "atol"):
        value = getattr(options, name)
        if value is not None and not 0 < value < float("inf"):
            raise UsageError(f"--{name} must be positive, got {value:g}")
    if not 0 <= options.rank < options.world:
        raise UsageError(f"--rank must be from 0 to --world - 1 = {options.world - 1}, got {options.rank}")
    if options.seed < 0:
        raise UsageError(f"--seed must not be negative, got {options.seed}")
    if options.workers > 1 and options.scheduler:
        raise UsageError("--workers starts processes on this machine, --scheduler uses a cluster: leave one out")
    if options.scheduler:
        require_package("distributed", "--scheduler", "dask")
    if options.plot and options.world > 1:
        raise UsageError(
            "--plot needs all members, and this job has only a share of them: use --summary when all jobs are done"
        )


def _parse(assignment: str) -> tuple[str, tuple[str, list[float]]]:
    """Parse ``NAME=VALUES`` to the name, a kind ("grid", "values" or a distribution) and its numbers."""
    name, equals, text = assignment.partition("=")
    name, text = name.strip(), text.strip()
    if not equals or not name or not text:
        raise UsageError(f"--over needs NAME=VALUES, such as q1=-0.5:0.5:100, got {assignment!r}")
    distribution = re.fullmatch(r"([a-z]+)\((.*)\)", text)
    parts = (distribution[2] if distribution else text).split("," if distribution or ":" not in text else ":")
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        raise UsageError(f"--over {name} needs numbers, got {text!r}") from None
    if not all(abs(x) < float("inf") for x in numbers):
        raise UsageError(f"--over {name} needs finite numbers, got {text!r}")
    if distribution:
        kinds = [each.partition("(")[0] for each in DISTRIBUTIONS]
        if distribution[1] not in kinds or len(numbers) != 2:
            raise UsageError(f"--over {name} must be one of {', '.join(DISTRIBUTIONS)}, got {text!r}")
        low, high = numbers
        if distribution[1] == "uniform" and not low < high:
            raise UsageError(f"--over {name} must go up, uniform(low,high), got {text!r}")
        if distribution[1] != "uniform" and not high > 0:
            raise UsageError(f"--over {name} must have a positive deviation, got {text!r}")
        if distribution[1] == "lognormal" and not low > 0:
            raise UsageError(f"--over {name} must have a positive median, got {text!r}")
        return name, (distribution[1], numbers)
    if ":" not in text:
        return name, ("values", numbers)
    if len(numbers) == 3 and (numbers[2] != int(numbers[2]) or numbers[2] < 2):
        raise UsageError(f"--over {name} must have a whole COUNT of at least 2, LOW:HIGH:COUNT, got {text!r}")
    if len(numbers) > 3 or not numbers[0] < numbers[1]:
        raise UsageError(f"--over {name} must be LOW:HIGH or LOW:HIGH:COUNT, from low to high, got {text!r}")
    return name, ("uniform" if len(numbers) == 2 else "grid", numbers)


def _swept_values(parsed: tuple[str, list[float]]) -> Any:
    """Convert parsed values to the argument of ``ensemble``."""
    kind, numbers = parsed
    if kind == "values":
        return numbers
    from .._ensemble import Grid, Uniform

    if kind == "grid":
        low, high, count = numbers
        return Grid(low, high, int(count))
    first, second = numbers
    if kind == "uniform":
        return Uniform(first, second)
    import scipy.stats

    if kind == "normal":
        return scipy.stats.norm(first, second)
    return scipy.stats.lognorm(second, scale=first)


@contextlib.contextmanager
def _executor(options) -> Iterator[Any]:
    """Yield the executor that simulates the chunks, or None for this process."""
    if options.scheduler:
        from distributed import Client

        try:
            client = Client(options.scheduler, timeout="10s")
        except (OSError, ValueError, TypeError) as error:
            raise UsageError(f"--scheduler {options.scheduler!r} does not answer: {error}") from None
        with client:
            yield client
    elif options.workers > 1:
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(options.workers, mp_context=context, initializer=_exit_with_parent)
        try:
            yield pool
        finally:
            processes = list((pool._processes or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.terminate()
    else:
        yield None


def _exit_with_parent():
    """Initialise a worker process: it exits when its parent does, and ignores Ctrl-C, which the parent handles."""
    import multiprocessing
    import multiprocessing.connection
    import os
    import signal
    import threading

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def watch():
        multiprocessing.connection.wait([parent.sentinel])  # pyright: ignore[reportOptionalMemberAccess]
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def _report(options, results, folder, start_time) -> int:
    """Print the summary and save the map if requested. Returns exit code 1 if all members are done and all failed."""
    summary = results.summary() | {"folder": str(folder), "seconds": round(time.perf_counter() - start_time, 3)}
    if options.plot is not None:
        from .. import plot

        summary["files"] = [str(plot.save(plot.ensemble_map(results), options.plot))]
    if options.json:
        print(json.dumps(summary, indent=1))
    else:
        print(_table(summary))
    some_finished = summary["finished"] or summary["done"] < summary["members"]
    if not some_finished:
        print(f"ukjax sweep: all {summary['members']} members failed", file=sys.stderr)
    return 0 if some_finished else 1


def _table(summary) -> str:
    done = "" if summary["done"] == summary["members"] else f", {summary['done']} of them done"
    lines = [f"{summary['members']} members of {summary['model']}{done}, in {summary['folder']}"]
    lines += [f"  {count:>9}  {reason}" for reason, count in summary["reasons"].items()]
    columns = ("least", "5 %", "25 %", "median", "75 %", "95 %", "greatest")
    width = max(8, *(len(name) for part in ("over", "ends", "kept") for name in summary.get(part, {})))
    for part, title in (("over", "swept"), ("ends", "at the end"), ("kept", "kept")):
        if part in summary:
            lines.append(f"{title:{width + 2}}" + "".join(f"{column:>11}" for column in columns))
            for name, spread in summary[part].items():
                numbers = "".join(f"{x:11.4g}" for x in spread) if spread else "  nothing finite"
                lines.append(f"  {name:{width}}{numbers}")
    lines += [f"saved {', '.join(summary['files'])}"] if "files" in summary else []
    return "\n".join(lines)
