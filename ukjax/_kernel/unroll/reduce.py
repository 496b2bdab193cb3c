"""Matrix products, sums and other reductions: what adds up."""

import itertools
import math

import numpy as np

from .entries import are_known, array_of, objects, rows_of
from .rule import rule

REDUCTIONS = {
    "reduce_sum": "add",
    "reduce_prod": "mul",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_or": "or",
    "reduce_and": "and",
}
CUMULATIVE = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}
NO_WORSE = {"argmax": "ge", "argmin": "le"}
"""What is done with one entry after the other."""


@rule("dot_general")
def _dot_general(unroller, equation, operands):
    a, b = operands
    (contract_a, contract_b), (batch_a, batch_b) = equation.params["dimension_numbers"]
    free_a = [i for i in range(a.ndim) if i not in contract_a and i not in batch_a]
    free_b = [i for i in range(b.ndim) if i not in contract_b and i not in batch_b]
    batch, rows_a = [a.shape[i] for i in batch_a], [a.shape[i] for i in free_a]
    rows_b, terms = [b.shape[i] for i in free_b], math.prod(a.shape[i] for i in contract_a)
    shape, dtype = (*batch, *rows_a, *rows_b), equation.outvars[0].aval.dtype
    whole = math.prod(batch), math.prod(rows_a), math.prod(rows_b)
    a, b = a.transpose(*batch_a, *free_a, *contract_a), b.transpose(*batch_b, *free_b, *contract_b)
    if are_known(a, b):
        a, b = (x.reshape(whole[0], rows, terms).astype(dtype) for x, rows in ((a, whole[1]), (b, whole[2])))
        return [np.einsum("zit,zjt->zij", a, b).reshape(shape)]
    a, b = (
        x if atom.aval.dtype == dtype else unroller.each("convert_element_type", [x], {"new_dtype": dtype})
        for x, atom in zip((a, b), equation.invars, strict=True)
    )
    rows = [_not_zero(row) for row in rows_of(a, whole[0] * whole[1])]
    columns = [_not_zero(row) for row in rows_of(b, whole[0] * whole[2])]
    apply, zero, result = unroller.graph.apply, dtype.type(0), []
    for z in range(whole[0]):
        for row in rows[z * whole[1] : (z + 1) * whole[1]]:
            for column in columns[z * whole[2] : (z + 1) * whole[2]]:
                total = zero
                for k in row:
                    if k in column:
                        total = apply("add", (total, apply("mul", (row[k], column[k]))))
                result.append(total)
    return [array_of(result, shape)]


@rule(*REDUCTIONS)
def _reduce(unroller, equation, operands):
    (x,), axes, operation = operands, tuple(equation.params["axes"]), REDUCTIONS[equation.primitive.name]
    aval, apply = equation.outvars[0].aval, unroller.graph.apply
    if x.size == 0:
        return [np.full(aval.shape, _of_nothing(operation, aval.dtype)).astype(aval.dtype)]
    kept = [i for i in range(x.ndim) if i not in axes]
    result = []
    for total, *others in rows_of(x.transpose(*kept, *axes), math.prod(aval.shape)):
        for value in others:
            total = apply(operation, (total, value))
        result.append(total)
    return [array_of(result, aval.shape)]


@rule(*NO_WORSE)
def _extreme(unroller, equation, operands):
    """The first of the extreme entries, or the first that is NaN, as by JAX."""
    parameters, no_worse = equation.params, NO_WORSE[equation.primitive.name]
    (x,), (axis,), dtype = operands, parameters["axes"], np.dtype(parameters["index_dtype"])
    rows = np.moveaxis(objects(x), axis, -1)
    result = np.empty(rows.shape[:-1], object)
    for i in np.ndindex(result.shape):
        best, where = rows[i][0], dtype.type(0)
        for j, value in enumerate(rows[i][1:], 1):
            stays = unroller.graph.apply(no_worse, (best, value))
            if np.issubdtype(best.dtype, np.inexact):
                stays = unroller.graph.apply("or", (stays, unroller.graph.apply("ne", (best, best))))
            best = unroller.graph.apply("select_n", (stays, value, best))
            where = unroller.graph.apply("select_n", (stays, dtype.type(j), where))
        result[i] = where
    return [result]


@rule("cumlogsumexp", *CUMULATIVE)
def _cumulative(unroller, equation, operands):
    parameters, operation = equation.params, CUMULATIVE.get(equation.primitive.name)
    together = lambda a, b: unroller.each(operation, [a, b]) if operation else _log_of_sum(unroller.each, a, b)
    rows = np.moveaxis(objects(operands[0]).copy(), parameters["axis"], 0)
    order = range(rows.shape[0])[::-1] if parameters["reverse"] else range(rows.shape[0])
    for before, i in itertools.pairwise(order):
        rows[i] = together(np.asarray(rows[before]), np.asarray(rows[i]))[()]
    return [np.moveaxis(rows, 0, parameters["axis"])]


def _log_of_sum(each, a, b):
    """log(exp a + exp b), also where the exponentials are no numbers of the type."""
    apart = each("sub", [a, b])
    more = each("log1p", [each("exp", [each("neg", [each("abs", [apart])])])])
    found = each("add", [each("max", [a, b]), more])
    return each("select_n", [each("ne", [apart, apart]), found, each("add", [a, b])])  # two that are infinite


def _not_zero(row):
    """The entries of a row that are not known to be zero, by their places."""
    return {k: x for k, x in enumerate(row) if x}


def _of_nothing(operation, dtype):
    """The result where there is nothing to reduce: −1 has all bits, and is true."""
    if operation not in ("max", "min"):
        return {"add": 0, "mul": 1, "or": 0, "and": -1}[operation]
    if dtype.kind == "b":
        return operation == "min"
    if np.issubdtype(dtype, np.integer):
        return np.iinfo(dtype).min if operation == "max" else np.iinfo(dtype).max
    return -np.inf if operation == "max" else np.inf
