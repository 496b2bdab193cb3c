"""What only moves entries about, or makes them of nothing."""

import numpy as np

from .entries import alike, known, objects
from .places import gathered, scattered
from .refusal import Unsupported
from .table import rule


@rule("reshape")
def _reshape(unroller, equation, operands):
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
    return [x[_window(x, starts, equation.params["slice_sizes"])]]


@rule("dynamic_update_slice")
def _dynamic_update_slice(unroller, equation, operands):
    x, update, *starts = operands
    x, update = alike(x, update)
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
    places = gathered(equation.params, x.shape, known(indices))
    if (places < 0).any():
        raise Unsupported("entries are taken from outside of an array")
    return [x.ravel()[places]]


@rule("scatter")
def _scatter(unroller, equation, operands):
    x, indices, updates = operands
    places = scattered(equation.params, x.shape, known(indices), updates.shape)
    x, updates = alike(x, updates)
    result = x.ravel().copy()
    result[places[places >= 0]] = updates[places >= 0]
    return [result.reshape(x.shape)]


@rule("scatter-add", "scatter_add")
def _scatter_add(unroller, equation, operands):
    x, indices, updates = operands
    places = scattered(equation.params, x.shape, known(indices), updates.shape)
    result, added = objects(x).ravel().copy(), objects(updates).ravel()
    for i in np.flatnonzero(places >= 0):
        at = int(places.flat[i])
        result[at] = unroller.graph.apply("add", (result[at], added[i]))
    return [result.reshape(x.shape)]


@rule("iota")
def _iota(unroller, equation, operands):
    parameters = equation.params
    shape, axis = parameters["shape"], parameters["dimension"]
    along = np.arange(shape[axis]).astype(parameters["dtype"])
    return [np.broadcast_to(along.reshape([-1 if k == axis else 1 for k in range(len(shape))]), shape)]


def _window(x, starts, sizes):
    starts = [min(max(int(known(s)), 0), n - k) for s, n, k in zip(starts, x.shape, sizes, strict=True)]
    return tuple(slice(s, s + k) for s, k in zip(starts, sizes, strict=True))


def _filled(shape, fill):
    return np.broadcast_to(fill, shape).copy()
