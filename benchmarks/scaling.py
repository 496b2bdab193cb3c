"""How the cost grows with the size of a mechanism, and with the number of steps.

Four-bars in a row, 2 N + 1 coordinates and 2 N rows: one constrained acceleration, per member. Three chains (P1): fixed
Runge–Kutta steps of 1 ms with projection, per member and step.
"""

from typing import Any

import jax
import numpy as np

import ukjax as uk
from ukjax._command.measure import DT, measure

from .apart import apart
from .mechanisms import four_bars, three_chains

COUNTS = (1, 2, 4, 8, 16, 40)
STEPS = (10, 100, 1000, 4000)
BATCH = 512


def run() -> list[dict[str, Any]]:
    sizes = [apart("scaling", "one_size", count, patience=200.0) or {"four-bars": count} for count in COUNTS]
    return sizes + (apart("scaling", "all_lengths", patience=300.0) or [])


def one_size(count: int) -> dict[str, Any]:
    uk.enable_float64()
    case = four_bars(count)
    q, v = case.starts(BATCH)
    acceleration = uk.per_member(lambda q, v: uk.constrained_motion(case.system(0.0, q, v)).acceleration)
    compiling, seconds = measure(jax.jit(jax.vmap(acceleration)), q, v, repeats=5)
    return {"four-bars": count, "n": q.shape[1], "µs each": seconds / BATCH * 1e6, "compile s": compiling}


def all_lengths() -> list[dict[str, Any]]:
    uk.enable_float64()
    case = three_chains()
    q, v = case.starts(BATCH)
    rows = []
    for steps in STEPS:
        ts = np.array([0.0, steps * DT])
        run = lambda q, v, ts=ts: uk.simulate(case.system, q, v, ts, dt=DT, solver=uk.RungeKutta4()).q
        compiling, seconds = measure(run, q, v, repeats=3)
        rows.append({"steps": steps, "ns/step": seconds / BATCH / steps * 1e9, "compile s": compiling})
    return rows
