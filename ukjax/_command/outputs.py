"""Output files of a command: paths are checked before the computation, files are written after it."""

import argparse
import importlib.util
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from .mechanism import file_stem
from .status import Status
from .usage import UsageError, check_output

DATA = (".npz", ".nc", ".csv")
FIGURES = (".png", ".pdf", ".svg")
MOVIES = (".gif", ".mp4")
PAGE = ".html"


class Outputs(NamedTuple):
    """Paths of figure, data and animation; None for a file that was not requested."""

    figure: Path | None
    data: Path | None
    movie: Path | None

    def save(self, runs: dict[str, Any], published: bool, status: Status) -> list[Path]:
        """Write the requested files and return their paths.

        ``runs`` maps names to trajectories. Figure, data and animation show the first one. With ``published``, the
        figure compares all runs, and each run gets its own data file. ``status`` gets the fraction of frames written.
        """
        first, files = next(iter(runs.values())), []
        if self.data:
            for name, trajectory in runs.items():
                path = self.data.with_stem(f"{self.data.stem}-{name}") if published else self.data
                files.append(trajectory.save(path))
        if self.figure:
            from .. import plot

            files.append(plot.save(plot.published(runs) if published else plot.histories(first), self.figure))
        if self.movie and self.movie.suffix == PAGE:
            from .._view import view

            files.append(view(first).save(self.movie))
        elif self.movie:
            from .. import plot

            def count(frame: int, frames: int) -> None:
                status.fraction = (frame + 1) / frames

            files.append(plot.save_animation(plot.animate(first), self.movie, on_frame=count))
        return files


def outputs(options: argparse.Namespace) -> Outputs:
    """Check the output options: paths are writable and the packages that write them are installed.

    Raises ``UsageError``.
    """
    figure, data = options.plot, options.out
    if figure == "":
        stem = file_stem(options.system)
        figure, data = f"{stem}.png", f"{stem}.npz" if data is None else data
    if data is not None and Path(data).suffix == ".nc":
        require_package("xarray", "--out FILE.nc", "data")
    if figure is not None:
        require_package("matplotlib", "--plot", "plot")
    return Outputs(
        figure=check_output("--plot", figure, FIGURES) if figure is not None else None,
        data=check_output("--out", data, DATA) if data is not None else None,
        movie=_movie(options) if options.animate is not None else None,
    )


def _movie(options) -> Path:
    if options.as_published:
        raise UsageError("--animate shows the correct motion: leave out --as-published")
    path = check_output("--animate", options.animate, (*MOVIES, PAGE))
    if path.suffix == PAGE:
        return path
    require_package("matplotlib", "--animate", "plot")
    from ..plot.animation import why_not_writable

    if complaint := why_not_writable(path):
        raise UsageError(f"--animate {complaint}")
    return path


def require_package(package: str, option: str, extra: str) -> None:
    """Raise ``UsageError`` if an optional package is not installed."""
    if importlib.util.find_spec(package) is None:
        raise UsageError(f"{option} needs the package {package}: pip install 'ukjax[{extra}]'")


def result_and_figure(options: argparse.Namespace, kind: str) -> tuple[Path, Path]:
    """Return the checked paths of the JSON result and of the figure of ``fit`` or ``tune``."""
    stem = f"{file_stem(options.system)}-{kind}"
    name = lambda path, ending: f"{stem}{ending}" if path is None else path
    require_package("matplotlib", "the figure", "plot")
    result = check_output("--out", name(options.out, ".json"), (".json",))
    return result, check_output("--plot", name(options.plot, ".png"), FIGURES)


def save_and_print(
    options: argparse.Namespace, start_time: float, fit_result: Any, result: Path, figure: Path, draw: Callable
) -> int:
    """Save a result as JSON and as the figure that ``draw`` returns, and print it. Returns exit code 0."""
    from .. import plot

    files = [fit_result.save(result), plot.save(draw(fit_result), figure)]
    report: dict[str, Any] = {"system": options.system} | fit_result.as_dict()
    report |= {"files": [str(file) for file in files], "seconds": round(time.perf_counter() - start_time, 3)}
    print(json.dumps(report, indent=1) if options.json else f"{fit_result}\nsaved {', '.join(report['files'])}")
    return 0
