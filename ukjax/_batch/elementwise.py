"""What is done with every entry by itself."""

import numpy as np

from .arithmetic import ELEMENTWISE, IDENTITIES, fold
from .entries import objects
from .table import rule


@rule(*ELEMENTWISE, *IDENTITIES, "convert_element_type")
def _elementwise(unroller, equation, operands):
    name, parameters = equation.primitive.name, equation.params
    if all(x.dtype != object for x in operands):
        if name == "convert_element_type":
            return [operands[0].astype(parameters["new_dtype"])]
        if name in IDENTITIES:
            return [operands[0]]
        return [np.asarray(fold(name, parameters, operands))]
    if name == "select_n" and operands[0].dtype != object and operands[0].shape == operands[1].shape:
        result = objects(operands[1]).copy()
        for k, case in enumerate(operands[2:], 1):
            chosen = operands[0].astype(int) == k
            result[chosen] = objects(case)[chosen]
        return [result]
    return [unroller.each(name, operands, parameters)]


@rule("clamp")
def _clamp(unroller, equation, operands):
    low, x, high = operands
    return [unroller.each("min", [high, unroller.each("max", [low, x])])]
