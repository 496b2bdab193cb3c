"""What only moves entries about, or makes them of nothing."""

import itertools

import numpy as np
from jax.lax import GatherScatterMode

from .entries import Stored, alike, known, loaded, objects
from .graph import INDEX
from .places import gathered, scattered
from .refusal import Unsupported
from .table import rule


@rule("reshape")
def _reshape(unroller, equation, operands):
    if isinstance(operands[0], Stored):
        return [Stored(operands[0].memory, tuple(equation.params["new_sizes"]), operands[0].version)]
    return [operands[0].reshape(equation.params["new_sizes"])]


@rule("squeeze")
def _squeeze(unroller, equation, operands):
    return [np.squeeze(operands[0], tuple(equation.params["dimensions"]))]


@rule("expand_dims")
def _expand_dims(unroller, equation, operands):
    return [np.expand_dims(operands[0], tuple(equation.params["dimensions"]))]


@rule("transpose")
def _transpose(unroller, equation, operands):
    return [operands[0].transpose(equation.params["permutation"])]


@rule("rev")
def _reverse(unroller, equation, operands):
    return [np.flip(operands[0], tuple(equation.params["dimensions"]))]


@rule("broadcast_in_dim")
def _broadcast(unroller, equation, operands):
    x, shape = operands[0], equation.params["shape"]
    wide = [1] * len(shape)
    for size, axis in zip(x.shape, equation.params["broadcast_dimensions"], strict=True):
        wide[axis] = size
    return [np.broadcast_to(x.reshape(wide), shape)]


@rule("slice")
def _slice(unroller, equation, operands):
    parameters = equation.params
    steps = parameters["strides"] or (1,) * operands[0].ndim
    spans = zip(parameters["start_indices"], parameters["limit_indices"], steps, strict=True)
    return [operands[0][tuple(slice(*span) for span in spans)]]


@rule("dynamic_slice")
def _dynamic_slice(unroller, equation, operands):
    x, *starts = operands
    sizes = equation.params["slice_sizes"]
    if not isinstance(x, Stored) and all(s.dtype != object for s in starts):
        return [x[_window(x, starts, sizes)]]
    index, places = _found_window(unroller.graph, x.shape, starts, sizes)
    return [unroller.stored(x).at(unroller.graph, index, places)]


@rule("dynamic_update_slice")
def _dynamic_update_slice(unroller, equation, operands):
    x, update, *starts = operands
    graph = unroller.graph
    if not isinstance(x, Stored) and all(s.dtype != object for s in starts):
        x, update = alike(x, loaded(graph, update) if isinstance(update, Stored) else update)
        x = x.copy()
        x[_window(x, starts, update.shape)] = update
        return [x]
    kind = equation.invars[0].aval.dtype
    if not isinstance(x, Stored) or x.memory.lasting or not x.is_current:
        whole = isinstance(x, Stored) and x.is_current and x.size == x.memory.size
        entries = x.memory if whole else loaded(graph, x) if isinstance(x, Stored) else x
        x = Stored(graph.memory(entries, kind), x.shape)
    index, places = _found_window(graph, x.shape, starts, update.shape)
    for place, value in zip(places.flat, loaded(graph, update).flat, strict=True):
        graph.store(x.memory, index, int(place), value)
    return [Stored(x.memory, x.shape)]


@rule("split")
def _split(unroller, equation, operands):
    places = np.cumsum(np.asarray(equation.params["sizes"]))[:-1]
    return np.split(operands[0], places, equation.params["axis"])


@rule("stack")
def _stack(unroller, equation, operands):
    return [np.stack(alike(*operands), equation.params["axis"])]


@rule("unstack")
def _unstack(unroller, equation, operands):
    return list(np.moveaxis(operands[0], equation.params["axis"], 0))


@rule("concatenate")
def _concatenate(unroller, equation, operands):
    return [np.concatenate(alike(*operands), equation.params["dimension"])]


@rule("pad")
def _pad(unroller, equation, operands):
    x, fill = alike(*operands)
    for axis, (low, high, inside) in enumerate(equation.params["padding_config"]):
        length = max(0, x.shape[axis] - 1) * (1 + inside) + min(1, x.shape[axis])
        spread = _filled((*x.shape[:axis], length, *x.shape[axis + 1 :]), fill)
        spread[(slice(None),) * axis + (slice(None, None, 1 + inside),)] = x
        sides = [_filled((*x.shape[:axis], max(0, k), *x.shape[axis + 1 :]), fill) for k in (low, high)]
        whole = np.concatenate([sides[0], spread, sides[1]], axis)
        x = whole[(slice(None),) * axis + (slice(max(0, -low), whole.shape[axis] - max(0, -high)),)]
    return [x]


@rule("gather")
def _gather(unroller, equation, operands):
    x, indices = operands
    if indices.dtype == object or isinstance(x, Stored):
        return [_gather_found(unroller, equation, x, indices)]
    places = gathered(equation.params, x.shape, indices)
    if (places < 0).any():
        raise Unsupported("entries are taken from outside of an array")
    return [x.ravel()[places]]


def _gather_found(unroller, equation, x, indices):
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
        result[at] = graph.apply("select_n", (inside, _fill(parameters, kind), value))
    return result


def _place(graph, shape, row, starts, sizes, mode):
    """Where a window begins in the flattened array, and whether it is inside."""
    strides = np.cumprod([1, *shape[:0:-1]], dtype=int)[::-1]
    place, inside = INDEX.type(0), np.bool_(True)
    for k, start in zip(starts, row, strict=True):
        start = graph.apply("convert_element_type", (start,), {"new_dtype": INDEX})
        last = INDEX.type(shape[k] - sizes[k])
        near = graph.apply("min", (graph.apply("max", (start, INDEX.type(0))), last))
        if mode == GatherScatterMode.FILL_OR_DROP:
            inside = graph.apply("and", (inside, graph.apply("eq", (near, start))))
        place = graph.apply("add", (place, graph.apply("mul", (near, INDEX.type(strides[k])))))
    return place, inside


def _fill(parameters, kind):
    """What stands for an entry outside of an array."""
    if parameters["fill_value"] is not None:
        return kind.type(parameters["fill_value"])
    if np.issubdtype(kind, np.inexact):
        return kind.type(np.nan)
    if kind == bool:
        return np.bool_(True)
    limits = np.iinfo(kind)
    return kind.type(limits.min if limits.min < 0 else limits.max)


@rule("scatter", "scatter-add", "scatter_add")
def _scatter(unroller, equation, operands):
    x, indices, updates = operands
    graph, adds = unroller.graph, equation.primitive.name != "scatter"
    put = lambda old, new: graph.apply("add", (old, new)) if adds else new
    if indices.dtype == object:
        return [_scatter_found(graph, equation.params, x, indices, updates, put)]
    places = scattered(equation.params, x.shape, indices, updates.shape)
    if not adds:
        x, updates = alike(x, updates)
        result = x.ravel().copy()
        result[places[places >= 0]] = updates[places >= 0]
        return [result.reshape(x.shape)]
    result, updates = objects(x).ravel().copy(), objects(updates).ravel()
    for i in np.flatnonzero(places >= 0):
        at = int(places.flat[i])
        result[at] = put(result[at], updates[i])
    return [result.reshape(x.shape)]


def _scatter_found(graph, parameters, x, indices, updates, put):
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


@rule("iota")
def _iota(unroller, equation, operands):
    parameters = equation.params
    shape, axis = parameters["shape"], parameters["dimension"]
    along = np.arange(shape[axis]).astype(parameters["dtype"])
    return [np.broadcast_to(along.reshape([-1 if k == axis else 1 for k in range(len(shape))]), shape)]


def _found_window(graph, shape, starts, sizes):
    """Where a window begins in the flattened array, if that is found as the program runs, and the places from there."""
    row = [s.ravel()[0] if s.dtype == object else np.asarray(s)[()] for s in starts]
    index, _ = _place(graph, shape, row, range(len(shape)), sizes, None)
    places = np.arange(int(np.prod(shape, dtype=int))).reshape(shape)[tuple(map(slice, sizes))]
    return index, places


def _window(x, starts, sizes):
    starts = [min(max(int(known(s)), 0), n - k) for s, n, k in zip(starts, x.shape, sizes, strict=True)]
    return tuple(slice(s, s + k) for s, k in zip(starts, sizes, strict=True))


def _filled(shape, fill):
    return np.broadcast_to(fill, shape).copy()
