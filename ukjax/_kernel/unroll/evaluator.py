"""Evaluate a jaxpr on arrays by NumPy, for functions that run once.

A jaxpr of a mechanism has thousands of small operations. XLA needs about ten times as long to compile them as NumPy
needs to execute them.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr

from ..._jaxpr.nested import jaxprs_in
from ..graph.fold import CONVERSIONS, fold, refuse_type
from ..graph.graph import Graph, TooLarge
from ..unsupported import Unsupported
from .interpreter import Unroller
from .loops import cached_per_jaxpr, count_equations
from .rule import RULES, Rule

ENTRIES_PER_OPERATION = 1000
"""Number of array entries that take about as long as one operation on a small array."""

MAX_REPETITIONS = 5
"""Largest number of executed operations per operation of the jaxpr. Long loops are for a compiler."""


def evaluate(jaxpr: ClosedJaxpr, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of ``jaxpr`` on ``arguments``.

    Raises ``TooLarge`` if loops or large arrays take long, and ``Unsupported`` if an operation has no rule.
    """
    max_operations = MAX_REPETITIONS * count_equations(jaxpr)
    if _cost(jaxpr) > max_operations:
        raise TooLarge
    with np.errstate(all="ignore"):
        return Evaluator(max_operations).closed(jaxpr, arguments)


@cached_per_jaxpr
def _cost(jaxpr: ClosedJaxpr) -> int:
    """The number of operations, where entries of large arrays count; loops of unknown length count once."""
    total = 0
    for equation in jaxpr.jaxpr.eqns:
        inner = [x if isinstance(x, ClosedJaxpr) else ClosedJaxpr(x, ()) for x in jaxprs_in(equation)]
        total += equation.params.get("length", 1) * sum(map(_cost, inner)) if inner else _cost_of(equation.outvars)
    return total


def _cost_of(variables):
    """The cost of an operation with these results."""
    return 1 + sum(math.prod(x.aval.shape) for x in variables) // ENTRIES_PER_OPERATION


class Evaluator(Unroller):
    """Evaluates a jaxpr on arrays. Loops run until they end.

    remaining: the number of operations that may still be executed.
    """

    is_symbolic = False

    def __init__(self, max_operations: int):
        super().__init__(Graph(0, usual_only=False), "cpu")
        self.remaining = max_operations

    def rule_of(self, name: str) -> Rule:
        return ARRAY_RULES.get(name) or RULES.get(name, _refuse)

    def _instruction(self, equation, last_uses):
        for variable in equation.outvars:
            refuse_type(variable.aval.dtype)
        return super()._instruction(equation, last_uses)

    def elementwise(self, name, operands, parameters=None):
        parameters = parameters or {}
        if name in CONVERSIONS:
            return np.asarray(CONVERSIONS[name](operands[0], np.dtype(parameters["new_dtype"])))
        return np.asarray(fold(name, parameters, operands))

    def _evaluate(self, instruction, values):
        self.remaining -= _cost_of(variable for variable, _ in instruction.results)
        if self.remaining < 0:
            raise TooLarge
        super()._evaluate(instruction, values)
        if any(values[variable].shape != variable.aval.shape for variable, _ in instruction.results):
            raise Unsupported(f"{instruction.equation.primitive.name} needs a rule for arrays")
        for key in instruction.last_uses:  # the memory of large arrays is freed
            values.pop(key, None)

    def _reads_assumptions(self, equation):
        return False


def _refuse(unroller, equation, operands):
    raise Unsupported(f"NumPy has no operation for {equation.primitive.name}")


def _reduction(ufunc: np.ufunc) -> Rule:
    def reduce(unroller, equation, operands):
        (x,), axes = operands, tuple(equation.params["axes"])
        if not x.size:
            return RULES[equation.primitive.name](unroller, equation, operands)
        return [np.asarray(ufunc.reduce(x, axis=axes, dtype=x.dtype))]

    return reduce


def _extreme(find: Callable[..., Any]) -> Rule:
    def index(unroller, equation, operands):
        (x,), (axis,) = operands, equation.params["axes"]
        return [np.asarray(find(x, axis=axis), equation.params["index_dtype"])]

    return index


def _cumulative(ufunc: np.ufunc) -> Rule:
    def accumulate(unroller, equation, operands):
        (x,), axis = operands, equation.params["axis"]
        if not equation.params["reverse"]:
            return [ufunc.accumulate(x, axis=axis, dtype=x.dtype)]
        return [np.flip(ufunc.accumulate(np.flip(x, axis), axis=axis, dtype=x.dtype), axis)]

    return accumulate


def _sort(unroller, equation, operands):
    axis, keys = equation.params["dimension"], operands[: equation.params["num_keys"]]
    order = np.argsort(keys[-1], axis=axis, kind="stable")
    for key in reversed(keys[:-1]):
        by_key = np.argsort(np.take_along_axis(key, order, axis), axis=axis, kind="stable")
        order = np.take_along_axis(order, by_key, axis)
    return [np.take_along_axis(x, order, axis) for x in operands]


def _per_member(unroller, equation, operands):
    """A call for one motion; a batch of them is for a kernel."""
    if any(equation.params["mapped"]):
        raise Unsupported("a batch is compiled")
    return RULES["per_member"](unroller, equation, operands)


def _while(unroller, equation, operands):
    """A loop. One with a condition for each member, as ``vmap`` makes it, is compiled."""
    if equation.params["cond_jaxpr"].out_avals[0].shape:
        raise Unsupported("the members of a batch leave the loop one by one")
    return RULES["while"](unroller, equation, operands)


ARRAY_RULES: dict[str, Rule] = {
    "per_member": _per_member,
    "while": _while,
    "reduce_sum": _reduction(np.add),
    "reduce_prod": _reduction(np.multiply),
    "reduce_max": _reduction(np.maximum),
    "reduce_min": _reduction(np.minimum),
    "reduce_or": _reduction(np.bitwise_or),
    "reduce_and": _reduction(np.bitwise_and),
    "argmax": _extreme(np.argmax),
    "argmin": _extreme(np.argmin),
    "cumsum": _cumulative(np.add),
    "cumprod": _cumulative(np.multiply),
    "cummax": _cumulative(np.maximum),
    "cummin": _cumulative(np.minimum),
    "cumlogsumexp": _cumulative(np.logaddexp),
    "sort": _sort,
}
"""Rules for arrays that replace rules of ``RULES`` for single entries or single members."""
