"""What is done with every entry by itself."""

import numpy as np

from .arithmetic import ELEMENTWISE, IDENTITIES, fold
from .entries import OBJECT, are_known, array_of, listed
from .table import rule


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


@rule("convert_element_type")
def _convert(unroller, equation, operands):
    (x,), to = operands, equation.params["new_dtype"]
    if equation.invars[0].aval.dtype == to:
        return [x]
    return [x.astype(to)] if are_known(x) else [unroller.each("convert_element_type", [x], equation.params)]


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
