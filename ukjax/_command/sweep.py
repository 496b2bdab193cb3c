"""``ukjax sweep``."""

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
from .outputs import FIGURES, need
from .usage import UsageError, check_output, saying_what_is_refused

DISTRIBUTIONS = ("normal(mean,deviation)", "lognormal(median,deviation of the logarithm)", "uniform(low,high)")


def add_to(commands: Any) -> None:
    """Its options, among the sub-commands of the command line."""
    parser = commands.add_parser(
        "sweep",
        help="simulate many members of a system, which differ in some numbers, into a folder",
        description="Simulate many members of a system of the gallery, which differ in the numbers that are swept: "
        "NAME=LOW:HIGH:COUNT or NAME=VALUE,VALUE,... for the points of a grid, NAME=LOW:HIGH or one of "
        f"{', '.join(DISTRIBUTIONS)} for what is drawn. Everything is kept in a folder, and a sweep that was "
        "interrupted is gone on with. With --summary, tell and draw what a folder holds.",
        allow_abbrev=False,
    )
    option = parser.add_argument
    add_system(parser, needed=False)
    option("--over", action="append", default=[], metavar="NAME=VALUES", help="what is swept; as often as you like")
    option("--members", type=int, metavar="N", help="how many (default: the points of the grid)")
    option("--combine", metavar="HOW", help="grid, each, random or sobol (default: grid)")
    option("--seed", type=int, default=0, help="of what is drawn (default 0)")
    option("--set", action="append", default=[], metavar="NAME=VALUE", help="another parameter, or initial value")
    option(
        "--fix-swept", action="store_true", help="swept coordinates keep their values; only the others are projected"
    )
    option("--t1", type=float, metavar="SECONDS", help="end of the motion (default: the source's)")
    option("--samples", type=int, metavar="N", help="keep so many samples of each motion, instead of its end alone")
    option("--drift", choices=("projection", "none"), help="default: projection")
    option("--method", default="orthogonal", help="how the constrained motion is solved")
    option("--dt", type=float, metavar="SECONDS", help="fixed Runge-Kutta steps instead of adaptive ones")
    option("--rtol", type=float, help="relative tolerance of adaptive steps")
    option("--atol", type=float, help="absolute tolerance of adaptive steps")
    option("--out", metavar="DIR", help="the folder (default SYSTEM-sweep); a Zarr group where it ends in .zarr")
    option("--chunk", type=int, metavar="N", help="members at a time (default: as many as memory takes easily)")
    option("--resume", action="store_true", help="go on with what is in the folder")
    option("--workers", type=int, default=1, metavar="N", help="processes (default 1)")
    option("--rank", type=int, default=0, metavar="I", help="this job's number, of --world jobs that share the work")
    option("--world", type=int, default=1, metavar="N", help="how many jobs share the work, each with its --rank")
    option("--scheduler", metavar="ADDRESS", help="of a Dask cluster that does the work: tcp://host:8786")
    option("--summary", metavar="DIR", help="tell what is in the folder, and simulate nothing")
    option("--plot", metavar="FILE", help="a map over the first two numbers swept (.png, .pdf, .svg)")
    option("--json", action="store_true", help="print the summary as JSON")
    option("--progress", action="store_true", help="show how far it is")
    parser.set_defaults(call=sweep)


def sweep(options: argparse.Namespace) -> int:
    """Simulate into a folder, or look at one; print a summary."""
    began = time.perf_counter()
    if options.plot is not None:
        need("matplotlib", "--plot", "plot")
        check_output("--plot", options.plot, FIGURES)
    if options.summary is not None:
        if options.system is not None or options.over:
            raise UsageError("--summary tells of a folder: leave out the system and --over")
        from .._ensemble import open_ensemble

        with saying_what_is_refused():
            return _report(options, open_ensemble(options.summary), options.summary, began)
    _check(options)
    folder = options.out or f"{file_stem(options.system)}-sweep"
    there = Path(folder)
    if there.is_dir() and any(there.iterdir()) and not options.resume and options.world == 1:
        raise UsageError(f"--out {folder!r} is there: say --resume to go on with it, or name another folder")
    given = dict(map(_parse, options.over))
    if len(given) < len(options.over):
        raise UsageError("--over has a name twice")

    import numpy as np

    from .. import _precision
    from .._cache import enable_compilation_cache
    from .._ensemble import ensemble
    from .settings import with_settings

    _precision.enable_float64()
    enable_compilation_cache()
    with saying_what_is_refused():
        mechanism, (q0, v0) = with_settings(mechanism_of(options.system, options.floating), options.set)
        fixed_start = _sets_start(options.set, mechanism)
        ts = np.linspace(0.0, mechanism.end if options.t1 is None else options.t1, options.samples or 2)
        dt = options.dt or (None if options.rtol or options.atol else mechanism.step)
        with _executor(options) as executor, _saying_how_large(options):
            found = ensemble(
                mechanism,
                {name: _range(values) for name, values in given.items()},
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
        return _report(options, found, folder, began)


@contextlib.contextmanager
def _saying_how_large(options) -> Iterator[None]:
    """What the library logs of its work, on stderr; with a meter it says so itself."""
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
    """A function of a module, so that plain processes can be sent it."""
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
    """The words make sense, or ``UsageError``."""
    if options.system is None:
        raise UsageError("the following arguments are required: system, or --summary DIR")
    check_system(options.system, options.floating)
    if not options.over:
        raise UsageError("--over must name what is swept: --over q1=-0.5:0.5:100")
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
        raise UsageError("--workers are processes of this machine, --scheduler has its own: leave one out")
    if options.scheduler:
        need("distributed", "--scheduler", "dask")
    if options.plot and options.world > 1:
        raise UsageError("--plot shows all members, and this is a share of them: use --summary when all are done")


def _parse(assignment: str) -> tuple[str, tuple[str, list[float]]]:
    """The name, and its values as kind and numbers: "grid", "values", or the name of a distribution."""
    name, equals, text = assignment.partition("=")
    name, text = name.strip(), text.strip()
    if not equals or not name or not text:
        raise UsageError(f"--over needs NAME=VALUES, such as q1=-0.5:0.5:100, got {assignment!r}")
    drawn = re.fullmatch(r"([a-z]+)\((.*)\)", text)
    parts = (drawn[2] if drawn else text).split("," if drawn or ":" not in text else ":")
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        raise UsageError(f"--over {name} needs numbers, got {text!r}") from None
    if not all(abs(x) < float("inf") for x in numbers):
        raise UsageError(f"--over {name} needs finite numbers, got {text!r}")
    if drawn:
        kinds = [each.partition("(")[0] for each in DISTRIBUTIONS]
        if drawn[1] not in kinds or len(numbers) != 2:
            raise UsageError(f"--over {name} must be one of {', '.join(DISTRIBUTIONS)}, got {text!r}")
        low, high = numbers
        if drawn[1] == "uniform" and not low < high:
            raise UsageError(f"--over {name} must go up, uniform(low,high), got {text!r}")
        if drawn[1] != "uniform" and not high > 0:
            raise UsageError(f"--over {name} must have a positive deviation, got {text!r}")
        if drawn[1] == "lognormal" and not low > 0:
            raise UsageError(f"--over {name} must have a positive median, got {text!r}")
        return name, (drawn[1], numbers)
    if ":" not in text:
        return name, ("values", numbers)
    if len(numbers) == 3 and (numbers[2] != int(numbers[2]) or numbers[2] < 2):
        raise UsageError(f"--over {name} must have a whole COUNT of at least 2, LOW:HIGH:COUNT, got {text!r}")
    if len(numbers) > 3 or not numbers[0] < numbers[1]:
        raise UsageError(f"--over {name} must be LOW:HIGH or LOW:HIGH:COUNT, from low to high, got {text!r}")
    return name, ("uniform" if len(numbers) == 2 else "grid", numbers)


def _range(parsed: tuple[str, list[float]]) -> Any:
    """What ``_parse`` read, as ``ensemble`` takes it."""
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
    """Who does the work, if not this process."""
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

        started = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(options.workers, mp_context=started, initializer=_with_this_process)
        try:
            yield pool
        finally:
            processes = list((pool._processes or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.terminate()
    else:
        yield None


def _with_this_process():
    """In a worker: it ends when the process ends that started it, and leaves an interrupt to that."""
    import multiprocessing
    import multiprocessing.connection
    import os
    import signal
    import threading

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    started_by = multiprocessing.parent_process()

    def watch():
        multiprocessing.connection.wait([started_by.sentinel])  # pyright: ignore[reportOptionalMemberAccess]
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def _report(options, found, folder, began) -> int:
    """Print what was found, draw it if that is wanted; 1 where no member came to its end."""
    told = found.summary() | {"folder": str(folder), "seconds": round(time.perf_counter() - began, 3)}
    if options.plot is not None:
        from .. import plot

        told["files"] = [str(plot.save(plot.ensemble_map(found), options.plot))]
    if options.json:
        print(json.dumps(told, indent=1))
    else:
        print(_table(told))
    ended = told["finished"] or told["done"] < told["members"]
    if not ended:
        print(f"ukjax sweep: none of {told['members']} members came to its end", file=sys.stderr)
    return 0 if ended else 1


def _table(told) -> str:
    done = "" if told["done"] == told["members"] else f", {told['done']} of them done"
    lines = [f"{told['members']} members of {told['model']}{done}, in {told['folder']}"]
    lines += [f"  {count:>9}  {reason}" for reason, count in told["reasons"].items()]
    columns = ("least", "5 %", "25 %", "median", "75 %", "95 %", "greatest")
    width = max(8, *(len(name) for part in ("over", "ends", "kept") for name in told.get(part, {})))
    for part, title in (("over", "swept"), ("ends", "at the end"), ("kept", "kept")):
        if part in told:
            lines.append(f"{title:{width + 2}}" + "".join(f"{column:>11}" for column in columns))
            for name, spread in told[part].items():
                numbers = "".join(f"{x:11.4g}" for x in spread) if spread else "  nothing finite"
                lines.append(f"  {name:{width}}{numbers}")
    lines += [f"saved {', '.join(told['files'])}"] if "files" in told else []
    return "\n".join(lines)
