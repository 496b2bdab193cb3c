"""Prepare a graph for code generation.

Unneeded operations are removed, negations and products are merged into sums, and statements are grouped into runs.
Values that depend only on shared arguments are computed once; all others for each chunk of members.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..graph.graph import LOAD, Block, Choice, Fill, Graph, Loop, Memory, Store
from ..graph.number import Number, Operand
from ..unroll.entries import Stored, loaded
from .schedule import scheduled

FUSED = np.dtype(np.float64), np.dtype(np.float32)
"""Types with fused multiply-add operations."""


class Run(NamedTuple):
    """A sequence of operations and stores without loops or choices."""

    items: list[int | Store | Fill]


class LoopNode(NamedTuple):
    """A loop without its unneeded numbers.

    Attributes
    ----------
    loop
        The statement.
    carried, begin, following, results
        Needed entries of the lists of the statement.
    body
        Runs, loops and choices of an iteration.
    """

    loop: Loop
    carried: list[Number]
    begin: list[Operand]
    following: list[Operand]
    results: list[Number]
    body: list[Any]


class ChoiceNode(NamedTuple):
    """A choice without its unneeded results.

    Attributes
    ----------
    masks
        Truth value of each case.
    cases
        Runs, loops and choices of each case.
    outcomes
        Values that each case gives to the results.
    results
        Needed results.
    """

    masks: list[Operand]
    cases: list[list[Any]]
    outcomes: list[list[Operand]]
    results: list[Number]


class Program:
    """Code that stores ``results`` in the outputs of a kernel.

    Attributes
    ----------
    prologue
        Nodes (runs, loops, choices) that are executed once for all members.
    per_chunk
        Nodes that are executed for each chunk of members.
    operations
        Name, parameters and operands of each operation, by index.
    dtypes
        Type of each number.
    mapped
        Whether each argument has its own values for each member.
    unbatched
        Whether no argument is mapped.
    outputs
        Memory of each output.
    output_index
        Index of the output that a memory is, by the memory's id.
    input_place
        Argument and entry that an input number is read from.
    varying, varying_memories
        Numbers and memories that may differ between members.
    common, common_memories
        Numbers and memories that are computed once.
    """

    def __init__(
        self,
        graph: Graph,
        results: Sequence[Any],
        kinds: Sequence[np.dtype],
        inputs: Sequence[Any],
        mapped: Sequence[bool],
    ):
        self.top, self.mapped, self.unbatched = graph.blocks[0], tuple(mapped), not any(mapped)
        self.outputs = [Memory(x.size, kind, 0) for x, kind in zip(results, kinds, strict=True)]
        self.output_index = {id(x): k for k, x in enumerate(self.outputs)}
        self.output_stores: list[Store] = []
        for k, x in enumerate(results):
            if isinstance(x, Stored) and self._is_output(x):
                self.output_index[id(x.memory)] = k
                self.outputs[k] = x.memory
            else:
                entries = loaded(graph, x)
                self.output_stores += [
                    Store(self.outputs[k], None, i, value, ()) for i, value in enumerate(entries.flat)
                ]
        self.dtypes = graph.dtypes
        self.operations = {i: (x.name, x.parameters, x.operands) for i, x in enumerate(graph.operations)}
        self.input_place: dict[int, tuple[int, int]] = {}
        for k, x in enumerate(inputs):
            if not isinstance(x, Stored):
                self.input_place |= {entry.index: (k, place) for place, entry in enumerate(x.flat)}
        self._index_statements()
        self._fold_negations()
        self._fuse_multiply_add()
        self._find_needed()
        self._find_varying()
        self._find_common()
        nodes = list(self._nodes(self.top))
        self.prologue, self.per_chunk = self._split_common(nodes)
        if self.per_chunk and isinstance(self.per_chunk[-1], Run):
            self.per_chunk[-1].items.extend(self.output_stores)
        else:
            self.per_chunk.append(Run(list(self.output_stores)))

    def _is_output(self, x):
        """Return whether the memory of x can be an output itself, without a copy."""
        memory = x.memory
        return (
            x.is_current
            and memory.source is None
            and memory.values is None
            and x.is_whole
            and (memory.depth == 0 and id(memory) not in self.output_index)
        )

    def kind(self, x: Operand) -> np.dtype:
        """Return the type of an operand."""
        return self.dtypes[x.index] if isinstance(x, Number) else x.dtype

    def is_varying(self, x: Operand) -> bool:
        """Return whether an operand may differ between members."""
        return isinstance(x, Number) and x.index in self.varying

    def operands_of(self, statement: Any) -> Iterator[Operand]:
        """Yield the operands that a statement of a run reads."""
        if isinstance(statement, Fill):
            yield from (x for x in (statement.place, statement.begin) if x is not None)
            return
        if isinstance(statement, Store):
            yield statement.value
            if statement.index is not None:
                yield statement.index
            yield from statement.masks
        else:
            yield from self.operations[statement][2]

    def _index_statements(self):
        """Record the block of each statement, the owner of each block, and all stores, loops and choices."""
        self.block_of: dict[int, Block] = {}
        self.owner: dict[int, tuple[Any, Block] | None] = {id(self.top): None}
        self.origin: dict[int, tuple[Any, int]] = {}
        self.stores: dict[int, list[tuple[Store | Fill, Block]]] = {}
        self.loops: list[Loop] = []
        self.choices: list[Choice] = []
        pending = [self.top]
        while pending:
            block = pending.pop()
            for statement in block.statements:
                if isinstance(statement, int):
                    self.block_of[statement] = block
                elif isinstance(statement, Store | Fill):
                    self.stores.setdefault(id(statement.memory), []).append((statement, block))
                else:
                    is_loop = isinstance(statement, Loop)
                    if isinstance(statement, Loop):
                        self.loops.append(statement)
                    else:
                        self.choices.append(statement)
                    for k, x in enumerate(statement.results):
                        self.origin[x.index] = statement, k
                    if is_loop:
                        for k, x in enumerate(statement.carried):
                            self.origin[x.index] = statement, k
                    for inner in (statement.block,) if is_loop else statement.cases:
                        self.owner[id(inner)] = statement, block
                        pending.append(inner)

    def _fold_negations(self):
        """Replace a + (−b) by a − b, and a − (−b) by a + b."""
        operations = self.operations
        for i, (name, parameters, operands) in operations.items():
            if name == "add":
                a, b = operands
                if (y := self._negated(b)) is not None:
                    operations[i] = "sub", parameters, (a, y)
                elif (y := self._negated(a)) is not None:
                    operations[i] = "sub", parameters, (b, y)
            elif name == "sub" and (y := self._negated(operands[1])) is not None:
                operations[i] = "add", parameters, (operands[0], y)

    def _negated(self, x):
        """Return y if x is −y, else None."""
        if isinstance(x, Number) and self.operations[x.index][0] == "neg":
            return self.operations[x.index][2][0]
        return None

    def _fuse_multiply_add(self):
        """Merge a product into the sum that uses it, if that is its only use and both are in the same block."""
        self._find_needed()
        uses = Counter(
            x.index for i in self.needed if i in self.block_of for x in self.operations[i][2] if isinstance(x, Number)
        )
        for statement in (*self.loops, *self.choices):
            lists = (
                (statement.begin, statement.following)
                if isinstance(statement, Loop)
                else (statement.masks, *statement.outcomes)
            )
            uses.update(x.index for part in lists for x in part if isinstance(x, Number))
        for stores in (*self.stores.values(), [(x, None) for x in self.output_stores]):
            uses.update(x.index for store, _ in stores for x in self.operands_of(store) if isinstance(x, Number))
        for i in sorted(self.needed):
            name, parameters, operands = self.operations[i]
            if name not in ("add", "sub") or self.dtypes[i] not in FUSED or i not in self.block_of:
                continue
            for k, x in enumerate(operands):
                if not isinstance(x, Number) or uses[x.index] != 1 or self.operations[x.index][0] != "mul":
                    continue
                if self.block_of[x.index] is not self.block_of[i]:
                    continue
                a, b = self.operations[x.index][2]
                fused = "fma" if name == "add" else ("fms" if k == 0 else "fnma")
                self.operations[i] = fused, parameters, (a, b, operands[1 - k])
                break

    def _find_needed(self):
        """Find the numbers, memories and blocks that the results depend on."""
        self.needed: set[int] = set()
        self.memories: dict[int, Memory] = {}
        self.needed_blocks: set[int] = {id(self.top)}
        pending: list[Any] = [x for store in self.output_stores for x in self.operands_of(store)]
        pending += [x for x in self.outputs]
        while pending:
            x = pending.pop()
            if isinstance(x, Number):
                if x.index in self.needed:
                    continue
                self.needed.add(x.index)
                if x.index in self.origin:
                    statement, k = self.origin[x.index]
                    pending.append(statement.results[k])
                    if isinstance(statement, Loop):
                        pending += [statement.carried[k], statement.begin[k], statement.following[k], statement.block]
                    else:
                        pending += [outcome[k] for outcome in statement.outcomes]
                        pending += statement.cases
                elif x.index in self.block_of:
                    _, parameters, operands = self.operations[x.index]
                    pending += [y for y in operands if isinstance(y, Number)]
                    pending.append(self.block_of[x.index])
                    if "memory" in parameters:
                        pending.append(parameters["memory"])
            elif isinstance(x, Memory):
                if id(x) in self.memories:
                    continue
                self.memories[id(x)] = x
                for store, block in self.stores.get(id(x), ()):
                    pending += self.operands_of(store)
                    if isinstance(store, Fill) and isinstance(store.source, Memory):
                        pending.append(store.source)
                    pending.append(block)
            elif isinstance(x, Block):
                if id(x) in self.needed_blocks:
                    continue
                self.needed_blocks.add(id(x))
                statement, outer = self.owner[id(x)]
                pending.append(outer)
                pending += (
                    statement.masks
                    if isinstance(statement, Choice)
                    else ([statement.counter] if statement.length is None else [])
                )

    def _find_varying(self):
        """Find the numbers and memories that may differ between members.

        They depend on mapped arguments. The sets grow until nothing is added, since values go around loops.
        """
        varying: set[int] = set()
        self.varying, self.varying_memories = varying, set()
        is_varying = self.is_varying
        if self.unbatched:
            varying.update(self.needed)
            varying.update(x.counter.index for x in self.loops)
            self.varying_memories = {i for i, x in self.memories.items() if x.values is None}
            return
        varying.update(i for i, (k, _) in self.input_place.items() if self.mapped[k])
        self.varying_memories |= {i for i, x in self.memories.items() if x.source is not None and self.mapped[x.source]}
        self.varying_memories |= {id(x) for x in self.outputs}
        order = sorted(self.needed)
        previous_size = -1
        while previous_size != len(varying) + len(self.varying_memories):
            previous_size = len(varying) + len(self.varying_memories)
            for i in order:
                if i in varying or i not in self.block_of:
                    continue
                _, parameters, operands = self.operations[i]
                if any(map(is_varying, operands)) or id(parameters.get("memory")) in self.varying_memories:
                    varying.add(i)
            for i in self.memories:
                if i not in self.varying_memories and any(
                    any(map(is_varying, self.operands_of(store)))
                    or isinstance(store, Fill)
                    and id(store.source) in self.varying_memories
                    for store, _ in self.stores.get(i, ())
                ):
                    self.varying_memories.add(i)
            for loop in self.loops:
                has_varying_length = loop.length is None and is_varying(loop.counter)
                for x, a, b, result in zip(loop.carried, loop.begin, loop.following, loop.results, strict=True):
                    if has_varying_length or is_varying(a) or is_varying(b) or is_varying(x):
                        varying.update((x.index, result.index))
            for choice in self.choices:
                any_mask = any(map(is_varying, choice.masks))
                for k, result in enumerate(choice.results):
                    if any_mask or any(is_varying(outcome[k]) for outcome in choice.outcomes):
                        varying.add(result.index)

    def _find_common(self):
        """Find the values that are computed once: outside of all loops and choices, from other such values."""
        self.common: set[int] = set()
        self.common_memories: set[int] = set()
        is_common = lambda x: not isinstance(x, Number) or x.index in self.common
        if self.unbatched:
            return
        pending: dict[int, list[Operand] | None] = {}  # operands of the stores of a memory that are not yet common
        for statement in self.top.statements:
            if isinstance(statement, int):
                _, parameters, operands = self.operations[statement]
                memory = parameters.get("memory")
                is_available = (
                    memory is None
                    or id(memory) not in self.varying_memories
                    and (
                        memory.is_constant
                        and (memory.source is not None or memory.values is not None)
                        or id(memory) in self.common_memories
                    )
                )
                if (
                    statement in self.needed
                    and statement not in self.varying
                    and is_available
                    and all(map(is_common, operands))
                ):
                    self.common.add(statement)
            elif isinstance(statement, Store) and id(statement.memory) not in self.varying_memories:
                memory = id(statement.memory)
                if memory not in pending:
                    pending[memory] = self._stored_at_top(memory)
                operands = pending[memory]
                while operands and is_common(operands[-1]):
                    operands.pop()
                if operands is not None and not operands:
                    self.common_memories.add(memory)

    def _stored_at_top(self, memory):
        """Return the operands of all stores of a memory, or None if some are within loops or choices or fill it."""
        stores = self.stores[memory]
        if any(isinstance(store, Fill) or block is not self.top for store, block in stores):
            return None
        return [x for store, _ in reversed(stores) for x in self.operands_of(store)]

    def _nodes(self, block: Block) -> Iterator[Any]:
        """Yield the needed runs, loops and choices of a block."""
        items: list[int | Store | Fill] = []
        for statement in block.statements:
            if isinstance(statement, int):
                if statement in self.needed:
                    items.append(statement)
            elif isinstance(statement, Store | Fill):
                if id(statement.memory) in self.memories:
                    items.append(statement)
            else:
                is_loop = isinstance(statement, Loop)
                blocks = (statement.block,) if is_loop else statement.cases
                if not any(id(x) in self.needed_blocks for x in blocks):
                    continue
                if items:
                    yield Run(items)
                    items = []
                yield self._loop(statement) if is_loop else self._choice(statement)
        if items:
            yield Run(items)

    def _loop(self, loop):
        """Return the node of a loop."""
        needed = [k for k, x in enumerate(loop.carried) if x.index in self.needed]
        pick = lambda part: [part[k] for k in needed]
        carried, begin, following, results = map(pick, (loop.carried, loop.begin, loop.following, loop.results))
        return LoopNode(loop, carried, begin, following, results, list(self._nodes(loop.block)))

    def _choice(self, choice):
        """Return the node of a choice."""
        needed = [k for k, x in enumerate(choice.results) if x.index in self.needed]
        outcomes = [[outcome[k] for k in needed] for outcome in choice.outcomes]
        return ChoiceNode(
            choice.masks, [list(self._nodes(x)) for x in choice.cases], outcomes, [choice.results[k] for k in needed]
        )

    def _split_common(self, nodes):
        """Split nodes into those that are executed once, and the others."""
        prologue, per_chunk = [], []
        for node in nodes:
            if not isinstance(node, Run):
                per_chunk.append(node)
                continue
            common = [x for x in node.items if self._is_common(x)]
            others = [x for x in node.items if not self._is_common(x)]
            prologue += [Run(common)] if common else []
            per_chunk += [Run(others)] if others else []
        return prologue, per_chunk

    def _is_common(self, item):
        """Return whether an item of a run is computed once."""
        return item in self.common if isinstance(item, int) else id(item.memory) in self.common_memories

    def ordered(self, items: Sequence[Any], wanted: Iterable[int]) -> list[Any]:
        """Return the items of a run, scheduled for few live values; ``wanted`` are numbers that are read elsewhere."""
        stored = {id(x.memory) for x in items if not isinstance(x, int)}
        operations = [i for i in items if isinstance(i, int)]
        if any(self._is_load(i) and id(self.operations[i][1]["memory"]) in stored for i in operations):
            return list(items)
        inside = set(operations)
        operands_inside = lambda i: tuple(
            x for x in self.operations[i][2] if isinstance(x, Number) and x.index in inside
        )
        stores = [x for x in items if not isinstance(x, int)]
        read = {x.index for store in stores for x in self.operands_of(store) if isinstance(x, Number)}
        results = [Number(i, self.dtypes[i], 0) for i in operations if i in read or i in wanted]
        order = scheduled({i: operands_inside(i) for i in operations}, results) if len(operations) > 2 else operations
        # A value for a fixed entry of an output is stored as soon as it is computed.
        direct = [
            x
            for x in stores
            if isinstance(x, Store) and x.index is None and not x.masks and self._is_only_output_store(x)
        ]
        stores_of: dict[int, list[Store]] = {}
        for x in direct:
            if isinstance(x.value, Number) and x.value.index in inside:
                stores_of.setdefault(x.value.index, []).append(x)
        early = {id(x) for part in stores_of.values() for x in part}
        with_stores = [y for i in order for y in (i, *stores_of.get(i, ()))]
        return [*with_stores, *(x for x in stores if id(x) not in early)]

    def _is_only_output_store(self, store):
        """Return whether a store writes to an output that has no other stores."""
        return id(store.memory) not in self.stores and id(store.memory) in self.output_index

    def length(self, assumed_iterations: int) -> int:
        """Return the number of operations of a chunk, with this number of iterations of loops of unknown length."""

        def count(nodes):
            total = 0
            for node in nodes:
                if isinstance(node, Run):
                    total += len(node.items)
                elif isinstance(node, LoopNode):
                    total += (node.loop.length if node.loop.length is not None else assumed_iterations) * count(
                        node.body
                    )
                else:
                    total += sum(map(count, node.cases))
            return total

        return count(self.per_chunk)

    def _is_load(self, i):
        """Return whether an operation is a load."""
        return self.operations[i][0] == LOAD
