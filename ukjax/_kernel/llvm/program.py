"""A graph made ready for a compiler: only what is needed, negations and products taken into sums, statements in runs.

What follows from numbers that all members have in common is done once; all else for each chunk of members.
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
"""Types of which a product and a sum are one operation, rounded once."""


class Run(NamedTuple):
    """Operations and stores in order, with nothing between them."""

    items: list[int | Store | Fill]


class Repeated(NamedTuple):
    """A loop with what is needed of it."""

    loop: Loop
    carried: list[Number]
    begin: list[Operand]
    following: list[Operand]
    results: list[Number]
    inside: list[Any]


class Chosen(NamedTuple):
    """A choice with what is needed of it."""

    masks: list[Operand]
    cases: list[list[Any]]
    outcomes: list[list[Operand]]
    results: list[Number]


class Program:
    """Statements that put ``results`` to the outputs: ``once`` for all members, and ``each`` for every chunk of them.

    ``operations`` are by index, with their operands; ``own`` are the numbers that may differ from member to member,
    ``common`` those that are computed once; ``placed`` says which memories are outputs themselves.
    """

    def __init__(
        self,
        graph: Graph,
        results: Sequence[Any],
        kinds: Sequence[np.dtype],
        inputs: Sequence[Any],
        mapped: Sequence[bool],
    ):
        self.top, self.mapped, self.alone = graph.blocks[0], tuple(mapped), not any(mapped)
        self.outputs = [Memory(x.size, kind, 0) for x, kind in zip(results, kinds, strict=True)]
        self.placed = {id(x): k for k, x in enumerate(self.outputs)}
        self.ends: list[Store] = []
        for k, x in enumerate(results):
            if isinstance(x, Stored) and self._is_output(x):
                self.placed[id(x.memory)] = k
                self.outputs[k] = x.memory
            else:
                entries = loaded(graph, x)
                self.ends += [Store(self.outputs[k], None, i, value, ()) for i, value in enumerate(entries.flat)]
        self.dtypes = graph.dtypes
        self.operations = {i: (x.name, x.parameters, x.operands) for i, x in enumerate(graph.operations)}
        self.argument: dict[int, tuple[int, int]] = {}
        for k, x in enumerate(inputs):
            if not isinstance(x, Stored):
                self.argument |= {entry.index: (k, place) for place, entry in enumerate(x.flat)}
        self._read()
        self._fold_negations()
        self._contract()
        self._find_needed()
        self._find_own()
        self._find_common()
        whole = list(self._nodes(self.top))
        self.once, self.each = self._parted(whole)
        if self.each and isinstance(self.each[-1], Run):
            self.each[-1].items.extend(self.ends)
        else:
            self.each.append(Run(list(self.ends)))

    def _is_output(self, x):
        memory = x.memory
        return (
            x.is_current
            and memory.source is None
            and memory.values is None
            and x.is_whole
            and (memory.depth == 0 and id(memory) not in self.placed)
        )

    def kind(self, x: Operand) -> np.dtype:
        return self.dtypes[x.index] if isinstance(x, Number) else x.dtype

    def is_own(self, x: Operand) -> bool:
        return isinstance(x, Number) and x.index in self.own

    def operands_of(self, statement: Any) -> Iterator[Operand]:
        """What a statement of a run reads."""
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

    def _read(self):
        """Where everything is."""
        self.block_of: dict[int, Block] = {}
        self.owner: dict[int, tuple[Any, Block] | None] = {id(self.top): None}
        self.origin: dict[int, tuple[Any, int]] = {}
        self.stores: dict[int, list[tuple[Store | Fill, Block]]] = {}
        self.loops: list[Loop] = []
        self.choices: list[Choice] = []
        todo = [self.top]
        while todo:
            block = todo.pop()
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
                        todo.append(inner)

    def _fold_negations(self):
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
        if isinstance(x, Number) and self.operations[x.index][0] == "neg":
            return self.operations[x.index][2][0]
        return None

    def _contract(self):
        """Products that are used once, in a sum of the same block, become part of that."""
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
        for stores in (*self.stores.values(), [(x, None) for x in self.ends]):
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
        """The numbers and memories from which the results follow."""
        self.needed: set[int] = set()
        self.memories: dict[int, Memory] = {}
        self.entered: set[int] = {id(self.top)}
        todo: list[Any] = [x for store in self.ends for x in self.operands_of(store)]
        todo += [x for x in self.outputs]
        while todo:
            x = todo.pop()
            if isinstance(x, Memory):
                if id(x) in self.memories:
                    continue
                self.memories[id(x)] = x
                for store, block in self.stores.get(id(x), ()):
                    todo += self.operands_of(store)
                    if isinstance(store, Fill) and isinstance(store.source, Memory):
                        todo.append(store.source)
                    todo.append(block)
            elif isinstance(x, Block):
                if id(x) in self.entered:
                    continue
                self.entered.add(id(x))
                statement, around = self.owner[id(x)]
                todo.append(around)
                todo += (
                    statement.masks
                    if isinstance(statement, Choice)
                    else ([statement.counter] if statement.length is None else [])
                )
            elif isinstance(x, Number) and x.index not in self.needed:
                self.needed.add(x.index)
                if x.index in self.origin:
                    statement, k = self.origin[x.index]
                    todo.append(statement.results[k])
                    if isinstance(statement, Loop):
                        todo += [statement.carried[k], statement.begin[k], statement.following[k], statement.block]
                    else:
                        todo += [part[k] for part in statement.outcomes]
                        todo += statement.cases
                elif x.index in self.block_of:
                    _, parameters, operands = self.operations[x.index]
                    todo += operands
                    todo.append(self.block_of[x.index])
                    if "memory" in parameters:
                        todo.append(parameters["memory"])

    def _find_own(self):
        """What may differ from member to member."""
        own: set[int] = set()
        self.own, self.own_memories = own, set()
        is_own = self.is_own
        if self.alone:
            own.update(self.needed)
            own.update(x.counter.index for x in self.loops)
            self.own_memories = {i for i, x in self.memories.items() if x.values is None}
            return
        own.update(i for i, (k, _) in self.argument.items() if self.mapped[k])
        self.own_memories |= {i for i, x in self.memories.items() if x.source is not None and self.mapped[x.source]}
        self.own_memories |= {id(x) for x in self.outputs}
        order = sorted(self.needed)
        before = -1
        while before != len(own) + len(self.own_memories):
            before = len(own) + len(self.own_memories)
            for i in order:
                if i in own or i not in self.block_of:
                    continue
                _, parameters, operands = self.operations[i]
                if any(map(is_own, operands)) or id(parameters.get("memory")) in self.own_memories:
                    own.add(i)
            for i in self.memories:
                if i not in self.own_memories and any(
                    any(map(is_own, self.operands_of(store)))
                    or isinstance(store, Fill)
                    and id(store.source) in self.own_memories
                    for store, _ in self.stores.get(i, ())
                ):
                    self.own_memories.add(i)
            for loop in self.loops:
                waits = loop.length is None and is_own(loop.counter)
                for x, a, b, result in zip(loop.carried, loop.begin, loop.following, loop.results, strict=True):
                    if waits or is_own(a) or is_own(b) or is_own(x):
                        own.update((x.index, result.index))
            for choice in self.choices:
                any_mask = any(map(is_own, choice.masks))
                for k, result in enumerate(choice.results):
                    if any_mask or any(is_own(part[k]) for part in choice.outcomes):
                        own.add(result.index)

    def _find_common(self):
        """What is computed once: outside of all loops, from numbers that are."""
        self.common: set[int] = set()
        self.common_memories: set[int] = set()
        is_common = lambda x: not isinstance(x, Number) or x.index in self.common
        if self.alone:
            return
        for statement in self.top.statements:
            if isinstance(statement, int):
                _, parameters, operands = self.operations[statement]
                memory = parameters.get("memory")
                known = (
                    memory is None
                    or id(memory) not in self.own_memories
                    and (
                        memory.lasting
                        and (memory.source is not None or memory.values is not None)
                        or id(memory) in self.common_memories
                    )
                )
                if statement in self.needed and statement not in self.own and known and all(map(is_common, operands)):
                    self.common.add(statement)
            elif isinstance(statement, Store) and id(statement.memory) not in self.own_memories:
                stores = self.stores[id(statement.memory)]
                if any(isinstance(store, Fill) for store, _ in stores):
                    continue
                if all(block is self.top for _, block in stores) and all(
                    map(is_common, (x for store, _ in stores for x in self.operands_of(store)))
                ):
                    self.common_memories.add(id(statement.memory))

    def _nodes(self, block: Block) -> Iterator[Any]:
        """What is needed of a block: runs, loops and choices."""
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
                inner = (statement.block,) if is_loop else statement.cases
                if not any(id(x) in self.entered for x in inner):
                    continue
                if items:
                    yield Run(items)
                    items = []
                yield self._loop(statement) if is_loop else self._choice(statement)
        if items:
            yield Run(items)

    def _loop(self, loop):
        kept = [k for k, x in enumerate(loop.carried) if x.index in self.needed]
        pick = lambda part: [part[k] for k in kept]
        carried, begin, following, results = map(pick, (loop.carried, loop.begin, loop.following, loop.results))
        return Repeated(loop, carried, begin, following, results, list(self._nodes(loop.block)))

    def _choice(self, choice):
        kept = [k for k, x in enumerate(choice.results) if x.index in self.needed]
        outcomes = [[part[k] for k in kept] for part in choice.outcomes]
        return Chosen(
            choice.masks, [list(self._nodes(x)) for x in choice.cases], outcomes, [choice.results[k] for k in kept]
        )

    def _parted(self, nodes):
        """What is done once, and the rest."""
        once, each = [], []
        for node in nodes:
            if not isinstance(node, Run):
                each.append(node)
                continue
            first = [x for x in node.items if self._is_once(x)]
            rest = [x for x in node.items if not self._is_once(x)]
            once += [Run(first)] if first else []
            each += [Run(rest)] if rest else []
        return once, each

    def _is_once(self, item):
        return item in self.common if isinstance(item, int) else id(item.memory) in self.common_memories

    def ordered(self, items: Sequence[Any], wanted: Iterable[int]) -> list[Any]:
        """A run in the order in which the fewest values wait; ``wanted`` are those that are read elsewhere."""
        stored = {id(x.memory) for x in items if not isinstance(x, int)}
        operations = [i for i in items if isinstance(i, int)]
        if any(self._loads(i) and id(self.operations[i][1]["memory"]) in stored for i in operations):
            return list(items)
        inside = set(operations)
        only = lambda i: tuple(x for x in self.operations[i][2] if isinstance(x, Number) and x.index in inside)
        stores = [x for x in items if not isinstance(x, int)]
        read = {x.index for store in stores for x in self.operands_of(store) if isinstance(x, Number)}
        results = [Number(i, self.dtypes[i], 0) for i in operations if i in read or i in wanted]
        order = scheduled({i: only(i) for i in operations}, results) if len(operations) > 2 else operations
        # What goes to a fixed place of an output goes there as soon as it is known.
        at_once = [x for x in stores if isinstance(x, Store) and x.index is None and not x.masks and self._goes_out(x)]
        of_value: dict[int, list[Store]] = {}
        for x in at_once:
            if isinstance(x.value, Number) and x.value.index in inside:
                of_value.setdefault(x.value.index, []).append(x)
        early = {id(x) for part in of_value.values() for x in part}
        with_stores = [y for i in order for y in (i, *of_value.get(i, ()))]
        return [*with_stores, *(x for x in stores if id(x) not in early)]

    def _goes_out(self, store):
        """Whether nothing else is stored there."""
        return id(store.memory) not in self.stores and id(store.memory) in self.placed

    def length(self, turns: int) -> int:
        """How many operations a chunk takes, where loops of unknown length have so many ``turns``."""

        def of(nodes):
            total = 0
            for node in nodes:
                if isinstance(node, Run):
                    total += len(node.items)
                elif isinstance(node, Repeated):
                    total += (node.loop.length if node.loop.length is not None else turns) * of(node.inside)
                else:
                    total += sum(map(of, node.cases))
            return total

        return of(self.each)

    def _loads(self, i):
        return self.operations[i][0] == LOAD
