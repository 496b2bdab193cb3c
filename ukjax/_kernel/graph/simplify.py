"""Algebraic simplification of operations: x + 0 = x, 1 x = x, −(−x) = x, max(x, x) = x.

Each function takes a graph, the operands of an operation (at least one is not constant) and its parameters. It returns
the simplified result, or None if there is nothing to simplify. 0 x is simplified to 0 even if x is infinite or NaN.
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
        if (result := _constant_multiple(graph, a, b)) is not None:
            return result
        if _is_power_of_two(a) and (inner := _power_of_two_multiple(graph, b)) is not None:
            return graph.apply("mul", (inner[0] * a, inner[1]))
    elif type(b) is not Number:
        if (result := _constant_multiple(graph, b, a)) is not None:
            return result
        if _is_power_of_two(b):
            return graph.apply("mul", (b, a))
    return None


def _constant_multiple(graph, constant, x):
    """Simplify 0 x, 1 x and −1 x."""
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
    """Canonicalise a − b, so that it is shared with −(b − a): the earlier number first, a constant last."""
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


def _negation(graph, operands, parameters):
    return graph.negated(operands[0])


def _or(graph, operands, parameters):
    for x, other in (operands, operands[::-1]):
        if type(x) is not Number:
            if not x:
                return other
            if x.dtype == bool:
                return x
    return _repeated("or", graph, operands, parameters)


def _and(graph, operands, parameters):
    for x, other in (operands, operands[::-1]):
        if type(x) is not Number:
            if not x:
                return x
            if x.dtype == bool:
                return other
    return _repeated("and", graph, operands, parameters)


def _repeated(name, graph, operands, parameters):
    """Simplify max(x, x) and max(max(x, y), y) to x, as they occur in reductions over matrices with many zeros."""
    a, b = operands
    if same(a, b):
        return a
    for x, y in ((a, b), (b, a)):
        inner = graph.operations[x.index] if type(x) is Number else None
        if inner is not None and inner.name == name and any(same(y, operand) for operand in inner.operands):
            return x
    return None


def _strict_order(graph, operands, parameters):
    """No number is less or greater than itself."""
    return np.bool_(False) if same(*operands) else None


def _power(graph, operands, parameters):
    return graph.apply("mul", operands * 2) if parameters.get("y", 2) == 2 else None


def _choice(graph, operands, parameters):
    index, *cases = operands
    if type(index) is not Number:
        return cases[int(index)]
    return cases[0] if all(same(case, cases[0]) for case in cases[1:]) else None


def _is_power_of_two(x) -> bool:
    """Return whether x is ±2ᵏ, so that multiplying by it is exact."""
    return isinstance(x, np.floating) and abs(math.frexp(x)[0]) == 0.5


def _power_of_two_multiple(graph, x):
    """Return (c, y) if x is c y and c is a power of two, else None."""
    inner = graph.operations[x.index]
    if inner.name != "mul" or not _is_power_of_two(inner.operands[0]):
        return None
    return inner.operands


SIMPLIFICATIONS: dict[str, Callable[[Any, Any, dict[str, Any]], Operand | None]] = {
    "mul": _product,
    "add": _sum,
    "add_any": _sum,
    "sub": _difference,
    "div": _quotient,
    "neg": _negation,
    "or": _or,
    "and": _and,
    "max": functools.partial(_repeated, "max"),
    "min": functools.partial(_repeated, "min"),
    "gt": _strict_order,
    "lt": _strict_order,
    "square": _power,
    "integer_pow": _power,
    "select_n": _choice,
}
"""Simplification of each operation, by name."""
