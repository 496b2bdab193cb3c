"""Rules for primitives that move or create entries: reshape, slice, concatenate, pad, gather, scatter, iota."""

import numpy as np

from .entries import Stored, are_known, broadcast, entry_list, loaded, object_array, with_common_dtype
from .gather_scatter import gather_positions, scatter_positions
from .lookup import out_of_bounds_value, runtime_gather, runtime_scatter, runtime_slice, runtime_update
from .rule import rule


@rule("reshape", "squeeze", "expand_dims")
def _reshape(unroller, equation, operands):
    if isinstance(operands[0], Stored):
        return [Stored(operands[0].memory, equation.outvars[0].aval.shape, operands[0].version, operands[0].begin)]
    return [operands[0].reshape(equation.outvars[0].aval.shape)]


@rule("transpose")
def _transpose(unroller, equation, operands):
    return [operands[0].transpose(equation.params["permutation"])]


@rule("rev")
def _reverse(unroller, equation, operands):
    return [np.flip(operands[0], tuple(equation.params["dimensions"]))]


@rule("tile")
def _tile(unroller, equation, operands):
    return [np.tile(operands[0], equation.params["reps"])]


@rule("broadcast_in_dim")
def _broadcast(unroller, equation, operands):
    x, shape = operands[0], equation.params["shape"]
    expanded = [1] * len(shape)
    for size, axis in zip(x.shape, equation.params["broadcast_dimensions"], strict=True):
        expanded[axis] = size
    return [broadcast(x.reshape(expanded), shape)]


@rule("slice")
def _slice(unroller, equation, operands):
    if isinstance(operands[0], Stored):
        x = operands[0]
        offsets = np.arange(x.size).reshape(x.shape)
        return [x.at(unroller.graph, None, _slice(unroller, equation, [offsets])[0])]
    parameters = equation.params
    steps = parameters["strides"] or (1,) * operands[0].ndim
    spans = zip(parameters["start_indices"], parameters["limit_indices"], steps, strict=True)
    return [operands[0][tuple(slice(*span) for span in spans)]]


@rule("dynamic_slice")
def _dynamic_slice(unroller, equation, operands):
    x, *starts = operands
    if isinstance(x, Stored) or not are_known(*starts):
        return [runtime_slice(unroller, x, starts, equation.params["slice_sizes"])]
    return [x[_window(x, starts, equation.params["slice_sizes"])]]


@rule("dynamic_update_slice")
def _dynamic_update_slice(unroller, equation, operands):
    x, update, *starts = operands
    if isinstance(x, Stored) or not are_known(*starts):
        return [runtime_update(unroller, equation, x, update, starts)]
    x, update = with_common_dtype(x, loaded(unroller.graph, update) if isinstance(update, Stored) else update)
    x = x.copy()
    x[_window(x, starts, update.shape)] = update
    return [x]


@rule("split")
def _split(unroller, equation, operands):
    boundaries = np.cumsum(np.asarray(equation.params["sizes"]))[:-1]
    return np.split(operands[0], boundaries, equation.params["axis"])


@rule("stack")
def _stack(unroller, equation, operands):
    return [np.stack(with_common_dtype(*operands), equation.params["axis"])]


@rule("unstack")
def _unstack(unroller, equation, operands):
    return list(np.moveaxis(operands[0], equation.params["axis"], 0))


@rule("concatenate")
def _concatenate(unroller, equation, operands):
    return [np.concatenate(with_common_dtype(*operands), equation.params["dimension"])]


@rule("pad")
def _pad(unroller, equation, operands):
    x, fill = with_common_dtype(*operands)
    for axis, (low, high, interior) in enumerate(equation.params["padding_config"]):
        length = max(0, x.shape[axis] - 1) * (1 + interior) + min(1, x.shape[axis])
        dilated = _filled((*x.shape[:axis], length, *x.shape[axis + 1 :]), fill)
        dilated[(slice(None),) * axis + (slice(None, None, 1 + interior),)] = x
        edges = [_filled((*x.shape[:axis], max(0, k), *x.shape[axis + 1 :]), fill) for k in (low, high)]
        padded = np.concatenate([edges[0], dilated, edges[1]], axis)
        x = padded[(slice(None),) * axis + (slice(max(0, -low), padded.shape[axis] - max(0, -high)),)]
    return [x]


@rule("gather")
def _gather(unroller, equation, operands):
    x, indices = operands
    if isinstance(x, Stored) or not are_known(indices):
        return [runtime_gather(unroller, equation, x, indices)]
    compute = lambda: gather_positions(equation.params, x.shape, indices)
    positions = unroller.cached(equation, indices, compute)
    outside = positions < 0
    if not outside.any():
        return [x.ravel()[positions]]
    fill = out_of_bounds_value(equation.params, equation.invars[0].aval.dtype)
    entries = np.concatenate(with_common_dtype(x.ravel(), np.array([fill])))
    return [entries[np.where(outside, x.size, positions)]]


@rule("scatter")
def _scatter(unroller, equation, operands):
    x, indices, updates = operands
    if not are_known(indices):
        return [runtime_scatter(unroller.graph, equation.params, x, indices, updates, lambda old, new: new)]
    positions, selected = _scatter_targets(unroller, equation, operands)
    x, updates = with_common_dtype(x, updates)
    result = x.ravel().copy()
    result[positions] = updates.ravel()[selected]
    return [result.reshape(x.shape)]


COMBINED = {
    "scatter-add": "add",
    "scatter-sub": "sub",
    "scatter-mul": "mul",
    "scatter-min": "min",
    "scatter-max": "max",
}
"""The operation that combines an entry with its update; some versions of JAX write _ instead of -."""


@rule(*COMBINED, *(name.replace("-", "_") for name in COMBINED))
def _scatter_combined(unroller, equation, operands):
    x, indices, updates = operands
    operation = COMBINED[equation.primitive.name.replace("_", "-")]
    combine = lambda old, new: unroller.graph.apply(operation, (old, new))
    if not are_known(indices):
        return [runtime_scatter(unroller.graph, equation.params, x, indices, updates, combine)]
    positions, selected = _scatter_targets(unroller, equation, operands)
    result, new = entry_list(x), entry_list(updates)
    for i, k in zip(positions.tolist(), selected.tolist(), strict=True):
        result[i] = combine(result[i], new[k])
    return [object_array(result, x.shape)]


def _scatter_targets(unroller, equation, operands):
    """Positions in the flattened operand that a scatter writes, and for each the index of its flattened update."""
    x, indices, updates = operands

    def compute():
        positions = scatter_positions(equation.params, x.shape, indices, updates.shape).ravel()
        selected = np.flatnonzero(positions >= 0)
        return positions[selected], selected

    return unroller.cached(equation, indices, compute)


@rule("iota")
def _iota(unroller, equation, operands):
    parameters = equation.params
    shape, axis = parameters["shape"], parameters["dimension"]
    values = np.arange(shape[axis]).astype(parameters["dtype"])
    return [broadcast(values.reshape([-1 if k == axis else 1 for k in range(len(shape))]), shape)]


def _window(x, starts, sizes):
    """The slices of a window; start indices are clipped as by ``lax.dynamic_slice``."""
    starts = [min(max(int(s), 0), n - k) for s, n, k in zip(starts, x.shape, sizes, strict=True)]
    return tuple(slice(s, s + k) for s, k in zip(starts, sizes, strict=True))


def _filled(shape, fill):
    return np.broadcast_to(fill, shape).copy()
