"""A batch in blocks, as many at a time as there are cores: for what XLA compiles, in loops over all members, so that
the values of a block stay in a core's caches. Kernels see to that themselves."""

import os
from typing import Any

import jax
import numpy as np

from .compile import Program
from .threads import interruptibly, side_by_side

LARGEST, SMALLEST, FEWEST = 4104, 136, 24
"""Members of a block: odd numbers of cache lines, so that rows do not share places in the cache."""

ENTRIES = 12_000
"""Numbers of a block's state, where its members have many, that go well with all that is made of them."""


def in_chunks(program: Program, each: Any, *arguments: Any, entries: int = 1) -> Any:
    """``program(each, *arguments)``, where all of ``each`` and of the results has the batch
    as first axis. ``entries`` is how many numbers a member has that are to stay in the caches.

    On a CPU the members are done in blocks of one size, each by a thread of its own: XLA uses one core for most of
    what they need.
    """
    members, cores = jax.tree.leaves(each)[0].shape[0], _cores()
    largest = min(LARGEST, max(FEWEST, ENTRIES // entries // 16 * 16 + 8))
    least = min(SMALLEST, largest)
    if jax.default_backend() != "cpu" or cores == 1 and members <= largest or members < 2 * least:
        return interruptibly(program, each, *arguments)
    blocks = -(-members // (cores * largest)) * cores  # as many for each core
    size = max(least, -(-(-(-members // blocks) - 8) // 16) * 16 + 8)
    blocks = -(-members // size)
    more = blocks * size - members
    # Taken apart and put together by NumPy: JAX would compile each for every shape.
    filled = jax.tree.map(lambda x: np.pad(x, ((0, more), *((0, 0),) * (x.ndim - 1)), mode="edge"), each)
    part = lambda i: jax.device_put(jax.tree.map(lambda x: x[i : i + size], filled))
    parts = [(part(i), *arguments) for i in range(0, blocks * size, size)]
    found = side_by_side(program.compiled(*parts[0]), parts, cores)
    return jax.device_put(jax.tree.map(lambda *pieces: np.concatenate(pieces)[:members], *found))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
