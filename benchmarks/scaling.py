"""Cost of one constrained acceleration over the size of a mechanism: four-bars in a row, one core.

N four-bars have 2 N + 1 coordinates and 2 N rows. The CPU time per member of ``ukjax.acceleration`` from the energies,
and the CPU time of its first call, are measured in turn with ``vmap`` of Cholesky factors, for sizes up to 40
four-bars.
"""

import time
from typing import Any

import jax
import numpy as np

import ukjax as uk

from .acceleration import with_cholesky
from .apart import apart
from .interleaved import measured
from .mechanisms import four_bars_by_energies

SIZES = ((4, 1024), (16, 1024), (40, 256), (250, 256), (1000, 128))
"""Numbers of four-bars, and of members."""

DENSE_UP_TO, ROUNDS = 40, 4


def run() -> list[dict[str, Any]]:
    return [row for count, members in SIZES for row in apart("scaling", "one_size", count, members, cores=1)]


def one_size(count: int, members: int) -> list[dict[str, Any]]:
    uk.enable_float64()
    case, rng = four_bars_by_energies(count), np.random.default_rng(0)
    q = np.asarray(case.q0) + 0.01 * rng.normal(size=(members, case.q0.size))
    v = rng.normal(size=q.shape)
    calls = {"ukjax.acceleration": lambda: uk.acceleration(case.system, 0.0, q, v)}
    if count <= DENSE_UP_TO:
        dense = jax.jit(jax.vmap(with_cholesky(case.system)))
        calls["vmap(cholesky)"] = lambda: dense(q, v)
    first = {}
    for candidate, call in calls.items():
        began = time.process_time()
        jax.block_until_ready(call())
        first[candidate] = time.process_time() - began
    found = measured(calls, ROUNDS)
    return [
        {"four-bars": count, "n": q.shape[1], "by": candidate, "members": members}
        | {"µs each": 1e6 * found[candidate].seconds / members, "first s": first[candidate]}
        for candidate in calls
    ]
