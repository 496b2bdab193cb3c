"""Sizes that decide how a motion is executed. All of them are measured."""

from typing import Any

import jax

from ..._kernel import kernels_available
from ..._system import AbstractSystem, levels_of

MAX_SIZE_OF_SINGLE_KERNEL = 66
"""Largest number of coordinates plus rows for which a single motion is compiled as one kernel. For Bricard's loop, with
69, LLVM takes 20 s to compile, and a step takes 0.4 ms. XLA, which calls LAPACK, takes 6 s, and a step takes 1.1 ms."""

MIN_ROWS_TO_CHECK = 6
"""Smallest number of rows for which redundant rows are searched before the first step of every motion. A closed loop in
space has six rows, and often some of them are redundant. The check takes a fraction of the time to compile a second
program. With fewer rows, single motions are checked if the first one of the model's structure had redundant rows."""

MIN_BAND = 90
"""Smallest number of velocities for which a single motion is faster with a band matrix than with full matrices."""

MIN_BAND_OF_BATCH = 150
"""Smallest number of velocities for which a batch is faster with a band matrix than as a kernel."""

MIN_BAND_OF_SHORT_BATCH, MAX_SHORT_MEMBER_STEPS, MAX_WIDTH_OF_SHORT = 45, 500_000, 8
"""Limits for a short batch: smallest number of velocities, largest number of steps times members, and largest width of
the band. Such a batch uses a band matrix, which compiles faster than a kernel."""

BAND_SHARE = 6
"""A band is used if its width is at most n / BAND_SHARE, for n velocities."""

LANES = 136
"""Number of members that take adaptive steps at the same time if XLA compiles the step. It is an odd number of cache
lines, so that rows do not compete for the same cache sets. More members do not fit into the caches of a core."""

LANES_OF_ACCELERATOR = 65_536
"""Number of lanes on a GPU or TPU, which needs many threads."""


def is_kernel(method: Any) -> bool:
    """Whether a motion by ``method`` is compiled as one kernel. Sparse methods are not: their matrices are large."""
    return kernels_available() and not method.is_sparse


def is_single_kernel(method: Any, coordinates: int, rows: int) -> bool:
    """Whether a single motion of a system with these numbers of coordinates and rows is compiled as one kernel."""
    return is_kernel(method) and coordinates + rows <= MAX_SIZE_OF_SINGLE_KERNEL


def has_single_loop(model: Any, method: Any, projection: bool, least: int = 0) -> bool:
    """Whether stages and corrections of a step can be iterations of one loop: there are at least ``least`` constraints,
    and all act on positions."""
    if not (projection and method.same_rows_at_every_level and isinstance(model, AbstractSystem)):
        return False
    if model.control is not None:
        return False
    levels = levels_of(model)
    return len(levels) >= least and all(level == "position" for level in levels)


def max_band_width(n: int, members: int | None = None, steps: int | None = None) -> int:
    """Largest width of a band that is used for ``n`` velocities, 0 for none.

    ``members`` is None for a single motion. ``steps`` is None if the number of steps is unknown.
    """
    if n >= (MIN_BAND if members is None else MIN_BAND_OF_BATCH):
        return n // BAND_SHARE
    is_short = members is not None and steps is not None and members * steps <= MAX_SHORT_MEMBER_STEPS
    return MAX_WIDTH_OF_SHORT if n >= MIN_BAND_OF_SHORT_BATCH and is_short else 0


def max_band_width_of_states(n: int) -> int:
    """Largest width of a band that is used for accelerations at given states."""
    if n >= MIN_BAND:
        return n // BAND_SHARE
    return MAX_WIDTH_OF_SHORT if n >= MIN_BAND_OF_SHORT_BATCH else 0


def lane_count(members: Any) -> Any:
    """Number of lanes for a batch of ``members``. That number is symbolic in an exported program."""
    lanes = LANES if jax.default_backend() == "cpu" else LANES_OF_ACCELERATOR
    return min(lanes, members) if isinstance(members, int) else lanes
