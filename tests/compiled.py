"""Compiled programs: kept, since every test compiles the same small ones, but no more than a process can hold."""

from pathlib import Path

import jax

MOST = 10_000
"""Pieces of memory that a process may have mapped; Linux allows 65 530, and each program takes a few, and memory."""

MAPPED = Path("/proc/self/maps")


def forget_programs_if_many() -> None:
    """All of them; where a system does not say how many there are, in any case."""
    if not MAPPED.exists() or MAPPED.read_bytes().count(b"\n") > MOST:
        jax.clear_caches()
