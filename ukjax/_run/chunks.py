"""Run a batch in blocks, one thread per core, so that the values of a block stay in the core's caches.

For programs that XLA compiles to loops over all members. The library's own kernels do this themselves.
"""

import os
from typing import Any

import jax
import numpy as np

from .compile import Program
from .threads import run_interruptibly, run_parallel

MAX_MEMBERS, MIN_MEMBERS, MIN_MEMBERS_LARGE_STATE = 4104, 136, 24
"""Largest and smallest block, and smallest block if members have large states [members]. The sizes are odd multiples of
a cache line, so that rows do not compete for the same cache sets."""

STATE_ENTRIES = 12_000
"""Size of a block's state [numbers] if members have large states: it fits the caches with all intermediate values."""


def in_chunks(program: Program, batched: Any, *arguments: Any, entries: int = 1) -> Any:
    """Return ``program(batched, *arguments)``, computed in blocks of members.

    All arrays of ``batched`` and of the results have the batch as first axis. ``entries`` is the number of values per
    member that should stay in the caches. On a CPU the blocks have one size, and each runs in a thread: XLA uses one
    core for most of the operations.
    """
    members, cores = jax.tree.leaves(batched)[0].shape[0], _cores()
    max_members = min(MAX_MEMBERS, max(MIN_MEMBERS_LARGE_STATE, STATE_ENTRIES // entries // 16 * 16 + 8))
    min_members = min(MIN_MEMBERS, max_members)
    if jax.default_backend() != "cpu" or cores == 1 and members <= max_members or members < 2 * min_members:
        return run_interruptibly(program, batched, *arguments)
    blocks = -(-members // (cores * max_members)) * cores  # the same number for each core
    size = max(min_members, -(-(-(-members // blocks) - 8) // 16) * 16 + 8)
    blocks = -(-members // size)
    padding = blocks * size - members
    # Split and concatenate by NumPy: JAX would compile these operations for every shape.
    padded = jax.tree.map(lambda x: np.pad(x, ((0, padding), *((0, 0),) * (x.ndim - 1)), mode="edge"), batched)
    part = lambda i: jax.device_put(jax.tree.map(lambda x: x[i : i + size], padded))
    parts = [(part(i), *arguments) for i in range(0, blocks * size, size)]
    results = run_parallel(program.compiled(*parts[0]), parts, cores)
    return jax.device_put(jax.tree.map(lambda *block_results: np.concatenate(block_results)[:members], *results))


def _cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
