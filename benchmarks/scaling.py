"""How the cost grows with the size of a mechanism, and with the number of steps.

Four-bars in a row, 2 N + 1 coordinates and 2 N rows: one constrained acceleration, per member, written out in a program
of one's own, and by ``ukjax.acceleration`` from their energies, with how long its first call takes; and Runge–Kutta
steps of 1 ms with projection, per step and four-bar, written out and along their band. Three chains (P1): such steps,
per member and step.
"""

from typing import Any

import jax
import numpy as np

import ukjax as uk
from ukjax._command.measure import DT, measure

from .apart import apart
from .mechanisms import four_bars, four_bars_by_energies, three_chains

COUNTS = (1, 2, 4, 8, 16, 40)
AT_ONCE = ((16, 4096), (40, 4096), (250, 1024), (1000, 512))
"""Four-bars, members."""

STEPS = (10, 100, 1000, 4000)
BATCH = 512
ROWS = ((40, False, 1000), (40, True, 200), (250, True, 30), (1000, True, 8))
"""Four-bars, whether along their band, steps."""


def run() -> list[dict[str, Any]]:
    sizes = [apart("scaling", "one_size", count, patience=200.0) or {"four-bars": count} for count in COUNTS]
    rows = [apart("scaling", "one_row", *row, patience=300.0) or {"four-bars": row[0]} for row in ROWS]
    once = [apart("scaling", "at_once", *row, patience=300.0) or {"four-bars": row[0]} for row in AT_ONCE]
    return sizes + once + rows + (apart("scaling", "all_lengths", patience=300.0) or [])


def one_size(count: int) -> dict[str, Any]:
    uk.enable_float64()
    case = four_bars(count)
    q, v = case.starts(BATCH)
    acceleration = uk.per_member(lambda q, v: uk.constrained_motion(case.system(0.0, q, v)).acceleration)
    compiling, seconds = measure(jax.jit(jax.vmap(acceleration)), q, v, repeats=5)
    return {"four-bars": count, "n": q.shape[1], "µs each": seconds / BATCH * 1e6, "compile s": compiling}


def at_once(count: int, members: int) -> dict[str, Any]:
    uk.enable_float64()
    case, rng = four_bars_by_energies(count), np.random.default_rng(0)
    q = np.asarray(case.q0) + 0.01 * rng.normal(size=(members, case.q0.size))
    v = rng.normal(size=q.shape)
    run = lambda q, v: uk.acceleration(case.system, 0.0, q, v)
    compiling, seconds = measure(run, q, v, repeats=7)
    each = seconds / members * 1e6
    row = {"four-bars": count, "n": q.shape[1], "by": "ukjax.acceleration", "members": members}
    return row | {"µs each": each, "ns per four-bar": each / count * 1e3, "compile s": compiling}


def one_row(count: int, along_band: bool, steps: int) -> dict[str, Any]:
    uk.enable_float64()
    case = four_bars_by_energies(count)
    speeds = 1 + 0.1 * np.random.default_rng(0).normal(size=(BATCH, 1))
    q, v = np.tile(case.q0, (BATCH, 1)), np.asarray(case.v0) * speeds
    terms = case.system(0.0, case.q0 + 1e-3 * np.arange(case.q0.size), case.v0)
    method = uk.Sparse.of((np.asarray(terms.M), np.asarray(terms.A))) if along_band else uk.Orthogonal()
    run = lambda q, v: (
        uk.simulate(case.system, q, v, [0.0, steps * DT], dt=DT, solver=uk.RungeKutta4(), method=method).q
    )
    compiling, seconds = measure(run, q, v, repeats=2)
    each = seconds / BATCH / steps / count * 1e9
    by = "along the band" if along_band else "written out"
    return {"four-bars": count, "by": by, "steps": steps, "ns/step and four-bar": each, "compile s": compiling}


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
