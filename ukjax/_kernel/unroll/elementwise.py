"""What is done with every entry by itself."""

import numpy as np

from ..graph.fold import ELEMENTWISE, IDENTITIES, OF_TYPE, fold, refuse_type
from ..unsupported import Unsupported
from .entries import OBJECT, are_known, array_of, listed
from .rule import rule


@rule(*ELEMENTWISE)
def _elementwise(unroller, equation, operands):
    name, parameters = equation.primitive.name, equation.params
    if are_known(*operands):
        return [np.asarray(fold(name, parameters, operands))]
    if name == "select_n" and operands[0].dtype is not OBJECT:
        return [_chosen(*operands)]
    return [unroller.each(name, operands, parameters)]


@rule(*IDENTITIES)
def _identity(unroller, equation, operands):
    return operands[:1]


@rule(*OF_TYPE)
def _of_type(unroller, equation, operands):
    (x,), to, name = operands, np.dtype(equation.params["new_dtype"]), equation.primitive.name
    kind = equation.invars[0].aval.dtype
    if kind == to:
        return [x]
    if name == "bitcast_convert_type" and kind.itemsize != to.itemsize:
        raise Unsupported("its bits are taken for numbers of another size")
    if are_known(x):
        return [np.asarray(OF_TYPE[name](x, to))]
    refuse_type(to)
    return [unroller.each(name, [x], equation.params)]


@rule("clamp")
def _clamp(unroller, equation, operands):
    low, x, high = operands
    return [unroller.each("min", [high, unroller.each("max", [low, x])])]


def _chosen(which, *cases):
    """Of every entry the case that ``which``, a number or an array, is known to say."""
    if which.ndim == 0:
        return cases[int(which)]
    rows = zip(*map(listed, cases), strict=True)
    return array_of([row[k] for k, row in zip(which.astype(int).flat, rows, strict=True)], cases[0].shape)


@rule("lt_to", "le_to")
def _in_total_order(unroller, equation, operands):
    """With NaN above all other numbers: what searches compare by."""
    x, y = operands
    each, by = unroller.each, equation.primitive.name.removesuffix("_to")
    y_is_nan = each("ne", [y, y])
    above = y_is_nan if by == "le" else each("and", [y_is_nan, each("eq", [x, x])])
    return [each("or", [each(by, [x, y]), above])]
