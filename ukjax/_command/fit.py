"""``ukjax fit``."""

import argparse
import json
import time
import warnings
from typing import Any

from .outputs import FIGURES, need
from .records import Record, read_record
from .run import check_system
from .usage import UsageError, check_output


def fit_system(options: argparse.Namespace) -> int:
    """Estimate parameters of a system of the gallery from measured motions, print a table, save JSON and a figure."""
    check_system(options.system)
    if options.dt is not None and not 0 < options.dt < float("inf"):
        raise UsageError(f"--dt must be positive, got {options.dt:g}")
    result = check_output("--out", options.out or f"{options.system}-fit.json", (".json",))
    need("matplotlib", "the figure", "plot")
    figure = check_output("--plot", options.plot or f"{options.system}-fit.png", FIGURES)
    began = time.perf_counter()

    import numpy as np

    from .. import _precision, plot, systems
    from .._cache import enable_compilation_cache
    from .._fit import Experiment, fit
    from .settings import with_settings

    _precision.enable_float64()
    enable_compilation_cache()
    try:
        mechanism, (q0, v0) = with_settings(systems.named(options.system), options.set)
        named = mechanism.coordinates
        assert named is not None, "every mechanism of the gallery names its coordinates"
        records = [read_record(file, named) for file in options.data]
        if any(record.places != records[0].places for record in records):
            raise UsageError("all tables must have the same columns")
        start = np.concatenate([q0, v0])
        experiments = [_experiment(Experiment, record, start, options) for record in records]
        observe = _Observe(records[0].places)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            found = fit(
                mechanism,
                experiments,
                names_of(options.free),
                observe=observe,
                fit_starts=not options.known_start,
                dt=options.dt,
                segments=options.segments,
                loss=options.loss,
                progress=options.progress,
                checkpoint=options.checkpoint,
            )
    except ValueError as error:
        raise UsageError(str(error)) from None
    from sys import stderr

    for warning in warned:
        if issubclass(warning.category, UserWarning):
            print(f"ukjax fit: {' '.join(str(warning.message).split())}", file=stderr)
    try:
        files = [found.save(result), plot.save(plot.fitted(found), figure)]
    except OSError as error:
        raise UsageError(f"the result could not be written: {error}") from None
    report: dict[str, Any] = {"system": options.system} | found.as_dict()
    report |= {"files": [str(file) for file in files], "seconds": round(time.perf_counter() - began, 3)}
    print(json.dumps(report, indent=1) if options.json else f"{found}\nsaved {', '.join(report['files'])}")
    return 0


class _Observe:
    """The measured entries of (q, v). Alike, and so the same to a compiler, where the places are."""

    def __init__(self, places: tuple[int, ...]):
        self.places = places

    def __call__(self, t, q, v):
        import jax.numpy as jnp

        return jnp.concatenate([q, v])[jnp.array(self.places)]

    def __eq__(self, other):
        return isinstance(other, _Observe) and self.places == other.places

    def __hash__(self):
        return hash(self.places)


def names_of(free: str) -> list[str]:
    """Names between commas, but for commas inside brackets."""
    import re

    return [name.strip() for name in re.split(r",(?![^\[]*\])", free) if name.strip()]


def _experiment(Experiment, record: Record, start, options):
    """The start is what was measured first, and the system's own where nothing was; a rate that has to be estimated
    begins at the differences of what was measured."""
    import numpy as np

    states = np.tile(start, (len(record.t), 1))
    for column, place in enumerate(record.places):
        values = record.values[:, column]
        seen = np.isfinite(values)
        if seen.any():
            states[:, place] = np.interp(record.t, record.t[seen], values[seen])
    n = start.size // 2
    for i in range(0 if options.known_start else n):
        if i in record.places and n + i not in record.places:
            states[:, n + i] = np.gradient(states[:, i], record.t)
    return Experiment(record.t, record.values, states, sigma=options.sigma, measured=np.isfinite(record.values))
