"""Where JAX's gather and scatter, with known indices, take entries from and put them."""

import math
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
    strides = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
    first, inside = np.zeros(rows, int), np.ones(rows, bool)
    for k in (*starts, *batched):
        start = np.indices(rows)[batched[k]] if k in batched else indices[..., starts.index(k)].astype(int)
        last = shape[k] - sizes[k]
        if mode == GatherScatterMode.FILL_OR_DROP:
            inside = inside & (start >= 0) & (start <= last)
        else:
            start = np.minimum(np.maximum(start, 0), last)
        first = first + start * strides[k]
    first = np.where(inside, first, -1 - sum(size * stride for size, stride in zip(sizes, strides, strict=True)))
    spread = [k for k in range(len(shape)) if k not in collapsed and k not in batched]
    lengths = iter(rows)
    of_rows = [1 if axis in window else next(lengths) for axis in range(len(rows) + len(window))]
    place = first.reshape(of_rows)
    for axis, k in zip(window, spread, strict=True):
        of_axis = [1] * place.ndim
        of_axis[axis] = sizes[k]
        place = place + (np.arange(sizes[k]) * strides[k]).reshape(of_axis)
    return np.maximum(place, -1)
