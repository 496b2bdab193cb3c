"""Entries of arrays at places that are found as the program runs."""

import itertools
from typing import Any

import numpy as np
from jax.lax import GatherScatterMode

from ..graph.graph import INDEX
from ..unsupported import Unsupported
from .entries import Stored, loaded, objects
from .gather_scatter import gathered, scattered


def gather_found(unroller, equation, x, indices):
    """Entries whose places are found as the program runs."""
    graph, parameters, kind = unroller.graph, equation.params, equation.invars[0].aval.dtype
    at_zero = gathered(parameters | {"mode": GatherScatterMode.CLIP}, x.shape, np.zeros(indices.shape, int))
    numbers = parameters["dimension_numbers"]
    rows = np.arange(int(np.prod(indices.shape[:-1], dtype=int))).reshape(indices.shape[:-1])
    rows = np.broadcast_to(np.expand_dims(rows, numbers.offset_dims), at_zero.shape)
    found = [
        _place(graph, x.shape, row, numbers.start_index_map, parameters["slice_sizes"], parameters["mode"])
        for row in objects(indices).reshape(-1, indices.shape[-1])
    ]
    stored, result = unroller.stored(x), np.empty(at_zero.shape, object)
    for at in np.ndindex(result.shape):
        index, inside = found[rows[at]]
        value = stored.at(graph, index, np.asarray(at_zero[at]))[()]
        result[at] = graph.apply("select_n", (inside, fill_of(parameters, kind), value))
    return result


def _place(graph, shape, row, starts, sizes, mode):
    """Where a window begins in the flattened array, and whether it is inside."""
    strides = np.cumprod([1, *shape[:0:-1]], dtype=int)[::-1]
    place, inside = INDEX.type(0), np.bool_(True)
    for k, start in zip(starts, row, strict=True):
        last = INDEX.type(shape[k] - sizes[k])
        if start.dtype == np.uint64:  # of which half are no INDEX
            start = graph.apply("min", (start, np.uint64(last + 1)))
        start = graph.apply("convert_element_type", (start,), {"new_dtype": INDEX})
        near = graph.apply("min", (graph.apply("max", (start, INDEX.type(0))), last))
        if mode == GatherScatterMode.FILL_OR_DROP:
            inside = graph.apply("and", (inside, graph.apply("eq", (near, start))))
        place = graph.apply("add", (place, graph.apply("mul", (near, INDEX.type(strides[k])))))
    return place, inside


def fill_of(parameters: dict[str, Any], kind: np.dtype) -> np.generic:
    """What stands for an entry outside of an array."""
    if parameters["fill_value"] is not None:
        return kind.type(parameters["fill_value"])
    if np.issubdtype(kind, np.inexact):
        return kind.type(np.nan)
    if kind.kind == "b":
        return np.bool_(True)
    limits = np.iinfo(kind)
    return kind.type(limits.min if limits.min < 0 else limits.max)


def scatter_found(graph, parameters, x, indices, updates, put):
    """To places that are found as the program runs: each entry is the new one, or stays, in all places it may be."""
    numbers, mode = parameters["dimension_numbers"], parameters["mode"]
    if numbers.operand_batching_dims:
        raise Unsupported("an index depends on what is computed: take all entries and choose by jnp.where")
    clip = parameters | {"mode": GatherScatterMode.CLIP}
    at_zero = scattered(clip, x.shape, np.zeros(indices.shape, int), updates.shape)
    window = iter(updates.shape[axis] for axis in numbers.update_window_dims)
    sizes = [1 if k in numbers.inserted_window_dims else next(window) for k in range(x.ndim)]
    starts = numbers.scatter_dims_to_operand_dims
    strides = np.cumprod([1, *x.shape[:0:-1]], dtype=int)[::-1]
    spans = [range(0, (x.shape[k] - sizes[k] + 1) * int(strides[k]), int(strides[k])) for k in starts]
    rows = np.arange(int(np.prod(indices.shape[:-1], dtype=int))).reshape(indices.shape[:-1])
    rows = np.broadcast_to(np.expand_dims(rows, numbers.update_window_dims), at_zero.shape)
    result, updates = objects(x).ravel().copy(), objects(updates)
    found = [
        _place(graph, x.shape, row, starts, sizes, mode) for row in objects(indices).reshape(-1, indices.shape[-1])
    ]
    for at in np.ndindex(at_zero.shape):
        index, inside = found[rows[at]]
        for first in map(sum, itertools.product(*spans)):
            here = graph.apply("and", (inside, graph.apply("eq", (index, INDEX.type(first)))))
            k = int(at_zero[at]) + first
            result[k] = graph.apply("select_n", (here, result[k], put(result[k], updates[at])))
    return result.reshape(x.shape)


def slice_found(unroller, x, starts, sizes):
    """A window of an array."""
    index, places = _window_found(unroller.graph, x.shape, starts, sizes)
    return unroller.stored(x).at(unroller.graph, index, places)


def update_found(unroller, equation, x, update, starts):
    """The array with a window of new entries: in its memory, which has changed then."""
    graph, kind = unroller.graph, equation.invars[0].aval.dtype
    if not isinstance(x, Stored) or not x.may_change:
        x = x.copied(graph) if isinstance(x, Stored) else Stored(graph.memory(x, kind), x.shape)
    index, places = _window_found(graph, x.shape, starts, update.shape)
    for place, value in zip(places.flat, loaded(graph, update).flat, strict=True):
        graph.store(x.memory, index, int(place), value)
    return Stored(x.memory, x.shape)


def _window_found(graph, shape, starts, sizes):
    """Where a window begins in the flattened array, if that is found as the program runs, and the places from there."""
    row = [s.ravel()[0] if s.dtype == object else np.asarray(s)[()] for s in starts]
    index, _ = _place(graph, shape, row, range(len(shape)), sizes, None)
    places = np.arange(int(np.prod(shape, dtype=int))).reshape(shape)[tuple(map(slice, sizes))]
    return index, places
