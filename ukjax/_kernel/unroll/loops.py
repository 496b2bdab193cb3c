"""Loops and choices that stay what they are: written once, however often they run."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from ..graph.graph import INDEX, Choice, Fill, Graph, Loop, Memory
from ..graph.number import Number, Operand, same
from ..primitive import holds, kept_with_jaxpr
from ..unsupported import Unsupported
from .entries import Stored, loaded, objects

WORTH_A_LOOP = 6000
"""Operations of JAX in all turns of a loop from which on it stays a loop. A shorter one is repeated in the graph: so
zeros at some turns are seen, and nothing is looked up."""

WORTH_A_CHOICE = 60
"""Operations of JAX in all cases of a choice from which on only the one that is chosen is done."""

LARGE = 64
"""Rows of more numbers, over which a loop goes, are read where they are needed."""

State = list[Any]
"""Arrays of values or numbers, or ``Stored`` ones."""


class NotInMemory(Exception):
    """Arrays of these places in a loop's state must be in memory, or those of a choice's results must not."""


@kept_with_jaxpr
def operations_of(jaxpr: ClosedJaxpr) -> int:
    """How many operations JAX does, those of inner loops as often as they run."""
    return _operations(jaxpr.jaxpr)


@kept_with_jaxpr
def waits(jaxpr: ClosedJaxpr) -> bool:
    """Whether there is a loop in it of which nobody knows how long it is."""
    return holds(jaxpr, lambda equation: equation.primitive.name == "while")


@kept_with_jaxpr
def repeats(jaxpr: ClosedJaxpr) -> bool:
    """Whether there is a loop in it that stays a loop."""

    def is_long(equation):
        length, body = equation.params.get("length"), equation.params.get("jaxpr")
        return length is not None and body is not None and length * operations_of(body) >= WORTH_A_LOOP

    return holds(jaxpr, lambda x: x.primitive.name == "while" or x.primitive.name == "scan" and is_long(x))


def _operations(jaxpr: Jaxpr) -> int:
    total = 0
    for equation in jaxpr.eqns:
        inside = [y for x in equation.params.values() for y in (x if isinstance(x, tuple | list) else (x,))]
        inside = [x.jaxpr if isinstance(x, ClosedJaxpr) else x for x in inside]
        inside = [x for x in inside if isinstance(x, Jaxpr)]
        total += equation.params.get("length", 1) * sum(map(_operations, inside)) if inside else 1
    return total


def loop(
    unroller: Any,
    jaxpr: Jaxpr,
    variables: Sequence[Any],
    turn: Callable[[State, Number], tuple[State, list[Any], Operand | None]],
    state: State,
    length: int | None = None,
    begins: Operand | None = None,
    reverse: bool = False,
) -> tuple[State, list[Any]]:
    """The state after a loop of ``jaxpr``, and what its turns gave, stacked.

    ``variables`` are the arguments of ``jaxpr`` that are its state.
    ``turn(state, counter)`` is the new state, what to stack, and whether another turn follows. Either the ``length`` is
    known, or ``begins`` says whether there is a first turn. Turns may count ``reverse``, from the last row to the
    first.
    """
    in_memory = unroller.in_memory.setdefault(jaxpr, written_to(jaxpr, variables))
    while True:
        try:
            return _loop(unroller.graph, in_memory, turn, state, length, begins, reverse)
        except NotInMemory as places:
            in_memory |= set(places.args)


def written_to(jaxpr: Jaxpr, candidates: Sequence[Any]) -> set[int]:
    """Which of these variables of a jaxpr are arrays of which it changes entries at an index."""
    found: set[int] = set()
    place = {variable: k for k, variable in enumerate(candidates)}
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dynamic_update_slice" and not isinstance(equation.invars[0], Literal):
            if equation.invars[0] in place:
                found.add(place[equation.invars[0]])
            continue
        inner = equation.params.get("jaxpr")
        inner = inner.jaxpr if isinstance(inner, ClosedJaxpr) else inner
        if isinstance(inner, Jaxpr) and len(inner.invars) == len(equation.invars):
            passed = [x if not isinstance(x, Literal) and x in place else None for x in equation.invars]
            for k in written_to(inner, inner.invars):
                if passed[k] is not None:
                    found.add(place[passed[k]])
    return found


def _loop(graph: Graph, in_memory, turn, state, length, begins, reverse):
    assumed, told = len(graph.assumed_zero), graph.told
    state = [_own_memory(graph, x) if k in in_memory or isinstance(x, Stored) else x for k, x in enumerate(state)]
    versions = [x.memory.version if isinstance(x, Stored) else None for x in state]
    state = [x.as_others_leave_it() if isinstance(x, Stored) else x for x in state]
    begin: list[Operand] = [x for array in state if not isinstance(array, Stored) for x in objects(array).flat]
    stacked: list[Any] = []
    counted = begins is None
    for mask in [] if counted else graph.masks:  # a member that this is not for may never come to an end
        begins = graph.apply("and", (begins, mask))
    with graph.block() as block:
        counter = graph.carried(INDEX if counted else np.dtype(bool))
        if not counted:
            graph.masks = [*graph.masks, counter]
        carried = [graph.carried(x.dtype) for x in begin]
        given = iter(carried)
        inside = [x if isinstance(x, Stored) else _filled(x.shape, given) for x in state]
        place = graph.apply("sub", (INDEX.type((length or 0) - 1), counter)) if reverse else counter
        after, made, go_on = turn(inside, place)
        new = [k for k, (x, y) in enumerate(zip(inside, after, strict=True)) if isinstance(y, Stored)]
        new = [k for k in new if not isinstance(inside[k], Stored)]
        if new:
            _restore(graph, assumed, told, state, versions)
            raise NotInMemory(*new)
        following: list[Operand] = []
        copied: list[tuple[Memory, np.ndarray]] = []
        for x, y in zip(inside, after, strict=True):
            if not isinstance(x, Stored):
                following += list(objects(y).flat)
            elif not isinstance(y, Stored) or y.memory is not x.memory:
                copied.append((x.memory, loaded(graph, y)))
            elif not y.is_current:
                raise Unsupported("an array in a loop is used after an entry of it has changed")
        for x in made:
            stacked.append(_stack(graph, x, place, length))
        for memory, values in copied:  # after all that reads what was there before: two may change places
            for k, value in enumerate(values.flat):
                graph.store(memory, None, k, value)
        untold = graph.assumed_zero[max(assumed, graph.told) :]
        before = _outside(graph, untold)
        untold = [x for x in untold if x not in before]
        if untold:
            begin, (flag,) = [*begin, np.bool_(False)], (wrong := graph.carried(np.dtype(bool)),)
            carried = [*carried, wrong]
            following.append(_any(graph, flag, untold))
        if not counted:
            begin, carried = [*begin, begins], [*carried, counter]
            following.append(graph.apply("and", (counter, go_on)))
    results = [graph.carried(x.dtype) for x in begin]
    graph.state(Loop(block, carried, begin, following, results, counter, length))
    if not counted:
        begin, results = begin[:-1], results[:-1]
    graph.assumed_zero, graph.told = graph.assumed_zero[:assumed] + before, min(graph.told, assumed)
    if untold:
        graph.assumed_zero.append(results[-1])
    given = iter(results)
    left = [Stored(x.memory, x.shape) if isinstance(x, Stored) else _filled(x.shape, given) for x in state]
    return left, [x() for x in stacked]


def _restore(graph, assumed, told, state, versions):
    """What was there before a loop was tried, and what was moved before it."""
    graph.assumed_zero = graph.assumed_zero[:assumed] + _outside(graph, graph.assumed_zero[assumed:])
    graph.told = told
    for x, version in zip(state, versions, strict=True):
        if isinstance(x, Stored):
            x.memory.version = version


def _outside(graph, numbers):
    """Those that are computed outside of the innermost block."""
    return [x for x in numbers if graph.depth_of([x]) < len(graph.blocks) - 1]


def _own_memory(graph, x):
    """The array in a memory that may change."""
    if isinstance(x, Stored) and x.may_change:
        return x
    if not isinstance(x, Stored):
        return Stored(graph.memory(x, x.dtype if x.dtype != object else x.flat[0].dtype), x.shape)
    return x.copied(graph)


def _filled(shape, numbers):
    array = np.empty(int(np.prod(shape, dtype=int)), object)
    for k in range(array.size):
        array[k] = next(numbers)
    return array.reshape(shape)


def _any(graph, flag, choices):
    """Whether ``flag`` holds, or one of these is not 0."""
    for x in choices:
        flag = graph.apply("or", (flag, graph.apply("ne", (x, x.dtype.type(0)))))
    return flag


def _stack(graph, x, counter, length):
    """Store what a turn gave; afterwards, the function that is returned gives the array of all turns."""
    if x.dtype != object:  # the same at each turn
        return lambda: np.broadcast_to(x, (length, *x.shape))
    if not x.size:
        return lambda: np.empty((length, *x.shape), object)
    dtype = x.memory.dtype if isinstance(x, Stored) else objects(x).flat[0].dtype
    memory = Memory(length * x.size, dtype, len(graph.blocks) - 2)
    place = graph.apply("mul", (counter, INDEX.type(x.size)))
    if isinstance(x, Stored):
        graph.state(Fill(memory, place, x.memory, x.begin, x.size))
    else:
        for k, value in enumerate(objects(x).flat):
            graph.store(memory, place, k, value)

    def found():
        memory.lasting = True
        return Stored(memory, (length, *x.shape))

    return found


def row_of(unroller: Any, x: Any, counter: Number) -> Any:
    """Row ``counter`` of an array."""
    graph, shape = unroller.graph, x.shape[1:]
    size = int(np.prod(shape, dtype=int))
    if not size:
        return np.zeros(shape, object)
    if not isinstance(x, Stored) and x.dtype != object and all(np.array_equal(row, x[0], equal_nan=True) for row in x):
        return x[0]
    x = unroller.stored(x)
    index = graph.apply("mul", (counter, INDEX.type(size)))
    if size > LARGE and x.is_current:
        begin = index if x.begin is None else graph.apply("add", (x.begin, index))
        return Stored(x.memory, shape, x.version, begin)
    return x.at(graph, index, np.arange(size).reshape(shape))


def choice(unroller: Any, index: Operand, branches: Sequence[ClosedJaxpr], operands: State) -> list[Any]:
    """The results of the branch of this number, the first and the last for those beyond."""
    graph: Graph = unroller.graph
    if index.dtype == bool:
        chosen: list[Operand] = [graph.apply("not", (index,)), index]
    elif len(branches) == 2:
        second = graph.apply("gt", (index, index.dtype.type(0)))
        chosen = [graph.apply("not", (second,)), second]
    else:
        last = index.dtype.type(len(branches) - 1)
        index = graph.apply("min", (graph.apply("max", (index, index.dtype.type(0))), last))
        chosen = [graph.apply("eq", (index, index.dtype.type(k))) for k in range(len(branches))]
    by_entry: set[int] = set()
    while True:
        try:
            return _choice(unroller, chosen, branches, operands, by_entry)
        except NotInMemory as places:
            by_entry |= set(places.args)


def _choice(unroller, chosen, branches, operands, by_entry):
    """The same; results of these places ``by_entry`` are no arrays in memory."""
    graph = unroller.graph
    assumed, told = len(graph.assumed_zero), graph.told
    stored = [x for x in operands if isinstance(x, Stored)]
    before = [x.memory.version for x in stored]
    latest = list(before)
    cases, outcomes, flags = [], [], []
    for mask, branch in zip(chosen, branches, strict=True):
        for x, version in zip(stored, before, strict=True):
            x.memory.version = version
        with graph.block(mask, conditional=True) as block:
            found = unroller.closed(branch, operands)
            in_place = lambda x: isinstance(x, Stored) and any(x.memory is y.memory for y in stored)
            found = [x if in_place(x) and k not in by_entry else loaded(graph, x) for k, x in enumerate(found)]
            untold = graph.assumed_zero[max(assumed, graph.told) :]
            flags.append(_any(graph, np.bool_(False), untold))
        graph.assumed_zero, graph.told = graph.assumed_zero[:assumed], min(graph.told, assumed)
        cases.append(block)
        outcomes.append(found)
        latest = [max(x.memory.version, version) for x, version in zip(stored, latest, strict=True)]
    whole = lambda each: (
        isinstance(each[0], Stored) and all(isinstance(x, Stored) and x.memory is each[0].memory for x in each)
    )
    columns = list(zip(*outcomes, strict=True))
    mixed = [k for k, each in enumerate(columns) if any(isinstance(x, Stored) for x in each) and not whole(each)]
    if mixed:
        graph.told = told
        for x, version in zip(stored, before, strict=True):
            x.memory.version = version
        raise NotInMemory(*mixed)
    for x, version in zip(stored, latest, strict=True):
        x.memory.version = version
    results, given, values = [], [[] for _ in cases], []
    for each in columns:
        if isinstance(each[0], Stored):
            array = Stored(each[0].memory, each[0].shape)
            array.shared = any(x.shared for x in each)
            results.append(array)
            continue
        array = np.empty(each[0].size, object)
        for k, entries in enumerate(zip(*(x.ravel() for x in each), strict=True)):
            array[k] = _merged(graph, entries, given, values)
        results.append(array.reshape(each[0].shape))
    if any(isinstance(flag, Number) for flag in flags):
        graph.assumed_zero.append(_merged(graph, flags, given, values))
    graph.state(Choice(chosen, cases, given, values))
    return results


def _merged(graph, entries, given, values):
    """One number for what the cases give; the same operand if all give that."""
    first = entries[0]
    if all(same(x, first) for x in entries[1:]):
        return first
    value = graph.carried(first.dtype)
    values.append(value)
    for case, x in zip(given, entries, strict=True):
        case.append(x)
    return value
