"""Algebra that makes an operation simpler, or superfluous: x + 0 = x, 1 x = x, −(−x) = x, max(x, x) = x.

Every function is given a graph, the operands of an operation, one of which at least is not known, and its parameters.
It returns the result, or None where there is nothing to simplify. 0 x is 0, be x infinite or NaN.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .number import Number, Operand, same


def _product(graph, operands, parameters):
    a, b = operands
    if type(a) is not Number:
        if (found := _multiple(graph, a, b)) is not None:
            return found
        if _is_power_of_two(a) and (inner := _scaled(graph, b)) is not None:
            return graph.apply("mul", (inner[0] * a, inner[1]))
    elif type(b) is not Number:
        if (found := _multiple(graph, b, a)) is not None:
            return found
        if _is_power_of_two(b):
            return graph.apply("mul", (b, a))
    return None


def _multiple(graph, constant, x):
    """0 x, 1 x or −1 x."""
    if not constant:
        return constant
    if constant == 1:
        return x
    return graph.apply("neg", (x,)) if constant == -1 else None


def _sum(graph, operands, parameters):
    a, b = operands
    if type(a) is not Number:
        return None if a else b
    if type(b) is not Number:
        return None if b else a
    return graph.apply("mul", (a.dtype.type(2), a)) if a.index == b.index else None


def _difference(graph, operands, parameters):
    """One name for a − b and −(b − a): the earlier number is first, and a constant last."""
    a, b = operands
    if type(b) is not Number:
        return None if b else a
    if type(a) is not Number:
        return graph.apply("neg", (graph.apply("sub", (b, a)) if a else b,))
    return graph.apply("neg", (graph.apply("sub", (b, a)),)) if b.index < a.index else None


def _quotient(graph, operands, parameters):
    a, b = operands
    if type(b) is Number:
        return None
    if b == 1:
        return a
    return graph.apply("mul", (1 / b, a)) if _is_power_of_two(b) else None


def _negative(graph, operands, parameters):
    return graph.negated(operands[0])


def _either(graph, operands, parameters):
    for x, other in (operands, operands[::-1]):
        if type(x) is not Number:
            if not x:
                return other
            if x.dtype == bool:
                return x
    return _absorbed("or", graph, operands, parameters)


def _both(graph, operands, parameters):
    for x, other in (operands, operands[::-1]):
        if type(x) is not Number:
            if not x:
                return x
            if x.dtype == bool:
                return other
    return _absorbed("and", graph, operands, parameters)


def _absorbed(name, graph, operands, parameters):
    """x if this is max(x, x) or max(max(x, y), y), of which reductions over matrices full of zeros are made."""
    a, b = operands
    if same(a, b):
        return a
    for x, y in ((a, b), (b, a)):
        inner = graph.operations[x.index] if type(x) is Number else None
        if inner is not None and inner.name == name and any(same(y, operand) for operand in inner.operands):
            return x
    return None


def _order(graph, operands, parameters):
    """No number is above or below itself."""
    return np.bool_(False) if same(*operands) else None


def _power(graph, operands, parameters):
    return graph.apply("mul", operands * 2) if parameters.get("y", 2) == 2 else None


def _choice(graph, operands, parameters):
    which, *cases = operands
    if type(which) is not Number:
        return cases[int(which)]
    return cases[0] if all(same(case, cases[0]) for case in cases[1:]) else None


def _is_power_of_two(x) -> bool:
    """Whether multiplying by the constant x is exact."""
    return isinstance(x, np.floating) and abs(math.frexp(x)[0]) == 0.5


def _scaled(graph, x):
    """(c, y) if x is c y with c a power of two."""
    inner = graph.operations[x.index]
    if inner.name != "mul" or not _is_power_of_two(inner.operands[0]):
        return None
    return inner.operands


SIMPLER: dict[str, Callable[[Any, Any, dict[str, Any]], Operand | None]] = {
    "mul": _product,
    "add": _sum,
    "add_any": _sum,
    "sub": _difference,
    "div": _quotient,
    "neg": _negative,
    "or": _either,
    "and": _both,
    "max": functools.partial(_absorbed, "max"),
    "min": functools.partial(_absorbed, "min"),
    "gt": _order,
    "lt": _order,
    "square": _power,
    "integer_pow": _power,
    "select_n": _choice,
}
"""By the name of the operation."""
