"""Matrix products, sums and other reductions: what adds up."""

import itertools

import numpy as np

from .entries import objects
from .graph import Number
from .table import rule

REDUCTIONS = {
    "reduce_sum": "add",
    "reduce_prod": "mul",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_or": "or",
    "reduce_and": "and",
}
CUMULATIVE = {"cumsum": "add", "cumprod": "mul"}
NO_WORSE = {"argmax": "ge", "argmin": "le"}
"""What is done with one entry after the other."""


@rule("dot_general")
def _dot_general(unroller, equation, operands):
    a, b = operands
    (contract_a, contract_b), (batch_a, batch_b) = equation.params["dimension_numbers"]
    free_a = [i for i in range(a.ndim) if i not in contract_a and i not in batch_a]
    free_b = [i for i in range(b.ndim) if i not in contract_b and i not in batch_b]
    shape = tuple(a.shape[i] for i in batch_a) + tuple(a.shape[i] for i in free_a)
    shape += tuple(b.shape[i] for i in free_b)
    batches = int(np.prod([a.shape[i] for i in batch_a], dtype=int))
    terms = int(np.prod([a.shape[i] for i in contract_a], dtype=int))
    dtype = equation.outvars[0].aval.dtype
    rows_a, rows_b = (int(np.prod([x.shape[i] for i in free], dtype=int)) for x, free in ((a, free_a), (b, free_b)))
    a = a.transpose(*batch_a, *free_a, *contract_a).reshape(batches, rows_a, terms)
    b = b.transpose(*batch_b, *free_b, *contract_b).reshape(batches, rows_b, terms)
    a, b = (x if x.dtype == object else x.astype(dtype) for x in (a, b))
    if a.dtype != object and b.dtype != object:
        return [np.einsum("zit,zjt->zij", a, b).astype(dtype).reshape(shape)]
    convert = lambda x: unroller.graph.apply("convert_element_type", (x,), {"new_dtype": dtype})
    kinds = [atom.aval.dtype for atom in equation.invars]
    a, b = (
        objects(x) if kind == dtype else np.vectorize(convert, [object])(objects(x))
        for x, kind in zip((a, b), kinds, strict=True)
    )
    rows, columns = ([[_not_zero(x) for x in part] for part in whole] for whole in (a, b))
    result = np.empty((batches, a.shape[1], b.shape[1]), object)
    for z, i, j in itertools.product(*map(range, result.shape)):
        total, other = dtype.type(0), columns[z][j]
        for k in rows[z][i]:
            if k in other:
                total = unroller.graph.apply("add", (total, unroller.graph.apply("mul", (a[z, i, k], b[z, j, k]))))
        result[z, i, j] = total
    return [result.reshape(shape)]


@rule(*REDUCTIONS)
def _reduce(unroller, equation, operands):
    (x,), axes, operation = operands, tuple(equation.params["axes"]), REDUCTIONS[equation.primitive.name]
    if operation == "add" and x.size == 0:
        aval = equation.outvars[0].aval
        return [np.zeros(aval.shape, aval.dtype)]
    kept = [i for i in range(x.ndim) if i not in axes]
    shape = tuple(x.shape[i] for i in kept)
    rows = objects(x).transpose(*kept, *axes).reshape(int(np.prod(shape, dtype=int)), -1)
    result = np.empty(rows.shape[0], object)
    for i, row in enumerate(rows):
        total = row[0]
        for value in row[1:]:
            total = unroller.graph.apply(operation, (total, value))
        result[i] = total
    return [result.reshape(shape)]


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


@rule(*CUMULATIVE)
def _cumulative(unroller, equation, operands):
    parameters, operation = equation.params, CUMULATIVE[equation.primitive.name]
    rows = np.moveaxis(objects(operands[0]).copy(), parameters["axis"], 0)
    order = range(rows.shape[0])[::-1] if parameters["reverse"] else range(rows.shape[0])
    for before, i in itertools.pairwise(order):
        rows[i] = unroller.each(operation, [np.asarray(rows[before]), np.asarray(rows[i])])[()]
    return [np.moveaxis(rows, 0, parameters["axis"])]


def _not_zero(row: np.ndarray) -> dict[int, None]:
    """Where a row is not known to be zero, in order."""
    return {k: None for k, x in enumerate(row) if isinstance(x, Number) or x != 0}
