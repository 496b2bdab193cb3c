"""``ukjax run``."""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from ..systems.catalogue import CATALOGUE
from .usage import UsageError, check_output

DATA = (".npz", ".nc", ".csv")
FIGURES = (".png", ".pdf", ".svg")
TOLERANCE = 1e-11
MOVIES = (".gif", ".mp4", ".html")


def run_system(options: argparse.Namespace) -> int:
    """Simulate, print a summary, save what was asked for."""
    figure, data, movie = _outputs(options)
    began = time.perf_counter()

    # JAX is imported only now, when the words were found to make sense.
    import jax.numpy as jnp

    from .. import _precision, systems
    from .._cache import enable_compilation_cache
    from .._project import project
    from .._results import SimulationError
    from .._simulate import simulate
    from .settings import with_settings
    from .summary import summarise, table

    _precision.enable_float64()
    enable_compilation_cache()
    try:
        mechanism, (q0, v0) = with_settings(systems.named(options.system), options.set)
        ts = jnp.linspace(0.0, mechanism.end if options.t1 is None else options.t1, options.samples)
        how = {name: getattr(options, name) for name in ("method", "progress")} | _steps(options, mechanism.step)
        if options.as_published:
            versions = mechanism.published()
            if not versions:
                raise UsageError(f"--as-published: {options.system} is run as its source has it without that")
            runs = {
                name: simulate(version, q0, v0, ts, drift="none", throw=False, **how).reached()
                for name, version in versions.items()
            }
        else:
            if options.drift == "projection":
                q0, v0 = project(mechanism, ts[0], q0, v0, options.method)
            runs = {options.drift: simulate(mechanism, q0, v0, ts, drift=options.drift, **how)}
    except SimulationError:
        raise
    except ValueError as error:
        raise UsageError(str(error)) from None

    files = _save(runs, data, figure, movie, published=options.as_published)
    entry = CATALOGUE[options.system]
    report = {
        "system": entry.name,
        "title": entry.title,
        "source": entry.source,
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


def _steps(options, step) -> dict[str, Any]:
    """The user's steps or tolerances, else those that suit the mechanism."""
    if options.dt is not None or options.rtol is not None or options.atol is not None:
        step = options.dt
    return {"dt": step} | {name: getattr(options, name) or TOLERANCE for name in ("rtol", "atol")}


def _outputs(options) -> tuple[Path | None, Path | None, Path | None]:
    """Where the figure, the data and the animation go, known to be writable."""
    if options.system not in CATALOGUE:
        from ..systems import named

        try:
            named(options.system)
        except ValueError as error:
            raise UsageError(str(error)) from None
    if options.samples < 2:
        raise UsageError(f"--samples must be at least 2, got {options.samples}")
    if options.t1 is not None and not 0 < options.t1 < float("inf"):
        raise UsageError(f"--t1 must be a positive time in seconds, got {options.t1:g}")
    for name in ("dt", "rtol", "atol"):
        value = getattr(options, name)
        if value is not None and not 0 < value < float("inf"):
            raise UsageError(f"--{name} must be positive, got {value:g}")
    figure, data = options.plot, options.out
    if figure == "":
        figure, data = f"{options.system}.png", data or f"{options.system}.npz"
    if data and Path(data).suffix == ".nc":
        _need("xarray", "--out FILE.nc", "data")
    if figure:
        _need("matplotlib", "--plot", "plot")
    return (
        check_output("--plot", figure, FIGURES) if figure else None,
        check_output("--out", data, DATA) if data else None,
        _movie(options) if options.animate else None,
    )


def _movie(options) -> Path:
    if options.as_published:
        raise UsageError("--animate shows the correct motion: leave out --as-published")
    _need("matplotlib", "--animate", "plot")
    path = check_output("--animate", options.animate, MOVIES)
    from ..plot.animation import cannot_write

    if complaint := cannot_write(path):
        raise UsageError(f"--animate {complaint}")
    return path


def _need(package: str, option: str, extra: str) -> None:
    import importlib.util

    if importlib.util.find_spec(package) is None:
        raise UsageError(f"{option} needs the package {package}: pip install 'ukjax[{extra}]'")


def _save(runs, data: Path | None, figure: Path | None, movie: Path | None, published: bool) -> list[Path]:
    files = []
    try:
        if data:
            for name, trajectory in runs.items():
                path = data.with_stem(f"{data.stem}-{name}") if published else data
                files.append(trajectory.save(path))
        if figure:
            from .. import plot

            drawn = plot.published(runs) if published else plot.histories(next(iter(runs.values())))
            files.append(plot.save(drawn, figure))
        if movie:
            from .. import plot

            files.append(plot.save_animation(plot.animate(next(iter(runs.values()))), movie))
    except OSError as error:
        raise UsageError(f"the result could not be written: {error}") from None
    return files
