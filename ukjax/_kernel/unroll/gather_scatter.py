"""Positions that JAX's gather reads, and scatter writes, for constant indices."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.lax import GatherScatterMode


def gather_positions(parameters: dict[str, Any], shape: Sequence[int], indices: np.ndarray) -> np.ndarray:
    """The position of each result entry of a gather in the flattened operand; −1 if out of bounds.

    ``shape`` is the shape of the operand.
    """
    numbers = parameters["dimension_numbers"]
    return _positions(
        shape,
        indices,
        sizes=parameters["slice_sizes"],
        window=numbers.offset_dims,
        collapsed=numbers.collapsed_slice_dims,
        starts=numbers.start_index_map,
        batched=dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)),
        mode=parameters["mode"],
    )


def scatter_positions(parameters: dict[str, Any], shape: Sequence[int], indices: np.ndarray, updates: Sequence[int]):
    """The position of each update of a scatter in the flattened operand; −1 if out of bounds.

    ``shape`` is the shape of the operand, ``updates`` that of the updates.
    """
    numbers = parameters["dimension_numbers"]
    window = iter(updates[axis] for axis in numbers.update_window_dims)
    of_size_one = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    return _positions(
        shape,
        indices,
        sizes=[1 if k in of_size_one else next(window) for k in range(len(shape))],
        window=numbers.update_window_dims,
        collapsed=numbers.inserted_window_dims,
        starts=numbers.scatter_dims_to_operand_dims,
        batched=dict(zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True)),
        mode=parameters["mode"],
    )


def _positions(shape, indices, sizes, window, collapsed, starts, batched, mode):
    """Positions of the entries of one window of ``sizes`` for each row of ``indices``.

    ``window`` are the axes of the result that run over a window; the others are those of ``indices``. Along operand
    axis k, the start is column ``starts.index(k)`` of ``indices``, or the index along their axis ``batched[k]``.
    """
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
    # Out of bounds: so low that all entries of the window get negative positions.
    first = np.where(inside, first, -1 - sum(size * stride for size, stride in zip(sizes, strides, strict=True)))
    window_axes = [k for k in range(len(shape)) if k not in collapsed and k not in batched]
    lengths = iter(rows)
    rows_shape = [1 if axis in window else next(lengths) for axis in range(len(rows) + len(window))]
    positions = first.reshape(rows_shape)
    for axis, k in zip(window, window_axes, strict=True):
        axis_shape = [1] * positions.ndim
        axis_shape[axis] = sizes[k]
        positions = positions + (np.arange(sizes[k]) * strides[k]).reshape(axis_shape)
    return np.maximum(positions, -1)
