"""Gather, scatter and slices with indices that are computed at run time."""

import itertools
from typing import Any

import numpy as np
from jax.lax import GatherScatterMode

from ..graph.graph import INDEX
from ..unsupported import Unsupported
from .entries import Stored, as_objects, loaded
from .gather_scatter import gather_positions, scatter_positions


def runtime_gather(unroller, equation, x, indices):
    """The result of a gather: entries are loaded from memory."""
    graph, parameters, dtype = unroller.graph, equation.params, equation.invars[0].aval.dtype
    at_zero = gather_positions(parameters | {"mode": GatherScatterMode.CLIP}, x.shape, np.zeros(indices.shape, int))
    numbers = parameters["dimension_numbers"]
    rows = np.arange(int(np.prod(indices.shape[:-1], dtype=int))).reshape(indices.shape[:-1])
    rows = np.broadcast_to(np.expand_dims(rows, numbers.offset_dims), at_zero.shape)
    starts = [
        _window_start(graph, x.shape, row, numbers.start_index_map, parameters["slice_sizes"], parameters["mode"])
        for row in as_objects(indices).reshape(-1, indices.shape[-1])
    ]
    stored, result = unroller.as_stored(x), np.empty(at_zero.shape, object)
    for position in np.ndindex(result.shape):
        index, inside = starts[rows[position]]
        value = stored.at(graph, index, np.asarray(at_zero[position]))[()]
        result[position] = graph.apply("select_n", (inside, out_of_bounds_value(parameters, dtype), value))
    return result


def _window_start(graph, shape, row, starts, sizes, mode):
    """The position of a window's first entry in the flattened array, and whether the window is in bounds.

    ``row`` has the start indices along the axes ``starts``.
    """
    strides = np.cumprod([1, *shape[:0:-1]], dtype=int)[::-1]
    position, inside = INDEX.type(0), np.bool_(True)
    for k, start in zip(starts, row, strict=True):
        last = INDEX.type(shape[k] - sizes[k])
        if start.dtype == np.uint64:  # half of its values do not fit into INDEX
            start = graph.apply("min", (start, np.uint64(last + 1)))
        start = graph.apply("convert_element_type", (start,), {"new_dtype": INDEX})
        clipped = graph.apply("min", (graph.apply("max", (start, INDEX.type(0))), last))
        if mode == GatherScatterMode.FILL_OR_DROP:
            inside = graph.apply("and", (inside, graph.apply("eq", (clipped, start))))
        position = graph.apply("add", (position, graph.apply("mul", (clipped, INDEX.type(strides[k])))))
    return position, inside


def out_of_bounds_value(parameters: dict[str, Any], dtype: np.dtype) -> np.generic:
    """The value of gathered entries that are out of bounds: ``fill_value``, or the default of ``lax.gather``."""
    if parameters["fill_value"] is not None:
        return dtype.type(parameters["fill_value"])
    if np.issubdtype(dtype, np.inexact):
        return dtype.type(np.nan)
    if dtype.kind == "b":
        return np.bool_(True)
    limits = np.iinfo(dtype)
    return dtype.type(limits.min if limits.min < 0 else limits.max)


def runtime_scatter(graph, parameters, x, indices, updates, combine):
    """The result of a scatter: at each position that an update may reach, select the combined or the old entry."""
    numbers, mode = parameters["dimension_numbers"], parameters["mode"]
    if numbers.operand_batching_dims:
        raise Unsupported("an index is computed at run time: read all entries and select by jnp.where")
    clip = parameters | {"mode": GatherScatterMode.CLIP}
    at_zero = scatter_positions(clip, x.shape, np.zeros(indices.shape, int), updates.shape)
    window = iter(updates.shape[axis] for axis in numbers.update_window_dims)
    sizes = [1 if k in numbers.inserted_window_dims else next(window) for k in range(x.ndim)]
    axes = numbers.scatter_dims_to_operand_dims
    strides = np.cumprod([1, *x.shape[:0:-1]], dtype=int)[::-1]
    spans = [range(0, (x.shape[k] - sizes[k] + 1) * int(strides[k]), int(strides[k])) for k in axes]
    rows = np.arange(int(np.prod(indices.shape[:-1], dtype=int))).reshape(indices.shape[:-1])
    rows = np.broadcast_to(np.expand_dims(rows, numbers.update_window_dims), at_zero.shape)
    result, updates = as_objects(x).ravel().copy(), as_objects(updates)
    starts = [
        _window_start(graph, x.shape, row, axes, sizes, mode)
        for row in as_objects(indices).reshape(-1, indices.shape[-1])
    ]
    for position in np.ndindex(at_zero.shape):
        index, inside = starts[rows[position]]
        for start in map(sum, itertools.product(*spans)):
            is_start = graph.apply("and", (inside, graph.apply("eq", (index, INDEX.type(start)))))
            k = int(at_zero[position]) + start
            result[k] = graph.apply("select_n", (is_start, result[k], combine(result[k], updates[position])))
    return result.reshape(x.shape)


def runtime_slice(unroller, x, starts, sizes):
    """The result of ``dynamic_slice``: a window of an array."""
    index, offsets = _window(unroller.graph, x.shape, starts, sizes)
    return unroller.as_stored(x).at(unroller.graph, index, offsets)


def runtime_update(unroller, equation, x, update, starts):
    """The result of ``dynamic_update_slice``: the array with a new window, updated in place if possible."""
    graph, dtype = unroller.graph, equation.invars[0].aval.dtype
    if not isinstance(x, Stored) or not x.is_writable:
        x = x.copy(graph) if isinstance(x, Stored) else Stored(graph.memory(x, dtype), x.shape)
    index, offsets = _window(graph, x.shape, starts, update.shape)
    for offset, value in zip(offsets.flat, loaded(graph, update).flat, strict=True):
        graph.store(x.memory, index, int(offset), value)
    return Stored(x.memory, x.shape)


def _window(graph, shape, starts, sizes):
    """The position of a window's first entry in the flattened array, and the offsets of its entries from there."""
    row = [s.ravel()[0] if s.dtype == object else np.asarray(s)[()] for s in starts]
    index, _ = _window_start(graph, shape, row, range(len(shape)), sizes, None)
    offsets = np.arange(int(np.prod(shape, dtype=int))).reshape(shape)[tuple(map(slice, sizes))]
    return index, offsets
