"""Rules for sorting, by an unrolled bubble sort, which is stable."""

import numpy as np

from .entries import as_objects
from .rule import rule


@rule("sort")
def _sort(unroller, equation, operands):
    """Sort by the first ``num_keys`` operands; NaN is last, as in JAX."""
    num_keys, apply = equation.params["num_keys"], unroller.graph.apply

    def is_less(a, b):
        result, ties = np.bool_(False), np.bool_(True)
        for x, y in zip(a[:num_keys], b[:num_keys], strict=True):
            less, equal = apply("lt", (x, y)), apply("eq", (x, y))
            if x.dtype.kind == "f":
                x_is_number, y_is_nan = apply("eq", (x, x)), apply("ne", (y, y))
                less = apply("or", (less, apply("and", (x_is_number, y_is_nan))))
                equal = apply("or", (equal, apply("and", (apply("ne", (x, x)), y_is_nan))))
            result = apply("or", (result, apply("and", (ties, less))))
            ties = apply("and", (ties, equal))
        return result

    return _bubble_sort(apply, is_less, operands, equation.params["dimension"])


@rule("lt_to", "le_to")
def _in_total_order(unroller, equation, operands):
    """Compare in IEEE 754 total order: −0 < 0; NaN is above all other numbers or, with a sign, below them.

    Interpreted as integers, the bits of floats are in this order if all bits of negative numbers but the sign are
    inverted.
    """
    elementwise, dtype = unroller.elementwise, equation.invars[0].aval.dtype
    if dtype.kind == "f":
        integer = np.dtype(f"i{dtype.itemsize}")
        bits = [elementwise("bitcast_convert_type", [x], {"new_dtype": integer}) for x in operands]
        signs = [elementwise("shift_right_arithmetic", [x, np.asarray(8 * dtype.itemsize - 1, integer)]) for x in bits]
        largest = np.asarray(np.iinfo(integer).max)
        operands = [
            elementwise("xor", [x, elementwise("and", [sign, largest])]) for x, sign in zip(bits, signs, strict=True)
        ]
    return [elementwise(equation.primitive.name.removesuffix("_to"), operands)]


def _bubble_sort(apply, is_less, operands, axis):
    """The operands sorted along ``axis`` by ``is_less``."""
    columns = [np.moveaxis(as_objects(x).copy(), axis, 0) for x in operands]
    for end in range(operands[0].shape[axis] - 1, 0, -1):
        for i in range(end):
            for rest in np.ndindex(columns[0].shape[1:]):
                first, second = [x[(i, *rest)] for x in columns], [x[(i + 1, *rest)] for x in columns]
                swap = is_less(second, first)
                for x, a, b in zip(columns, first, second, strict=True):
                    x[(i, *rest)] = apply("select_n", (swap, a, b))
                    x[(i + 1, *rest)] = apply("select_n", (swap, b, a))
    return [np.moveaxis(x, 0, axis) for x in columns]
