"""Loops and choices in the graph: a body or branch is evaluated once, however often it runs.

Entries of the loop state are carried numbers, or the state is an array in memory. An array must be in memory if an
iteration updates entries at computed indices; this is known only after the body is evaluated. ``emit_loop`` then tries
again with more arrays in memory.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from ..._jaxpr.nested import any_equation, jaxprs_in
from ..graph.graph import INDEX, Choice, Fill, Graph, Loop, Memory
from ..graph.number import Number, Operand, same
from ..primitive import cached_per_jaxpr
from ..unsupported import Unsupported
from .entries import Stored, as_objects, loaded

MIN_LOOP_OPERATIONS = 6000
"""Smallest number of JAX operations in all iterations for which a loop stays a loop. A shorter loop is unrolled, which
finds the zeros of single iterations and needs no indexing."""

MIN_CHOICE_OPERATIONS = 60
"""Smallest number of JAX operations in all branches for which a conditional executes one branch; below, all are
executed."""

MAX_UNPACKED_SIZE = 64
"""Scanned rows with more entries stay in memory, and entries are loaded where they are used."""

State = list[Any]
"""Arrays of constants or numbers, or ``Stored`` arrays."""


class StorageMismatch(Exception):
    """Arrays at these positions need the other kind of storage.

    In a loop's state they must be in memory; among a choice's results they must not.
    """


def count_operations(jaxpr: ClosedJaxpr) -> int:
    """The number of JAX operations; those of inner loops count once per iteration."""
    return _operations(jaxpr.jaxpr)


def count_equations(jaxpr: ClosedJaxpr) -> int:
    """The number of equations, those of inner jaxprs included; loops count once."""
    return _operations(jaxpr.jaxpr, True)


@cached_per_jaxpr
def has_while_loop(jaxpr: ClosedJaxpr) -> bool:
    """Whether a jaxpr contains a loop of unknown length."""
    return any_equation(jaxpr, lambda equation: equation.primitive.name == "while")


@cached_per_jaxpr
def has_kept_loop(jaxpr: ClosedJaxpr) -> bool:
    """Whether a jaxpr contains a loop that is not unrolled."""

    def is_long(equation):
        length, body = equation.params.get("length"), equation.params.get("jaxpr")
        return length is not None and body is not None and length * count_operations(body) >= MIN_LOOP_OPERATIONS

    return any_equation(jaxpr, lambda x: x.primitive.name == "while" or x.primitive.name == "scan" and is_long(x))


@cached_per_jaxpr
def _operations(jaxpr: Jaxpr, loops_once: bool = False) -> int:
    total = 0
    for equation in jaxpr.eqns:
        inner = [x.jaxpr if isinstance(x, ClosedJaxpr) else x for x in jaxprs_in(equation)]
        repeated = 1 if loops_once else equation.params.get("length", 1)
        total += repeated * sum(_operations(x, loops_once) for x in inner) if inner else 1
    return total


def emit_loop(
    unroller: Any,
    jaxpr: Jaxpr,
    variables: Sequence[Any],
    iterate: Callable[[State, Number], tuple[State, list[Any], Operand | None]],
    state: State,
    length: int | None = None,
    is_entered: Operand | None = None,
    reverse: bool = False,
) -> tuple[State, list[Any]]:
    """Add a loop to the graph. Returns the state after it, and the stacked outputs of its iterations.

    jaxpr: the body; ``variables`` are its arguments that are the loop state.
    iterate: ``iterate(state, counter)`` returns the new state, the outputs, and whether another iteration follows.
    length, is_entered: the number of iterations, or whether there is a first one.
    reverse: the counter runs from the last row to the first.
    """
    in_memory = unroller.in_memory.setdefault(jaxpr, updated_in_place(jaxpr, variables))
    while True:
        try:
            return _loop(unroller.graph, in_memory, iterate, state, length, is_entered, reverse)
        except StorageMismatch as positions:
            in_memory |= set(positions.args)


def updated_in_place(jaxpr: Jaxpr, candidates: Sequence[Any]) -> set[int]:
    """The indices of ``candidates``, variables of a jaxpr, that it updates by ``dynamic_update_slice``."""
    updated: set[int] = set()
    index = {variable: k for k, variable in enumerate(candidates)}
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dynamic_update_slice" and not isinstance(equation.invars[0], Literal):
            if equation.invars[0] in index:
                updated.add(index[equation.invars[0]])
            continue
        inner = equation.params.get("jaxpr")
        inner = inner.jaxpr if isinstance(inner, ClosedJaxpr) else inner
        if isinstance(inner, Jaxpr) and len(inner.invars) == len(equation.invars):
            passed = [x if not isinstance(x, Literal) and x in index else None for x in equation.invars]
            for k in updated_in_place(inner, inner.invars):
                if passed[k] is not None:
                    updated.add(index[passed[k]])
    return updated


def _loop(graph: Graph, in_memory, iterate, state, length, is_entered, reverse):
    """Add a loop; ``in_memory`` are the indices of the arrays of the state that are in memory."""
    num_assumed, num_checked = len(graph.assumed_zero), graph.num_checked
    state = [_own_memory(graph, x) if k in in_memory or isinstance(x, Stored) else x for k, x in enumerate(state)]
    versions = [x.memory.version if isinstance(x, Stored) else None for x in state]
    state = [x.reloaded() if isinstance(x, Stored) else x for x in state]
    begin: list[Operand] = [x for array in state if not isinstance(array, Stored) for x in as_objects(array).flat]
    stacked: list[Any] = []
    is_counted = is_entered is None
    for mask in [] if is_counted else graph.masks:  # for masked members the loop might never end
        is_entered = graph.apply("and", (is_entered, mask))
    with graph.block() as block:
        counter = graph.carried(INDEX if is_counted else np.dtype(bool))
        if not is_counted:
            graph.masks = [*graph.masks, counter]
        carried = [graph.carried(x.dtype) for x in begin]
        numbers = iter(carried)
        inside = [x if isinstance(x, Stored) else _filled(x.shape, numbers) for x in state]
        row = graph.apply("sub", (INDEX.type((length or 0) - 1), counter)) if reverse else counter
        after, outputs, continues = iterate(inside, row)
        new = [k for k, (x, y) in enumerate(zip(inside, after, strict=True)) if isinstance(y, Stored)]
        new = [k for k in new if not isinstance(inside[k], Stored)]
        if new:
            _restore(graph, num_assumed, num_checked, state, versions)
            raise StorageMismatch(*new)
        following: list[Operand] = []
        copies: list[tuple[Memory, np.ndarray]] = []
        for x, y in zip(inside, after, strict=True):
            if not isinstance(x, Stored):
                following += list(as_objects(y).flat)
            elif not isinstance(y, Stored) or y.memory is not x.memory:
                copies.append((x.memory, loaded(graph, y)))
            elif not y.is_current:
                raise Unsupported("an array in a loop is used after an entry of it was updated")
        for x in outputs:
            stacked.append(_stack(graph, x, row, length))
        for memory, values in copies:  # after all loads of old values: two arrays may be exchanged
            for k, value in enumerate(values.flat):
                graph.store(memory, None, k, value)
        # Assumptions inside the block that the function has not read: one carried flag reports them after the loop.
        unread = graph.assumed_zero[max(num_assumed, graph.num_checked) :]
        before = _outside(graph, unread)
        unread = [x for x in unread if x not in before]
        if unread:
            begin, (flag,) = [*begin, np.bool_(False)], (failed := graph.carried(np.dtype(bool)),)
            carried = [*carried, failed]
            following.append(_any_nonzero(graph, flag, unread))
        if not is_counted:
            begin, carried = [*begin, is_entered], [*carried, counter]
            following.append(graph.apply("and", (counter, continues)))
    results = [graph.carried(x.dtype) for x in begin]
    graph.state(Loop(block, carried, begin, following, results, counter, length))
    if not is_counted:
        begin, results = begin[:-1], results[:-1]
    graph.assumed_zero = graph.assumed_zero[:num_assumed] + before
    graph.num_checked = min(graph.num_checked, num_assumed)
    if unread:
        graph.assumed_zero.append(results[-1])
    numbers = iter(results)
    final = [Stored(x.memory, x.shape) if isinstance(x, Stored) else _filled(x.shape, numbers) for x in state]
    return final, [x() for x in stacked]


def _restore(graph, num_assumed, num_checked, state, versions):
    """Undo a failed attempt to add a loop; assumptions that were moved before the loop stay."""
    graph.assumed_zero = graph.assumed_zero[:num_assumed] + _outside(graph, graph.assumed_zero[num_assumed:])
    graph.num_checked = num_checked
    for x, version in zip(state, versions, strict=True):
        if isinstance(x, Stored):
            x.memory.version = version


def _outside(graph, numbers):
    """The numbers that are computed outside of the innermost block."""
    return [x for x in numbers if graph.depth_of([x]) < len(graph.blocks) - 1]


def _own_memory(graph, x):
    """The array in a memory that may be written; a copy if necessary."""
    if isinstance(x, Stored) and x.is_writable:
        return x
    if not isinstance(x, Stored):
        return Stored(graph.memory(x, x.dtype if x.dtype != object else x.flat[0].dtype), x.shape)
    return x.copy(graph)


def _filled(shape, numbers):
    """An object array of the next ``numbers`` of an iterator."""
    array = np.empty(int(np.prod(shape, dtype=int)), object)
    for k in range(array.size):
        array[k] = next(numbers)
    return array.reshape(shape)


def _any_nonzero(graph, flag, numbers):
    """Whether ``flag`` is true or one of ``numbers`` is not 0."""
    for x in numbers:
        flag = graph.apply("or", (flag, graph.apply("ne", (x, x.dtype.type(0)))))
    return flag


def _stack(graph, x, row, length):
    """Store the output of one iteration. Returns a function that gives the stacked array after the loop."""
    if x.dtype != object:  # constant: the same in each iteration
        return lambda: np.broadcast_to(x, (length, *x.shape))
    if not x.size:
        return lambda: np.empty((length, *x.shape), object)
    dtype = x.memory.dtype if isinstance(x, Stored) else as_objects(x).flat[0].dtype
    memory = Memory(length * x.size, dtype, len(graph.blocks) - 2)
    start = graph.apply("mul", (row, INDEX.type(x.size)))
    if isinstance(x, Stored):
        graph.state(Fill(memory, start, x.memory, x.begin, x.size))
    else:
        for k, value in enumerate(as_objects(x).flat):
            graph.store(memory, start, k, value)

    def stacked():
        memory.is_constant = True
        return Stored(memory, (length, *x.shape))

    return stacked


def load_row(unroller: Any, x: Any, counter: Number) -> Any:
    """Row ``counter`` of an array."""
    graph, shape = unroller.graph, x.shape[1:]
    size = int(np.prod(shape, dtype=int))
    if not size:
        return np.zeros(shape, object)
    if not isinstance(x, Stored) and x.dtype != object and all(np.array_equal(row, x[0], equal_nan=True) for row in x):
        return x[0]
    x = unroller.as_stored(x)
    index = graph.apply("mul", (counter, INDEX.type(size)))
    if size > MAX_UNPACKED_SIZE and x.is_current:
        begin = index if x.begin is None else graph.apply("add", (x.begin, index))
        return Stored(x.memory, shape, x.version, begin)
    return x.at(graph, index, np.arange(size).reshape(shape))


def emit_choice(unroller: Any, index: Operand, branches: Sequence[ClosedJaxpr], operands: State) -> list[Any]:
    """Add a choice to the graph. Returns the results of branch ``index``, which is clipped to the valid range."""
    graph: Graph = unroller.graph
    if index.dtype == bool:
        masks: list[Operand] = [graph.apply("not", (index,)), index]
    elif len(branches) == 2:
        is_second = graph.apply("gt", (index, index.dtype.type(0)))
        masks = [graph.apply("not", (is_second,)), is_second]
    else:
        last = index.dtype.type(len(branches) - 1)
        index = graph.apply("min", (graph.apply("max", (index, index.dtype.type(0))), last))
        masks = [graph.apply("eq", (index, index.dtype.type(k))) for k in range(len(branches))]
    by_entry: set[int] = set()
    while True:
        try:
            return _choice(unroller, masks, branches, operands, by_entry)
        except StorageMismatch as positions:
            by_entry |= set(positions.args)


def _choice(unroller, masks, branches, operands, by_entry):
    """Add a choice; results at the positions ``by_entry`` are merged entry by entry, not as arrays in memory."""
    graph = unroller.graph
    num_assumed, num_checked = len(graph.assumed_zero), graph.num_checked
    stored = [x for x in operands if isinstance(x, Stored)]
    before = [x.memory.version for x in stored]
    latest = list(before)
    cases, results_of_cases, flags = [], [], []
    for mask, branch in zip(masks, branches, strict=True):
        for x, version in zip(stored, before, strict=True):
            x.memory.version = version
        with graph.block(mask, conditional=True) as block:
            results = unroller.closed(branch, operands)
            is_in_place = lambda x: isinstance(x, Stored) and any(x.memory is y.memory for y in stored)
            results = [x if is_in_place(x) and k not in by_entry else loaded(graph, x) for k, x in enumerate(results)]
            unread = graph.assumed_zero[max(num_assumed, graph.num_checked) :]
            flags.append(_any_nonzero(graph, np.bool_(False), unread))
        graph.assumed_zero, graph.num_checked = graph.assumed_zero[:num_assumed], min(graph.num_checked, num_assumed)
        cases.append(block)
        results_of_cases.append(results)
        latest = [max(x.memory.version, version) for x, version in zip(stored, latest, strict=True)]
    in_one_memory = lambda column: (
        isinstance(column[0], Stored) and all(isinstance(x, Stored) and x.memory is column[0].memory for x in column)
    )
    columns = list(zip(*results_of_cases, strict=True))
    mixed = [k for k, xs in enumerate(columns) if any(isinstance(x, Stored) for x in xs) and not in_one_memory(xs)]
    if mixed:
        graph.num_checked = num_checked
        for x, version in zip(stored, before, strict=True):
            x.memory.version = version
        raise StorageMismatch(*mixed)
    for x, version in zip(stored, latest, strict=True):
        x.memory.version = version
    merged, outcomes, values = [], [[] for _ in cases], []
    for column in columns:
        if isinstance(column[0], Stored):
            array = Stored(column[0].memory, column[0].shape)
            array.shared = any(x.shared for x in column)
            merged.append(array)
            continue
        array = np.empty(column[0].size, object)
        for k, entries in enumerate(zip(*(x.ravel() for x in column), strict=True)):
            array[k] = _merge(graph, entries, outcomes, values)
        merged.append(array.reshape(column[0].shape))
    if any(isinstance(flag, Number) for flag in flags):
        graph.assumed_zero.append(_merge(graph, flags, outcomes, values))
    graph.state(Choice(masks, cases, outcomes, values))
    return merged


def _merge(graph, entries, outcomes, values):
    """The number that has the value of the chosen branch; if all ``entries`` are equal, the first one.

    A new number is added to ``values``, and the entry of each branch to ``outcomes``.
    """
    first = entries[0]
    if all(same(x, first) for x in entries[1:]):
        return first
    value = graph.carried(first.dtype)
    values.append(value)
    for outcome, x in zip(outcomes, entries, strict=True):
        outcome.append(x)
    return value
