"""Sorting: by exchanges of neighbours, written out, which leave those that are equal in their order."""

import numpy as np

from .entries import objects
from .rule import rule


@rule("sort")
def _sort(unroller, equation, operands):
    """By the first ``num_keys`` operands; NaN comes last, as by JAX."""
    keys, apply = equation.params["num_keys"], unroller.graph.apply

    def is_below(a, b):
        below, level = np.bool_(False), np.bool_(True)
        for x, y in zip(a[:keys], b[:keys], strict=True):
            less, same = apply("lt", (x, y)), apply("eq", (x, y))
            if x.dtype.kind == "f":
                x_is_number, y_is_none = apply("eq", (x, x)), apply("ne", (y, y))
                less = apply("or", (less, apply("and", (x_is_number, y_is_none))))
                same = apply("or", (same, apply("and", (apply("ne", (x, x)), y_is_none))))
            below = apply("or", (below, apply("and", (level, less))))
            level = apply("and", (level, same))
        return below

    return _exchanged(apply, is_below, operands, equation.params["dimension"])


@rule("lt_to", "le_to")
def _in_total_order(unroller, equation, operands):
    """Whether one number is below another where −0 is below 0 and NaN is above or, with a sign, below all others: their
    bits are in that order, as whole numbers whose bits are turned where they are negative."""
    each, kind = unroller.each, equation.invars[0].aval.dtype
    if kind.kind == "f":
        bits = np.dtype(f"i{kind.itemsize}")
        whole = [each("bitcast_convert_type", [x], {"new_dtype": bits}) for x in operands]
        signs = [each("shift_right_arithmetic", [x, np.asarray(8 * kind.itemsize - 1, bits)]) for x in whole]
        largest = np.asarray(np.iinfo(bits).max)
        operands = [each("xor", [x, each("and", [sign, largest])]) for x, sign in zip(whole, signs, strict=True)]
    return [each(equation.primitive.name.removesuffix("_to"), operands)]


def _exchanged(apply, is_before, operands, axis):
    """The operands with those first along an axis that are before others."""
    columns = [np.moveaxis(objects(x).copy(), axis, 0) for x in operands]
    for end in range(operands[0].shape[axis] - 1, 0, -1):
        for i in range(end):
            for at in np.ndindex(columns[0].shape[1:]):
                here, there = [x[(i, *at)] for x in columns], [x[(i + 1, *at)] for x in columns]
                change = is_before(there, here)
                for x, a, b in zip(columns, here, there, strict=True):
                    x[(i, *at)] = apply("select_n", (change, a, b))
                    x[(i + 1, *at)] = apply("select_n", (change, b, a))
    return [np.moveaxis(x, 0, axis) for x in columns]
