"""Rules for matrix products and reductions."""

import functools
import itertools
import math

import jax
import numpy as np

from .entries import are_known, as_objects, entry_rows, object_array
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
EXTREMA = {"argmax": "ge", "argmin": "le"}
"""For each reduction the operation that is applied to one entry after the other."""


MIN_LOOP_PRODUCTS = 1000
"""Smallest number of multiplications for which a product of matrices is a loop, in a branch that is rarely taken."""


@functools.lru_cache(maxsize=64)
def _row_by_row(rows_a, rows_b, terms, shape, dtype):
    """The jaxpr of a bᵀ, for a (rows_a, terms) and b (rows_b, terms), as a loop over the rows of a."""
    a, b = (jax.ShapeDtypeStruct((rows, terms), dtype) for rows in (rows_a, rows_b))
    return jax.make_jaxpr(lambda a, b: jax.lax.map(lambda row: b @ row, a).reshape(shape))(a, b)


@rule("dot_general")
def _dot_general(unroller, equation, operands):
    a, b = operands
    (contract_a, contract_b), (batch_a, batch_b) = equation.params["dimension_numbers"]
    free_a = [i for i in range(a.ndim) if i not in contract_a and i not in batch_a]
    free_b = [i for i in range(b.ndim) if i not in contract_b and i not in batch_b]
    batch, rows_a = [a.shape[i] for i in batch_a], [a.shape[i] for i in free_a]
    rows_b, terms = [b.shape[i] for i in free_b], math.prod(a.shape[i] for i in contract_a)
    shape, dtype = (*batch, *rows_a, *rows_b), equation.outvars[0].aval.dtype
    sizes = math.prod(batch), math.prod(rows_a), math.prod(rows_b)
    a, b = a.transpose(*batch_a, *free_a, *contract_a), b.transpose(*batch_b, *free_b, *contract_b)
    if are_known(a, b):
        a, b = (x.reshape(sizes[0], rows, terms).astype(dtype) for x, rows in ((a, sizes[1]), (b, sizes[2])))
        return [np.einsum("zit,zjt->zij", a, b).reshape(shape)]
    a, b = (
        x if atom.aval.dtype == dtype else unroller.elementwise("convert_element_type", [x], {"new_dtype": dtype})
        for x, atom in zip((a, b), equation.invars, strict=True)
    )
    if unroller.keeps_loops and sizes[0] == 1 < sizes[1] and sizes[1] * sizes[2] * terms >= MIN_LOOP_PRODUCTS:
        factors = [x.reshape(rows, terms) for x, rows in ((a, sizes[1]), (b, sizes[2]))]
        return unroller.closed(_row_by_row(*sizes[1:], terms, shape, dtype), factors)
    rows = [_nonzero(row) for row in entry_rows(a, sizes[0] * sizes[1])]
    columns = [_nonzero(row) for row in entry_rows(b, sizes[0] * sizes[2])]
    apply, zero, result = unroller.graph.apply, dtype.type(0), []
    for z in range(sizes[0]):
        for row in rows[z * sizes[1] : (z + 1) * sizes[1]]:
            for column in columns[z * sizes[2] : (z + 1) * sizes[2]]:
                total = zero
                for k in row:
                    if k in column:
                        total = apply("add", (total, apply("mul", (row[k], column[k]))))
                result.append(total)
    return [object_array(result, shape)]


@rule(*REDUCTIONS)
def _reduce(unroller, equation, operands):
    (x,), axes, operation = operands, tuple(equation.params["axes"]), REDUCTIONS[equation.primitive.name]
    aval, apply = equation.outvars[0].aval, unroller.graph.apply
    if x.size == 0:
        return [np.full(aval.shape, _identity_element(operation, aval.dtype)).astype(aval.dtype)]
    remaining = [i for i in range(x.ndim) if i not in axes]
    result = []
    for total, *others in entry_rows(x.transpose(*remaining, *axes), math.prod(aval.shape)):
        for value in others:
            total = apply(operation, (total, value))
        result.append(total)
    return [object_array(result, aval.shape)]


@rule(*EXTREMA)
def _extreme(unroller, equation, operands):
    """Index of the first extreme entry, or of the first NaN, as in JAX."""
    parameters, comparison = equation.params, EXTREMA[equation.primitive.name]
    (x,), (axis,), dtype = operands, parameters["axes"], np.dtype(parameters["index_dtype"])
    rows = np.moveaxis(as_objects(x), axis, -1)
    result = np.empty(rows.shape[:-1], object)
    for i in np.ndindex(result.shape):
        best, best_index = rows[i][0], dtype.type(0)
        for j, value in enumerate(rows[i][1:], 1):
            keep = unroller.graph.apply(comparison, (best, value))
            if np.issubdtype(best.dtype, np.inexact):
                keep = unroller.graph.apply("or", (keep, unroller.graph.apply("ne", (best, best))))
            best = unroller.graph.apply("select_n", (keep, value, best))
            best_index = unroller.graph.apply("select_n", (keep, dtype.type(j), best_index))
        result[i] = best_index
    return [result]


@rule("cumlogsumexp", *CUMULATIVE)
def _cumulative(unroller, equation, operands):
    parameters, operation = equation.params, CUMULATIVE.get(equation.primitive.name)
    combine = lambda a, b: (
        unroller.elementwise(operation, [a, b]) if operation else _logaddexp(unroller.elementwise, a, b)
    )
    rows = np.moveaxis(as_objects(operands[0]).copy(), parameters["axis"], 0)
    order = range(rows.shape[0])[::-1] if parameters["reverse"] else range(rows.shape[0])
    for previous, i in itertools.pairwise(order):
        rows[i] = combine(np.asarray(rows[previous]), np.asarray(rows[i]))[()]
    return [np.moveaxis(rows, 0, parameters["axis"])]


def _logaddexp(elementwise, a, b):
    """log(exp a + exp b), also where the exponentials overflow or underflow."""
    difference = elementwise("sub", [a, b])
    correction = elementwise("log1p", [elementwise("exp", [elementwise("neg", [elementwise("abs", [difference])])])])
    result = elementwise("add", [elementwise("max", [a, b]), correction])
    # The difference is NaN where both are infinite with the same sign, or one is NaN.
    return elementwise("select_n", [elementwise("ne", [difference, difference]), result, elementwise("add", [a, b])])


def _nonzero(row):
    """The entries of a row that are not the constant 0, by index."""
    return {k: x for k, x in enumerate(row) if x}


def _identity_element(operation, dtype):
    """The result of a reduction over no entries; −1 for "and", since it has all bits set and is true."""
    if operation not in ("max", "min"):
        return {"add": 0, "mul": 1, "or": 0, "and": -1}[operation]
    if dtype.kind == "b":
        return operation == "min"
    if np.issubdtype(dtype, np.integer):
        return np.iinfo(dtype).min if operation == "max" else np.iinfo(dtype).max
    return -np.inf if operation == "max" else np.inf
