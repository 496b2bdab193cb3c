"""A batch in blocks, as many at a time as there are cores: the values of a block stay in a core's caches."""

import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .waiting import compiled, interruptibly, side_by_side

LARGEST, SMALLEST = 4104, 136  # members of a block: see ``spread`` in ``_batch.kernel`` for these odd numbers of lines


def in_blocks(function: Callable, q0: Float[Array, "batch n"], v0: Float[Array, "batch n"], *arguments: Any) -> Any:
    """``function(q0, v0, *arguments)``, an ``equinox.filter_jit``, whose results all have the batch as first axis.

    On a CPU the members are done in blocks of one size, each by a thread of its own: XLA uses one core for most of
    what they need.
    """
    members, cores = q0.shape[0], _cores()
    if jax.default_backend() != "cpu" or cores == 1 and members <= LARGEST or members < 2 * SMALLEST:
        return interruptibly(function, q0, v0, *arguments)
    blocks = max(cores, -(-members // LARGEST))
    size = max(SMALLEST, -(-(-(-members // blocks) - 8) // 16) * 16 + 8)
    blocks = -(-members // size)
    more = blocks * size - members
    q0, v0 = (jnp.concatenate([x, jnp.broadcast_to(x[-1:], (more, x.shape[1]))]) for x in (q0, v0))
    parts = [(q0[i : i + size], v0[i : i + size], *arguments) for i in range(0, blocks * size, size)]
    found = side_by_side(compiled(function, *parts[0]), parts, cores)
    return jax.tree.map(lambda *pieces: jnp.concatenate(pieces)[:members], *found)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
