"""Rules for elementwise primitives."""

import numpy as np

from ..graph.fold import CONVERSIONS, ELEMENTWISE, IDENTITIES, fold, refuse_type
from ..unsupported import Unsupported
from .entries import OBJECT, are_known, entry_list, object_array
from .rule import rule


@rule(*ELEMENTWISE)
def _elementwise(unroller, equation, operands):
    name, parameters = equation.primitive.name, equation.params
    if are_known(*operands):
        return [np.asarray(fold(name, parameters, operands))]
    if name == "select_n" and operands[0].dtype is not OBJECT:
        return [_select_by_constant(*operands)]
    return [unroller.elementwise(name, operands, parameters)]


@rule(*IDENTITIES)
def _identity(unroller, equation, operands):
    return operands[:1]


@rule(*CONVERSIONS)
def _convert_type(unroller, equation, operands):
    (x,), new_dtype, name = operands, np.dtype(equation.params["new_dtype"]), equation.primitive.name
    dtype = equation.invars[0].aval.dtype
    if dtype == new_dtype:
        return [x]
    if name == "bitcast_convert_type" and dtype.itemsize != new_dtype.itemsize:
        raise Unsupported("it converts bits to numbers of another size")
    if are_known(x):
        return [np.asarray(CONVERSIONS[name](x, new_dtype))]
    refuse_type(new_dtype)
    return [unroller.elementwise(name, [x], equation.params)]


@rule("clamp")
def _clamp(unroller, equation, operands):
    low, x, high = operands
    return [unroller.elementwise("min", [high, unroller.elementwise("max", [low, x])])]


def _select_by_constant(which, *cases):
    """``lax.select_n`` with a constant selector, a scalar or an array."""
    if which.ndim == 0:
        return cases[int(which)]
    rows = zip(*map(entry_list, cases), strict=True)
    return object_array([row[k] for k, row in zip(which.astype(int).flat, rows, strict=True)], cases[0].shape)


@rule("lt_to", "le_to")
def _in_total_order(unroller, equation, operands):
    """Compare with NaN above all other numbers, as ``jnp.searchsorted`` does."""
    x, y = operands
    elementwise, comparison = unroller.elementwise, equation.primitive.name.removesuffix("_to")
    y_is_nan = elementwise("ne", [y, y])
    nan_is_above = y_is_nan if comparison == "le" else elementwise("and", [y_is_nan, elementwise("eq", [x, x])])
    return [elementwise("or", [elementwise(comparison, [x, y]), nan_is_above])]
