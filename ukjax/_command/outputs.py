"""The files a run is asked to leave: checked before it starts, written when it is done."""

import argparse
import importlib.util
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from .mechanism import file_stem
from .usage import UsageError, check_output

DATA = (".npz", ".nc", ".csv")
FIGURES = (".png", ".pdf", ".svg")
MOVIES = (".gif", ".mp4")
PAGE = ".html"


class Outputs(NamedTuple):
    """Where figure, data and animation go; None for what is not wanted."""

    figure: Path | None
    data: Path | None
    movie: Path | None

    def save(self, runs: dict[str, Any], published: bool) -> list[Path]:
        """Write what is wanted of the trajectories ``runs``, by name. Published ones get a file of data each."""
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

            files.append(plot.save_animation(plot.animate(first), self.movie))
        return files


def outputs(options: argparse.Namespace) -> Outputs:
    """The files that the options name, known to be writable, and what writes them to be there."""
    figure, data = options.plot, options.out
    if figure == "":
        stem = file_stem(options.system)
        figure, data = f"{stem}.png", f"{stem}.npz" if data is None else data
    if data is not None and Path(data).suffix == ".nc":
        need("xarray", "--out FILE.nc", "data")
    if figure is not None:
        need("matplotlib", "--plot", "plot")
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
    need("matplotlib", "--animate", "plot")
    from ..plot.animation import cannot_write

    if complaint := cannot_write(path):
        raise UsageError(f"--animate {complaint}")
    return path


def need(package: str, option: str, extra: str) -> None:
    """The optional package is there, or ``UsageError``."""
    if importlib.util.find_spec(package) is None:
        raise UsageError(f"{option} needs the package {package}: pip install 'ukjax[{extra}]'")


def result_and_figure(options: argparse.Namespace, kind: str) -> tuple[Path, Path]:
    """Where the result of a search and its figure go, known to be writable."""
    stem = f"{file_stem(options.system)}-{kind}"
    name = lambda given, ending: f"{stem}{ending}" if given is None else given
    need("matplotlib", "the figure", "plot")
    result = check_output("--out", name(options.out, ".json"), (".json",))
    return result, check_output("--plot", name(options.plot, ".png"), FIGURES)


def report(options: argparse.Namespace, began: float, found: Any, result: Path, figure: Path, draw: Callable) -> int:
    """Save what a search ``found`` as JSON and as the figure that ``draw`` makes of it, and print it."""
    from .. import plot

    files = [found.save(result), plot.save(draw(found), figure)]
    told: dict[str, Any] = {"system": options.system} | found.as_dict()
    told |= {"files": [str(file) for file in files], "seconds": round(time.perf_counter() - began, 3)}
    print(json.dumps(told, indent=1) if options.json else f"{found}\nsaved {', '.join(told['files'])}")
    return 0
