"""A graph of operations on numbers, done for a whole batch by a few fused loops.

XLA on a CPU fuses operations into loops with one result each, and computes anew what two of them need. The one loop
with many results that it offers is the windowed reduction: with a window of one entry it calls its "reducer" once per
member, whose arithmetic becomes straight code that LLVM turns into vector instructions. One such loop per
``SEGMENT`` operations keeps compilation quick; what a later one needs goes between them by memory.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from .graph import INPUT, Graph, Number, Operand, TooLarge
from .schedule import alive, scheduled

SEGMENT = 1500
"""Operations per loop: LLVM's time grows faster than the number, memory traffic with the number of loops."""

HELD = 6_000_000
"""Bytes that the values still needed may take before members are done in blocks, of at least ``SMALLEST``: they are to
stay in a core's caches."""

SMALLEST = 136

STRIDE = 50
"""A loop may end after every so many operations."""

ROWS = 128
"""Rows of numbers that one loop reads or writes before they begin to push each other out of the nearest cache."""

LOOP, CROWDED = 60, 20
"""What one more loop costs, and each row above ``ROWS``, in operations."""

UNPACKED = 48
"""Numbers taken from a vector by one loop: its time grows with their square."""


def evaluate(
    graph: Graph, results: Sequence[Operand], common: dict[int, Array], own: dict[int, Array], size: int
) -> list[Array]:
    """The ``results``, each of shape (size,), or () where all members have it in common.

    ``common`` and ``own`` are the graph's inputs: numbers () for all members, and arrays (size,) of one each. Raises
    ``TooLarge`` where that takes more operations than the graph allows.
    """
    needed = needed_for(graph, results)
    if len(needed) > graph.most:
        raise TooLarge
    needed = scheduled(needed, results)
    block = HELD // (8 * max(1, int(np.max(alive(needed, results)))))
    if size <= block or size <= 2 * SMALLEST:
        return _in_one(graph, needed, results, common, own, size)
    blocks = -(-size // max(block, SMALLEST))
    block = spread(-(-size // blocks))
    more = blocks * block - size
    cut = {i: jnp.pad(x, (0, more), mode="edge").reshape(blocks, block) for i, x in own.items()}
    every = lambda part: [jnp.broadcast_to(x, (block,)) for x in _in_one(graph, needed, results, common, part, block)]
    return [x.reshape(blocks * block)[:size] for x in lax.map(every, cut)]


def spread(members: int) -> int:
    """A length for the rows of numbers, at least ``members``, with which row upon row does not meet in one place of
    the processor's caches: as powers of two would."""
    return members if members < 256 else -(-(members - 8) // 16) * 16 + 8


def _in_one(graph, needed, results, common, own, size):
    """The results for all members at once."""
    values: dict[int, Array] = common | own
    varying = set(own)
    for i, operands in needed.items():
        if any(isinstance(x, Number) and x.index in varying for x in operands):
            varying.add(i)
    todo = [i for i in needed if graph.operations[i].name != INPUT]
    final = {x.index for x in results if isinstance(x, Number)}
    used = {x.index for i in varying if i in needed for x in needed[i] if isinstance(x, Number)}
    _run_part(graph, needed, [i for i in todo if i not in varying], values, final | used, set(), 1)
    _run_part(graph, needed, [i for i in todo if i in varying], values, final, varying, size)
    # A result may be an input as it came, or known from the start.
    return [values[x.index] if isinstance(x, Number) else jnp.asarray(x) for x in results]


def needed_for(graph: Graph, results: Sequence[Operand]) -> dict[int, tuple[Operand, ...]]:
    """The operations that lead to ``results``, in order, and their operands."""
    needed: dict[int, tuple[Operand, ...]] = {}
    wanted = {x.index for x in results if isinstance(x, Number)}
    for i in range(len(graph.operations) - 1, -1, -1):
        if i in wanted:
            needed[i] = graph.operations[i].operands
            wanted.update(x.index for x in needed[i] if isinstance(x, Number))
    return dict(reversed(needed.items()))


def _run_part(graph, needed, todo, values, final, varying, size):
    """Do the operations ``todo``, in loops over ``size`` members, and put what others need into ``values``."""
    last_use = {}
    for k, i in enumerate(todo):
        for x in needed[i]:
            if isinstance(x, Number):
                last_use[x.index] = k
    for start, stop in _cuts(todo, needed, last_use, final):
        inside = todo[start:stop]
        members = set(inside)
        outputs = [i for i in inside if i in final or last_use.get(i, -1) >= stop]
        taken = dict.fromkeys(
            x.index for i in inside for x in needed[i] if isinstance(x, Number) and x.index not in members
        )
        if not outputs:
            continue
        own = [i for i in taken if i in varying]
        common = [i for i in taken if i not in varying]
        found = _loop(graph, needed, inside, outputs, own, common, values, size)
        values.update(zip(outputs, found if varying else [x[0] for x in found], strict=True))


def unpack(x: Array) -> list[Array]:
    """The entries of x (k,), each a number.

    As slices, each would be an operation of its own, slower than many a kernel. One windowed reduction over all of x
    has them all: result i is the entry that is met at place i.
    """
    if x.size > UNPACKED:
        return unpack(x[:UNPACKED]) + unpack(x[UNPACKED:])
    if x.size < 2:
        return list(x)
    place = jnp.arange(x.size, dtype=jnp.int32)

    def keep(found, met):
        value, here = met[0], met[-1]
        return *(lax.select(here == i, value, old) for i, old in enumerate(found[:-1])), here

    zeros = (*(jnp.zeros((), x.dtype),) * x.size, jnp.zeros((), place.dtype))
    found = lax.reduce_window((*(x,) * x.size, place), zeros, keep, (x.size,), (1,), "VALID")
    return [value[0] for value in found[:-1]]


def _cuts(todo, needed, last_use, final):
    """Where to begin and end each loop: where the fewest rows of numbers go in and out, least of all more than
    ``ROWS`` at once."""
    count = len(todo)
    marks = np.append(np.arange(0, count, STRIDE), count)
    place = {i: k for k, i in enumerate(todo)}
    # Of every value, where it is made (inputs: before all), and the places of its uses.
    uses: dict[int, list[int]] = {}
    for k, i in enumerate(todo):
        for x in needed[i]:
            if isinstance(x, Number):
                uses.setdefault(x.index, []).append(k)
    pairs = np.array([(place.get(i, -1), k) for i, ks in uses.items() for k in ks], int).reshape(-1, 2)
    source = np.array([i for i, ks in uses.items() for _ in ks], int)
    last = np.array([count if i in final else last_use.get(i, k) for k, i in enumerate(todo)], int)

    best = np.full(marks.size, np.inf)
    best[0], previous = 0.0, np.zeros(marks.size, int)
    for a in range(marks.size - 1):
        start, stops = marks[a], marks[a + 1 : a + 1 + SEGMENT // STRIDE]
        inside = (pairs[:, 0] < start) & (pairs[:, 1] >= start) & (pairs[:, 1] < stops[-1])
        _, first = np.unique(source[inside], return_index=True)  # uses are in order
        taken = np.searchsorted(np.sort(pairs[inside, 1][first]), stops)
        given = np.array([np.sum(last[start:stop] >= stop) for stop in stops])
        rows = np.maximum(taken, given)
        cost = best[a] + LOOP + 2 * rows + CROWDED * np.maximum(0, rows - ROWS)
        better = cost < best[a + 1 : a + 1 + stops.size]
        best[a + 1 : a + 1 + stops.size][better] = cost[better]
        previous[a + 1 : a + 1 + stops.size][better] = a
    cuts, end = [], marks.size - 1
    while end > 0:
        cuts.append((int(marks[previous[end]]), int(marks[end])))
        end = previous[end]
    return cuts[::-1]


def _loop(graph, needed, inside, outputs, own, common, values, size):
    """One windowed reduction. Its operands carry what members have of their own, its initial values, which the
    reducer sees as its first argument, what they have in common; every place has one of each and a result."""
    kinds = {i: graph.dtypes[i] for i in (*own, *common, *outputs)}
    carried = {i: _truth(kinds.values()) if kind == np.dtype(bool) else kind for i, kind in kinds.items()}
    places: list[tuple[np.dtype, int | None, int | None, int | None]] = []
    for kind in dict.fromkeys(carried.values()):
        columns = [[i for i in part if carried[i] == kind] for part in (own, common, outputs)]
        for k in range(max(map(len, columns))):
            member, shared, result = (column[k] if k < len(column) else None for column in columns)
            places.append((kind, member, shared, result))
    given = lambda kind, i, shape: jnp.zeros(shape, kind) if i is None else values[i].reshape(shape).astype(kind)
    operands = [given(kind, i, size) for kind, i, _, _ in places]
    initial = [given(kind, i, ()) for kind, _, i, _ in places]
    members = set(inside)

    def reducer(shared, single):
        known = {place[1]: x for place, x in zip(places, single, strict=True)}
        known |= {place[2]: x for place, x in zip(places, shared, strict=True) if place[2] is not None}
        known = {i: x.astype(graph.dtypes[i]) for i, x in known.items() if i is not None}
        for i in inside:
            operands = needed[i]
            arguments = [known[x.index] if isinstance(x, Number) else x for x in operands]
            if graph.operations[i].name == "div" and _is_root(graph, operands[1], members):
                (square,) = needed[operands[1].index]
                known[i] = lax.mul(jnp.asarray(arguments[0]), _inverse_root(known[square.index]))
            else:
                known[i] = _do(graph.operations[i], arguments)
        return tuple(jnp.zeros((), kind) if i is None else known[i].astype(kind) for kind, _, _, i in places)

    one = (1,)
    found = lax.reduce_window(tuple(operands), tuple(initial), reducer, one, one, "VALID")
    at = {place[3]: x for place, x in zip(places, found, strict=True)}
    return [at[i].astype(graph.dtypes[i]) for i in outputs]


def _is_root(graph, x, members):
    """Whether x is the root of a number, taken in the same loop: XLA would make another operation of p / √x."""
    return isinstance(x, Number) and x.index in members and graph.operations[x.index].name == "sqrt"


def _truth(kinds):
    """As what truth values go in and out beside numbers of these kinds: as the widest. With a byte each, LLVM would
    take as many members at a time as there are bytes in a register, which leaves no room for their numbers."""
    numbers = (kind for kind in kinds if np.issubdtype(kind, np.floating))
    return max(numbers, key=lambda kind: kind.itemsize, default=np.dtype(np.float32))


def _do(operation, arguments):
    function = FUNCTIONS.get(operation.name) or getattr(lax, operation.name)
    return function(*map(jnp.asarray, arguments), **operation.parameters)


def _inverse_root(x):
    """As √(1 / x), which LLVM makes vector instructions of. What XLA has for 1 / √x, and puts in the place of that
    quotient, keeps the whole loop around it from becoming such, but on processors with AVX-512."""
    return lax.sqrt(lax.div(jnp.ones((), x.dtype), x))


FUNCTIONS = {
    "and": lax.bitwise_and,
    "or": lax.bitwise_or,
    "xor": lax.bitwise_xor,
    "not": lax.bitwise_not,
    "rsqrt": _inverse_root,
}
