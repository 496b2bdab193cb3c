"""Scaling with the batch: one P1 acceleration and one P1 Runge–Kutta step per member, from 1 to 10⁶ members.

``temporary MiB``: memory of the compiled acceleration in addition to arguments and results, as reported by XLA.
"""

from typing import Any

import jax

import ukjax as uk
from ukjax._command.measure import accelerations, rollout

from .mechanisms import three_chains

SIZES = (1, 16, 256, 1024, 4096, 16384, 100_000, 1_000_000)
STEPS_UP_TO = 100_000


def run() -> list[dict[str, Any]]:
    uk.enable_float64()
    case = three_chains()
    rows = []
    for batch in SIZES:
        q, v = case.starts(batch)
        row: dict[str, Any] = {"batch": batch} | accelerations(case.system, q, v)
        one = uk.per_member(lambda q, v: uk.constrained_motion(case.system(0.0, q, v)).acceleration)
        memory = jax.jit(jax.vmap(one)).lower(q, v).compile().memory_analysis()
        row["temporary MiB"] = memory.temp_size_in_bytes / 2**20 if memory else None
        if batch <= STEPS_UP_TO:
            found = rollout(case.system, q, v, 0.1)
            row |= {"ns per step": 1e9 / found["steps/s"], "first s": found["first s"]}
        rows.append(row)
    return rows
