"""Functions in functions, loops and choices: what calls, repeats or chooses."""

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr

from .entries import alike
from .refusal import Unsupported
from .table import rule

INNER = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "per_member": "jaxpr",
    "either": "arithmetic",
}
"""Primitives that are functions of their own, and the parameter that holds them, by all names that JAX gave them."""

REPEATING = frozenset({"scan", "while", "cond", *INNER})
"""Primitives that hold others."""


@rule(*INNER)
def _call(unroller, equation, operands):
    inner = equation.params[INNER[equation.primitive.name]]
    return unroller.closed(inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ()), operands)


@rule("call_hi_primitive")
def _expand(unroller, equation, operands):
    """From jax 0.12 on some functions, such as ``jnp.searchsorted``, are what says how to write it in others."""
    whole = equation.params["_prim"]

    def expanded(*leaves):
        return jax.tree.leaves(whole.expand(*jax.tree.unflatten(whole.in_tree, leaves)))

    shapes = [jax.ShapeDtypeStruct(x.aval.shape, x.aval.dtype) for x in equation.invars]
    return unroller.closed(jax.make_jaxpr(expanded)(*shapes), operands)


@rule("scan")
def _scan(unroller, equation, operands):
    parameters = equation.params
    if "ft_in" in parameters:  # jax 0.12
        fixed, carried, _ = map(len, parameters["ft_in"].unpack())
    else:
        fixed, carried = parameters["num_consts"], parameters["num_carry"]
    consts, carry, xs = operands[:fixed], operands[fixed : fixed + carried], operands[fixed + carried :]
    length = parameters["length"]
    collected: list[list[np.ndarray]] = [[] for _ in parameters["jaxpr"].out_avals[carried:]]
    for i in reversed(range(length)) if parameters["reverse"] else range(length):
        out = unroller.closed(parameters["jaxpr"], [*consts, *carry, *(np.asarray(x[i]) for x in xs)])
        carry = out[:carried]
        for column, value in zip(collected, out[carried:], strict=True):
            column.append(value)
    if parameters["reverse"]:
        collected = [column[::-1] for column in collected]
    empty = [np.zeros((0, *a.shape), a.dtype) for a in parameters["jaxpr"].out_avals[carried:]]
    stacked = [np.stack(alike(*column)) if column else none for column, none in zip(collected, empty, strict=True)]
    return [*carry, *stacked]


@rule("while")
def _while(unroller, equation, operands):
    parameters = equation.params
    a, b = parameters["cond_nconsts"], parameters["body_nconsts"]
    test, body, carry = operands[:a], operands[a : a + b], operands[a + b :]
    while True:
        (go_on,) = unroller.closed(parameters["cond_jaxpr"], [*test, *carry])
        if go_on.dtype == object:
            raise Unsupported(
                "how often it repeats depends on what is computed: use lax.fori_loop or lax.scan of known length"
            )
        if not go_on:
            return carry
        carry = unroller.closed(parameters["body_jaxpr"], [*body, *carry])


@rule("cond")
def _cond(unroller, equation, operands):
    which, *rest = operands
    branches = equation.params["branches"]
    if which.dtype != object:
        return unroller.closed(branches[min(max(int(which), 0), len(branches) - 1)], rest)
    index = which.ravel()[0]
    if unroller.graph.usual:
        unroller.graph.assumed_zero.append(index)
        return unroller.closed(branches[0], rest)
    results = [unroller.closed(branch, rest) for branch in branches]
    # A choice by number takes the nearest case, one between two takes what is not 0 for true.
    highest = index.dtype.type(len(branches) - 1)
    index = unroller.graph.apply("min", (unroller.graph.apply("max", (index, index.dtype.type(0))), highest))
    if len(branches) == 2:
        index = unroller.graph.apply("ne", (index, index.dtype.type(0)))
    return [unroller.each("select_n", [np.asarray(index), *cases]) for cases in zip(*results, strict=True)]


@rule("platform_index")
def _platform_index(unroller, equation, operands):
    found = [i for i, names in enumerate(equation.params["platforms"]) if names is None or unroller.platform in names]
    return [np.asarray(found[0], np.int32)]


@rule("assumed")
def _assumed(unroller, equation, operands):
    wrong = unroller.graph.wrongly_assumed()
    unroller.graph.told = len(unroller.graph.assumed_zero)
    return [np.asarray(wrong)]


@rule("written_out")
def _written_out(unroller, equation, operands):
    return [np.asarray(True)]


@rule("custom_linear_solve")
def _custom_linear_solve(unroller, equation, operands):
    lengths = equation.params["const_lengths"]
    before = lengths.matvec + lengths.vecmat
    solve = operands[before : before + lengths.solve]
    right = operands[sum(lengths) :]
    return unroller.closed(equation.params["jaxprs"].solve, [*solve, *right])
