"""Rules for calls, loops, conditionals and the unroller's hints."""

import contextlib
import math

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr

from . import loops
from .entries import Stored, are_known, shared, with_common_dtype
from .loops import count_operations, emit_choice, emit_loop, has_while_loop, load_row
from .rule import rule

CALLED_JAXPR = {
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
    "arithmetic_or_library": "arithmetic",
}
"""Primitives that call one jaxpr, and the parameter that holds it. Some have several names, from versions of JAX."""

CONTROL_FLOW = frozenset({"scan", "while", "cond", *CALLED_JAXPR})
"""Primitives that contain jaxprs."""


@rule(*CALLED_JAXPR)
def _call(unroller, equation, operands):
    inner = equation.params[CALLED_JAXPR[equation.primitive.name]]
    return unroller.closed(inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ()), operands)


@rule("call_hi_primitive")
def _expand(unroller, equation, operands):
    """In jax 0.12 and later, a function such as ``jnp.searchsorted`` is one primitive with a method ``expand``."""
    primitive = equation.params["_prim"]

    def expanded(*leaves):
        return jax.tree.leaves(primitive.expand(*jax.tree.unflatten(primitive.in_tree, leaves)))

    shapes = [jax.ShapeDtypeStruct(x.aval.shape, x.aval.dtype) for x in equation.invars]
    return unroller.closed(jax.make_jaxpr(expanded)(*shapes), operands)


@rule("scan")
def _scan(unroller, equation, operands):
    """Unroll a short scan; a long one becomes a loop, and in a rare branch every one.

    A scan of two iterations that read different constants is always unrolled, for example if the first iteration does
    more. Its derivative reads the values that the iterations saved. Some of them are constants of the model, which stay
    constants only without a loop.
    """
    parameters = equation.params
    if "ft_in" in parameters:  # jax 0.12
        num_consts, num_carry, _ = map(len, parameters["ft_in"].unpack())
    else:
        num_consts, num_carry = parameters["num_consts"], parameters["num_carry"]
    consts, carry, xs = (
        operands[:num_consts],
        operands[num_consts : num_consts + num_carry],
        operands[num_consts + num_carry :],
    )
    length, body = parameters["length"], parameters["jaxpr"]
    is_long = length > 1 and length * count_operations(body) >= unroller.min_loop_operations
    if is_long and unroller.is_symbolic and not _is_of_two_kinds(length, xs):
        return _scan_as_loop(unroller, parameters, consts, carry, xs)
    xs = [x.entries(unroller.graph) if isinstance(x, Stored) else x for x in xs]
    columns: list[list[np.ndarray]] = [[] for _ in parameters["jaxpr"].out_avals[num_carry:]]
    for i in reversed(range(length)) if parameters["reverse"] else range(length):
        out = unroller.closed(parameters["jaxpr"], [*consts, *carry, *(np.asarray(x[i]) for x in xs)])
        carry = out[:num_carry]
        for column, value in zip(columns, out[num_carry:], strict=True):
            column.append(value)
    if parameters["reverse"]:
        columns = [column[::-1] for column in columns]
    empty = [np.zeros((0, *a.shape), a.dtype) for a in parameters["jaxpr"].out_avals[num_carry:]]
    loaded = lambda x: x.entries(unroller.graph) if isinstance(x, Stored) else x
    stacked = [
        np.stack(with_common_dtype(*map(loaded, column))) if column else no_rows
        for column, no_rows in zip(columns, empty, strict=True)
    ]
    return [*carry, *stacked]


def _is_of_two_kinds(length, xs):
    """Whether there are two iterations, and a scanned array has different constants for them."""
    rows = [x for x in xs if not isinstance(x, Stored) and are_known(x)]
    return length == 2 and not all(np.array_equal(*x, equal_nan=True) for x in rows)


def _scan_as_loop(unroller, parameters, consts, carry, xs):
    length, body = parameters["length"], parameters["jaxpr"]
    num_consts, consts, carry = len(consts), shared(consts), list(carry)
    # Carried values that no iteration changes are not part of the loop state.
    is_changed = [body.jaxpr.outvars[k] is not body.jaxpr.invars[num_consts + k] for k in range(len(carry))]

    def iterate(state, counter):
        values = iter(state)
        full_carry = [next(values) if changed else x for x, changed in zip(carry, is_changed, strict=True)]
        out = unroller.closed(body, [*consts, *full_carry, *(load_row(unroller, x, counter) for x in xs)])
        new_state = [x for x, changed in zip(out, is_changed, strict=False) if changed]
        return new_state, out[len(carry) :], None

    start = [x for x, changed in zip(carry, is_changed, strict=True) if changed]
    carry = [x if changed else y for x, y, changed in zip(carry, shared(carry), is_changed, strict=True)]
    variables = [x for x, changed in zip(body.jaxpr.invars[num_consts:], is_changed, strict=False) if changed]
    state, stacked = emit_loop(unroller, body.jaxpr, variables, iterate, start, length, reverse=parameters["reverse"])
    values = iter(state)
    return [*(next(values) if changed else x for x, changed in zip(carry, is_changed, strict=True)), *stacked]


@rule("while")
def _while(unroller, equation, operands):
    """Unroll as long as the condition is constant; otherwise emit a loop."""
    parameters = equation.params
    a, b = parameters["cond_nconsts"], parameters["body_nconsts"]
    cond_consts, body_consts, carry = operands[:a], operands[a : a + b], operands[a + b :]
    remaining = max(1, unroller.min_loop_operations // max(1, count_operations(parameters["body_jaxpr"])))
    remaining = remaining if unroller.is_symbolic else math.inf
    start, carry = carry, shared(carry)  # shared: iterations that are tried write to copies
    while remaining:
        (continues,) = unroller.closed(parameters["cond_jaxpr"], [*cond_consts, *carry])
        if continues.dtype == object:
            break
        if not continues:
            return carry
        carry = unroller.closed(parameters["body_jaxpr"], [*body_consts, *carry])
        remaining -= 1
    if not remaining:
        carry = start
    return _while_as_loop(unroller, parameters, cond_consts, body_consts, carry)


def _while_as_loop(unroller, parameters, cond_consts, body_consts, carry):
    body, body_consts, cond_consts = parameters["body_jaxpr"], shared(body_consts), shared(cond_consts)
    # Carried values that no iteration changes are not part of the loop state.
    is_changed = [body.jaxpr.outvars[k] is not body.jaxpr.invars[len(body_consts) + k] for k in range(len(carry))]

    def full_carry(state):
        values = iter(state)
        return [next(values) if changed else x for x, changed in zip(carry, is_changed, strict=True)]

    def continues(state):
        (condition,) = unroller.closed(parameters["cond_jaxpr"], [*cond_consts, *full_carry(state)])
        return condition.ravel()[0] if condition.dtype == object else np.bool_(condition)

    def iterate(state, _):
        new_state = unroller.closed(body, [*body_consts, *full_carry(state)])
        new_state = [x for x, changed in zip(new_state, is_changed, strict=True) if changed]
        return new_state, [], continues(new_state)

    start = [x for x, changed in zip(carry, is_changed, strict=True) if changed]
    carry = [x if changed else y for x, y, changed in zip(carry, shared(carry), is_changed, strict=True)]
    variables = [x for x, changed in zip(body.jaxpr.invars[len(body_consts) :], is_changed, strict=True) if changed]
    state, _ = emit_loop(unroller, body.jaxpr, variables, iterate, start, is_entered=continues(start))
    return full_carry(state)


@rule("cond")
def _cond(unroller, equation, operands):
    """Evaluate one branch if the index is constant or the choice is rare.

    Otherwise emit a choice, or, for few operations, evaluate all branches and select.
    """
    which, *rest = operands
    branches = equation.params["branches"]
    if which.dtype != object:
        return unroller.closed(branches[min(max(int(which), 0), len(branches) - 1)], rest)
    index = which.ravel()[0]
    graph = unroller.graph
    if graph.usual_only and graph.is_rarely_true(index):
        graph.assumed_zero.append(index)
        return unroller.closed(branches[0], rest)
    # A while loop in a branch that a member does not take might never end for that member.
    is_required = any(map(has_while_loop, branches)) or any(isinstance(x, Stored) for x in rest)
    if is_required or sum(map(count_operations, branches)) >= loops.MIN_CHOICE_OPERATIONS:
        with unroller.keeping_loops() if graph.is_rarely_true(index) else contextlib.nullcontext():
            return emit_choice(unroller, index, branches, rest)
    entries = lambda x: x.entries(graph) if isinstance(x, Stored) else x
    results = [[*map(entries, unroller.closed(branch, rest))] for branch in branches]
    # lax.switch clips the index; with two branches, an index that is not 0 selects the second one.
    last = index.dtype.type(len(branches) - 1)
    index = unroller.graph.apply("min", (unroller.graph.apply("max", (index, index.dtype.type(0))), last))
    if len(branches) == 2:
        index = unroller.graph.apply("ne", (index, index.dtype.type(0)))
    return [unroller.elementwise("select_n", [np.asarray(index), *cases]) for cases in zip(*results, strict=True)]


@rule("rare")
def _rare(unroller, equation, operands):
    (x,) = operands
    if x.dtype == object:
        unroller.graph.rarely_true.update(entry.index for entry in x.flat)
    return [x]


@rule("platform_index")
def _platform_index(unroller, equation, operands):
    matches = [i for i, names in enumerate(equation.params["platforms"]) if names is None or unroller.platform in names]
    return [np.asarray(matches[0], np.int32)]


@rule("assumption_failed")
def _assumption_failed(unroller, equation, operands):
    if not unroller.is_symbolic:
        return [np.asarray(False)]
    failed = unroller.graph.failed_assumption()
    unroller.graph.num_checked = len(unroller.graph.assumed_zero)
    return [np.asarray(failed)]


@rule("in_kernel")
def _in_kernel(unroller, equation, operands):
    return [np.asarray(unroller.is_symbolic)]


@rule("custom_linear_solve")
def _custom_linear_solve(unroller, equation, operands):
    lengths = equation.params["const_lengths"]
    before = lengths.matvec + lengths.vecmat
    solve = operands[before : before + lengths.solve]
    right_hand_side = operands[sum(lengths) :]
    return unroller.closed(equation.params["jaxprs"].solve, [*solve, *right_hand_side])
