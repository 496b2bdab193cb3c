"""Where JAX's gather and scatter, with known indices, take entries from and put them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.lax import GatherScatterMode


def gathered(parameters: dict[str, Any], shape: Sequence[int], indices: np.ndarray) -> np.ndarray:
    """For every entry of a gather's result its place in the flattened operand of the ``shape``; −1 for none."""
    numbers = parameters["dimension_numbers"]
    return _places(
        shape,
        indices,
        sizes=parameters["slice_sizes"],
        window=numbers.offset_dims,
        collapsed=numbers.collapsed_slice_dims,
        starts=numbers.start_index_map,
        batched=dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)),
        mode=parameters["mode"],
    )


def scattered(parameters: dict[str, Any], shape: Sequence[int], indices: np.ndarray, updates: Sequence[int]):
    """For every entry of ``updates``, a shape, its place in the flattened operand of a scatter; −1 for none."""
    numbers = parameters["dimension_numbers"]
    window = iter(updates[axis] for axis in numbers.update_window_dims)
    alone = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    return _places(
        shape,
        indices,
        sizes=[1 if k in alone else next(window) for k in range(len(shape))],
        window=numbers.update_window_dims,
        collapsed=numbers.inserted_window_dims,
        starts=numbers.scatter_dims_to_operand_dims,
        batched=dict(zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True)),
        mode=parameters["mode"],
    )


def _places(shape, indices, sizes, window, collapsed, starts, batched, mode):
    """One window of the ``sizes`` for every row of ``indices``, whose axes ``window`` are in the result, those of
    ``indices`` being the others; operand axis k begins at index ``starts.index(k)``, or where ``batched`` says."""
    rows = indices.shape[:-1]
    spread = [k for k in range(len(shape)) if k not in collapsed and k not in batched]
    place, inside = np.zeros((), int), np.ones((), bool)
    for k, (length, size) in enumerate(zip(shape, sizes, strict=True)):
        start = np.zeros(rows, int)
        if k in batched:
            start = np.indices(rows)[batched[k]]
        elif k in starts:
            start = indices[..., starts.index(k)].astype(int)
        if mode != GatherScatterMode.FILL_OR_DROP:
            start = np.clip(start, 0, length - size)
        inside = inside & (start >= 0) & (start <= length - size)
        start = np.expand_dims(start, tuple(window))
        if k in spread:
            offset = [1] * start.ndim
            offset[window[spread.index(k)]] = size
            start = start + np.arange(size).reshape(offset)
        place = place * length + start
    return np.where(np.expand_dims(inside, tuple(window)), place, -1)
