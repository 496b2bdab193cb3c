"""Problems of ``ukjax.verify``: error against CPU time of ukjax, SciPy, MuJoCo, Exudyn and Drake.

SciPy integrates equations in minimal coordinates without constraints, derived for each problem (``verify_references``).
``verify_peers`` has the models of MuJoCo, Exudyn and Drake; one that is not installed is left out. CPU times exclude
compilation.
"""

import importlib.util
import sys
import time
from collections.abc import Iterator
from typing import Any

import ukjax as uk
from ukjax.verify.measure import MOST_REPETITIONS, MOST_SECONDS

from .verify_peers import PEERS
from .verify_references.__main__ import scipy_solver
from .verify_references.models import MODELS

TOLERANCES = (1e-5, 1e-8, 1e-11)


def run() -> list[dict[str, Any]]:
    uk.enable_float64()
    peers = {}
    for method, (package, problems) in PEERS.items():
        if importlib.util.find_spec(package):
            peers[method] = problems
        else:
            print(f"{method} is not installed: its rows are left out; `pip install '.[peers]'`", file=sys.stderr)
    return [row for name in uk.verify.names() for row in _rows(name, peers)]


def _rows(name: str, peers: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    problem: Any = uk.verify.problem(name)
    found = uk.verify.run(name)[0]
    for each in found.measured:
        yield {
            "problem": name,
            "method": "ukjax",
            "setting": _words(each.setting),
            "error": each.error,
            "CPU s": each.seconds,
            "steps": each.steps,
        }
    yield {
        "problem": name,
        "method": "reference",
        "digits": found.digits,
        "derivative error": found.derivative_error,
        "whole s": found.seconds,
        "passed": found.passed,
    }
    if name in MODELS and name != "wheelset":  # minutes, in Python
        solve = scipy_solver(name)
        for rtol in TOLERANCES:
            yield {"problem": name, "method": "SciPy", "setting": f"rtol = {rtol:g}"} | _timed(
                problem, lambda rtol=rtol, solve=solve: solve(rtol)
            )
    for method, problems in peers.items():
        if name in problems:
            for setting, solve in problems[name].solvers(problem.ts[-1]):
                yield {"problem": name, "method": method, "setting": setting} | _timed(problem, solve)


def _words(setting):
    return ", ".join(f"{name} = {value:g}" for name, value in setting.items() if name != "atol")


def _timed(problem, solve):
    """Error and CPU time of a solution; a short one is repeated, and its time is the shortest, as for ukjax."""
    times = []
    while not times or sum(times) < MOST_SECONDS and len(times) < MOST_REPETITIONS:
        began = time.process_time()
        try:
            values = solve()
        except FloatingPointError:
            return {"error": float("inf"), "CPU s": time.process_time() - began}
        seconds = time.process_time() - began
        if isinstance(values, tuple):
            values, seconds = values
        times.append(seconds)
    return {"error": problem.error(values), "CPU s": min(times)}
