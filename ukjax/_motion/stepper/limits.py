"""Sizes from which a motion is executed in another way: all of them measured, all in this file."""

from typing import Any

import jax

from ..._kernel import kernels_available
from ..._system import AbstractSystem

MAX_SIZE_OF_SINGLE_KERNEL = 66
"""The largest number of coordinates and rows of which a single motion is one kernel. For Bricard's loop, with 69, LLVM
takes 20 s and a step 0.4 ms. XLA, which calls LAPACK, takes 6 s, and a step 1.1 ms."""

MIN_ROWS_TO_CHECK = 6
"""Redundant rows are looked for before the first step from this number of rows on. A loop in space has six, and often
some of them are redundant. The check takes a fraction of the time that compiling a second program takes."""

MIN_BAND = 90
"""Number of velocities from which a single motion is faster with a band matrix than with full matrices."""

MIN_BAND_OF_BATCH = 150
"""Number of velocities from which a batch is faster with a band matrix than as a kernel."""

MIN_BAND_OF_SHORT_BATCH, MAX_SHORT_MEMBER_STEPS, MAX_WIDTH_OF_SHORT = 45, 500_000, 8
"""A batch of this many velocities and at most so many steps times members is done with a narrow band matrix, which is
compiled sooner than a kernel."""

BAND_SHARE = 6
"""A band is used if it is at most n / BAND_SHARE wide."""

LANES = 136
"""Members that take adaptive steps side by side where XLA compiles the step: an odd number of cache lines, so that rows
do not share places in the cache. More do not fit into the caches of a core."""

LANES_OF_ACCELERATOR = 65_536
"""The same on a GPU or TPU, which needs many threads."""


def is_kernel(method: Any) -> bool:
    """Whether a whole motion by ``method`` is compiled as one kernel. A sparse method has large matrices, and is not."""
    return kernels_available() and not method.is_sparse


def is_single_kernel(method: Any, coordinates: int, rows: int) -> bool:
    """Whether a single motion of a system with so many coordinates and rows is compiled as one kernel."""
    return is_kernel(method) and coordinates + rows <= MAX_SIZE_OF_SINGLE_KERNEL


def has_single_loop(model: Any, method: Any, projection: bool) -> bool:
    """Whether stages and corrections of a step can be turns of one loop: all rows are those of positions."""
    return (
        projection
        and method.uniform
        and isinstance(model, AbstractSystem)
        and model.control is None
        and all(constraint.level == "position" for constraint in model.constraints)
    )


def max_band_width(n: int, members: int | None = None, steps: int | None = None) -> int:
    """The widest band that is used for ``n`` velocities: 0 for none. ``members`` is None for a single motion, ``steps``
    None where their number is not known."""
    if n >= (MIN_BAND if members is None else MIN_BAND_OF_BATCH):
        return n // BAND_SHARE
    is_short = members is not None and steps is not None and members * steps <= MAX_SHORT_MEMBER_STEPS
    return MAX_WIDTH_OF_SHORT if n >= MIN_BAND_OF_SHORT_BATCH and is_short else 0


def max_band_width_of_states(n: int) -> int:
    """The widest band that is used for accelerations at known states."""
    if n >= MIN_BAND:
        return n // BAND_SHARE
    return MAX_WIDTH_OF_SHORT if n >= MIN_BAND_OF_SHORT_BATCH else 0


def lane_count(members: Any) -> Any:
    """The number of lanes for a batch of ``members``, which is symbolic in an exported program."""
    lanes = LANES if jax.default_backend() == "cpu" else LANES_OF_ACCELERATOR
    return min(lanes, members) if isinstance(members, int) else lanes
