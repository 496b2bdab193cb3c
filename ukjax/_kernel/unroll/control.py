"""Functions in functions, loops and choices: what calls, repeats or chooses."""

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr

from . import loops
from .entries import Stored, alike, shared
from .loops import choice, loop, operations_of, row_of, waits
from .rule import rule

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
    length, body = parameters["length"], parameters["jaxpr"]
    is_known = all(not isinstance(x, Stored) and x.dtype != object for x in xs)
    if length > (2 if is_known else 1) and length * operations_of(body) >= loops.WORTH_A_LOOP:
        return _kept_scan(unroller, parameters, consts, carry, xs)
    xs = [x.entries(unroller.graph) if isinstance(x, Stored) else x for x in xs]
    collected: list[list[np.ndarray]] = [[] for _ in parameters["jaxpr"].out_avals[carried:]]
    for i in reversed(range(length)) if parameters["reverse"] else range(length):
        out = unroller.closed(parameters["jaxpr"], [*consts, *carry, *(np.asarray(x[i]) for x in xs)])
        carry = out[:carried]
        for column, value in zip(collected, out[carried:], strict=True):
            column.append(value)
    if parameters["reverse"]:
        collected = [column[::-1] for column in collected]
    empty = [np.zeros((0, *a.shape), a.dtype) for a in parameters["jaxpr"].out_avals[carried:]]
    loaded = lambda x: x.entries(unroller.graph) if isinstance(x, Stored) else x
    stacked = [
        np.stack(alike(*map(loaded, column))) if column else none for column, none in zip(collected, empty, strict=True)
    ]
    return [*carry, *stacked]


def _kept_scan(unroller, parameters, consts, carry, xs):
    length, body = parameters["length"], parameters["jaxpr"]
    fixed, consts, carry = len(consts), shared(consts), list(carry)
    # What no turn changes is no part of the state.
    moves = [body.jaxpr.outvars[k] is not body.jaxpr.invars[fixed + k] for k in range(len(carry))]

    def turn(state, counter):
        given = iter(state)
        now = [next(given) if own else x for x, own in zip(carry, moves, strict=True)]
        out = unroller.closed(body, [*consts, *now, *(row_of(unroller, x, counter) for x in xs)])
        after = [x for x, own in zip(out, moves, strict=False) if own]
        return after, out[len(carry) :], None

    moving = [x for x, own in zip(carry, moves, strict=True) if own]
    carry = [x if own else y for x, y, own in zip(carry, shared(carry), moves, strict=True)]
    variables = [x for x, own in zip(body.jaxpr.invars[fixed:], moves, strict=False) if own]
    state, stacked = loop(unroller, body.jaxpr, variables, turn, moving, length, reverse=parameters["reverse"])
    given = iter(state)
    return [*(next(given) if own else x for x, own in zip(carry, moves, strict=True)), *stacked]


@rule("while")
def _while(unroller, equation, operands):
    parameters = equation.params
    a, b = parameters["cond_nconsts"], parameters["body_nconsts"]
    test, body, carry = operands[:a], operands[a : a + b], operands[a + b :]
    turns = max(1, loops.WORTH_A_LOOP // max(1, operations_of(parameters["body_jaxpr"])))
    begun, carry = carry, shared(carry)  # what is changed in the turns that are tried is a copy
    while turns:
        (go_on,) = unroller.closed(parameters["cond_jaxpr"], [*test, *carry])
        if go_on.dtype == object:
            break
        if not go_on:
            return carry
        carry = unroller.closed(parameters["body_jaxpr"], [*body, *carry])
        turns -= 1
    if not turns:
        carry = begun
    return _kept_while(unroller, parameters, test, body, carry)


def _kept_while(unroller, parameters, test, body, carry):
    inner, body, test = parameters["body_jaxpr"], shared(body), shared(test)
    moves = [inner.jaxpr.outvars[k] is not inner.jaxpr.invars[len(body) + k] for k in range(len(carry))]

    def whole(state):
        given = iter(state)
        return [next(given) if own else x for x, own in zip(carry, moves, strict=True)]

    def goes_on(state):
        (found,) = unroller.closed(parameters["cond_jaxpr"], [*test, *whole(state)])
        return found.ravel()[0] if found.dtype == object else np.bool_(found)

    def turn(state, _):
        after = unroller.closed(inner, [*body, *whole(state)])
        after = [x for x, own in zip(after, moves, strict=True) if own]
        return after, [], goes_on(after)

    moving = [x for x, own in zip(carry, moves, strict=True) if own]
    carry = [x if own else y for x, y, own in zip(carry, shared(carry), moves, strict=True)]
    variables = [x for x, own in zip(inner.jaxpr.invars[len(body) :], moves, strict=True) if own]
    state, _ = loop(unroller, inner.jaxpr, variables, turn, moving, begins=goes_on(moving))
    return whole(state)


@rule("cond")
def _cond(unroller, equation, operands):
    which, *rest = operands
    branches = equation.params["branches"]
    if which.dtype != object:
        return unroller.closed(branches[min(max(int(which), 0), len(branches) - 1)], rest)
    index = which.ravel()[0]
    graph = unroller.graph
    if graph.usual and graph.is_seldom(index):
        graph.assumed_zero.append(index)
        return unroller.closed(branches[0], rest)
    # A loop in a case that a member does not take might never end for it.
    must_be = any(map(waits, branches)) or any(isinstance(x, Stored) for x in rest)
    if must_be or sum(map(operations_of, branches)) >= loops.WORTH_A_CHOICE:
        return choice(unroller, index, branches, rest)
    entries = lambda x: x.entries(graph) if isinstance(x, Stored) else x
    results = [[*map(entries, unroller.closed(branch, rest))] for branch in branches]
    # A choice by number takes the nearest case, one between two takes what is not 0 for true.
    highest = index.dtype.type(len(branches) - 1)
    index = unroller.graph.apply("min", (unroller.graph.apply("max", (index, index.dtype.type(0))), highest))
    if len(branches) == 2:
        index = unroller.graph.apply("ne", (index, index.dtype.type(0)))
    return [unroller.each("select_n", [np.asarray(index), *cases]) for cases in zip(*results, strict=True)]


@rule("seldom")
def _seldom(unroller, equation, operands):
    (x,) = operands
    if x.dtype == object:
        unroller.graph.seldom.update(entry.index for entry in x.flat)
    return [x]


@rule("platform_index")
def _platform_index(unroller, equation, operands):
    found = [i for i, names in enumerate(equation.params["platforms"]) if names is None or unroller.platform in names]
    return [np.asarray(found[0], np.int32)]


@rule("assumed")
def _assumed(unroller, equation, operands):
    wrong = unroller.graph.wrongly_assumed()
    unroller.graph.told = len(unroller.graph.assumed_zero)
    return [np.asarray(wrong)]


@rule("in_kernel")
def _in_kernel(unroller, equation, operands):
    return [np.asarray(True)]


@rule("custom_linear_solve")
def _custom_linear_solve(unroller, equation, operands):
    lengths = equation.params["const_lengths"]
    before = lengths.matvec + lengths.vecmat
    solve = operands[before : before + lengths.solve]
    right = operands[sum(lengths) :]
    return unroller.closed(equation.params["jaxprs"].solve, [*solve, *right])
