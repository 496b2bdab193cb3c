"""What only moves entries about, or makes them of nothing."""

import numpy as np

from .entries import Stored, alike, are_known, array_of, listed, loaded, spread
from .gather_scatter import gathered, scattered
from .lookup import fill_of, gather_found, scatter_found, slice_found, update_found
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


@rule("broadcast_in_dim")
def _broadcast(unroller, equation, operands):
    x, shape = operands[0], equation.params["shape"]
    wide = [1] * len(shape)
    for size, axis in zip(x.shape, equation.params["broadcast_dimensions"], strict=True):
        wide[axis] = size
    return [spread(x.reshape(wide), shape)]


@rule("slice")
def _slice(unroller, equation, operands):
    if isinstance(operands[0], Stored):
        x = operands[0]
        places = np.arange(x.size).reshape(x.shape)
        return [x.at(unroller.graph, None, _slice(unroller, equation, [places])[0])]
    parameters = equation.params
    steps = parameters["strides"] or (1,) * operands[0].ndim
    spans = zip(parameters["start_indices"], parameters["limit_indices"], steps, strict=True)
    return [operands[0][tuple(slice(*span) for span in spans)]]


@rule("dynamic_slice")
def _dynamic_slice(unroller, equation, operands):
    x, *starts = operands
    if isinstance(x, Stored) or not are_known(*starts):
        return [slice_found(unroller, x, starts, equation.params["slice_sizes"])]
    return [x[_window(x, starts, equation.params["slice_sizes"])]]


@rule("dynamic_update_slice")
def _dynamic_update_slice(unroller, equation, operands):
    x, update, *starts = operands
    if isinstance(x, Stored) or not are_known(*starts):
        return [update_found(unroller, equation, x, update, starts)]
    x, update = alike(x, loaded(unroller.graph, update) if isinstance(update, Stored) else update)
    x = x.copy()
    x[_window(x, starts, update.shape)] = update
    return [x]


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
    if isinstance(x, Stored) or not are_known(indices):
        return [gather_found(unroller, equation, x, indices)]
    find = lambda: gathered(equation.params, x.shape, indices)
    places = unroller.once(equation, indices, find)
    outside = places < 0
    if not outside.any():
        return [x.ravel()[places]]
    fill = fill_of(equation.params, equation.invars[0].aval.dtype)
    entries = np.concatenate(alike(x.ravel(), np.array([fill])))
    return [entries[np.where(outside, x.size, places)]]


@rule("scatter")
def _scatter(unroller, equation, operands):
    x, indices, updates = operands
    if not are_known(indices):
        return [scatter_found(unroller.graph, equation.params, x, indices, updates, lambda old, new: new)]
    at, taken = _scattered(unroller, equation, operands)
    x, updates = alike(x, updates)
    result = x.ravel().copy()
    result[at] = updates.ravel()[taken]
    return [result.reshape(x.shape)]


COMBINED = {
    "scatter-add": "add",
    "scatter-sub": "sub",
    "scatter-mul": "mul",
    "scatter-min": "min",
    "scatter-max": "max",
}
"""What becomes of an entry and of that which is scattered to its place; some versions of JAX have _ for -."""


@rule(*COMBINED, *(name.replace("-", "_") for name in COMBINED))
def _scatter_combined(unroller, equation, operands):
    x, indices, updates = operands
    operation = COMBINED[equation.primitive.name.replace("_", "-")]
    put = lambda old, new: unroller.graph.apply(operation, (old, new))
    if not are_known(indices):
        return [scatter_found(unroller.graph, equation.params, x, indices, updates, put)]
    at, taken = _scattered(unroller, equation, operands)
    result, given = listed(x), listed(updates)
    for i, k in zip(at.tolist(), taken.tolist(), strict=True):
        result[i] = put(result[i], given[k])
    return [array_of(result, x.shape)]


def _scattered(unroller, equation, operands):
    """The places in the flattened operand that a scatter changes, and by which entries of the flattened updates."""
    x, indices, updates = operands

    def find():
        places = scattered(equation.params, x.shape, indices, updates.shape).ravel()
        taken = np.flatnonzero(places >= 0)
        return places[taken], taken

    return unroller.once(equation, indices, find)


@rule("iota")
def _iota(unroller, equation, operands):
    parameters = equation.params
    shape, axis = parameters["shape"], parameters["dimension"]
    along = np.arange(shape[axis]).astype(parameters["dtype"])
    return [spread(along.reshape([-1 if k == axis else 1 for k in range(len(shape))]), shape)]


def _window(x, starts, sizes):
    starts = [min(max(int(s), 0), n - k) for s, n, k in zip(starts, x.shape, sizes, strict=True)]
    return tuple(slice(s, s + k) for s, k in zip(starts, sizes, strict=True))


def _filled(shape, fill):
    return np.broadcast_to(fill, shape).copy()
