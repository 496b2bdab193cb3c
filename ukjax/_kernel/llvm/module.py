"""A program as a module of LLVM, in text.

Straight pieces are functions of at most ``PIECE`` operations: the compiler's time grows faster than their length. What
one leaves for another goes by slots of a workspace. Within a piece, what would not fit into the registers is put there
too, first what is needed last (Belady's rule), since the compiler does that badly for long straight code. Loops and
choices are in the function ``chunk``, which does all for as many members as a vector has.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..graph.graph import Fill, Memory
from ..graph.number import Number, Operand
from .instructions import Instructions, constant, scalar_type, vector_type
from .program import Chosen, Program, Repeated, Run
from .straight import ARGUMENTS, PASSED, Piece, Straight

PIECE, MOVES = 300, 64
"""Operations of a piece, and numbers that are moved by one."""


class Move(NamedTuple):
    """``value`` goes to the slot of ``target``, for members for which ``mask`` holds."""

    target: Number
    value: Operand
    mask: Operand | None


class Turns(NamedTuple):
    """A loop: what is done before it, in a turn, and at the end of a turn."""

    first: int
    node: Repeated
    before: list[Piece]
    inside: list[Any]
    after: list[Piece]
    last: int


class Cases(NamedTuple):
    """A choice: what each case does."""

    first: int
    node: Chosen
    cases: list[list[Any]]
    last: int


class Assembly:
    """The module of a program for chunks of ``width`` members; ``registers`` is how many numbers fit in them."""

    def __init__(self, program: Program, width: int, registers: int):
        self.program, self.width, self.registers = program, width, registers
        self.declared: set[str] = set()
        self.functions: set[str] = set()
        self.tables: dict[int, tuple[str, Memory]] = {}
        self.text: list[str] = []
        self._count = self._fills = 0
        self._readers = _readers(program)
        self.once = list(self._actions(program.once))
        self.each = list(self._actions(program.each))
        self._place_memories()
        self._give_slots()
        self._control("prologue", self.once)
        self._control("chunk", self.each)

    # What is done, in order.

    def _next(self):
        self._count += 1
        return self._count

    def _actions(self, nodes: Sequence[Any]) -> Iterator[Any]:
        for node in nodes:
            if isinstance(node, Run):
                inside = {x for x in node.items if isinstance(x, int)}
                wanted = {i for i in inside if self._readers.get(i, set()) - {id(node)}}
                yield from self._pieces(self.program.ordered(node.items, wanted))
            elif isinstance(node, Repeated):
                yield self._turns(node)
            else:
                first = self._next()
                cases = []
                for mask, inside, outcomes in zip(node.masks, node.cases, node.outcomes, strict=True):
                    moves = [Move(x, y, mask) for x, y in zip(node.results, outcomes, strict=True)]
                    cases.append([*self._actions(inside), *self._moves(moves)])
                yield Cases(first, node, cases, self._next())

    def _pieces(self, items):
        part: list[Any] = []
        for item in items:
            alone = isinstance(item, Fill)
            if part and (alone or len(part) == PIECE):
                yield Piece(self._next(), part)
                part = []
            if alone:
                yield Piece(self._next(), [item])
            else:
                part.append(item)
        if part:
            yield Piece(self._next(), part)

    def _moves(self, moves):
        for k in range(0, len(moves), MOVES):
            yield Piece(self._next(), moves[k : k + MOVES])

    def _turns(self, node):
        first, loop = self._next(), node.loop
        waits = loop.length is None
        before = list(self._moves([Move(x, y, None) for x, y in zip(node.carried, node.begin, strict=True)]))
        inside = list(self._actions(node.inside))
        mask = loop.counter if waits else None
        moves = [Move(x, y, mask) for x, y in zip(node.carried, node.following, strict=True)]
        moves = [x for x in moves if not (isinstance(x.value, Number) and x.value.index == x.target.index)]
        targets = {x.index for x in node.carried}
        is_early = lambda x: isinstance(x.value, Number) and x.value.index in targets
        early = [x for x in moves if is_early(x)]  # read before others are put in their place: all in one piece
        late = [x for x in moves if not is_early(x) and x.target.index != loop.counter.index]
        final = [x for x in moves if x.target.index == loop.counter.index and not is_early(x)]
        after = [*([Piece(self._next(), early)] if early else []), *self._moves(late), *self._moves(final)]
        return Turns(first, node, before, inside, after, self._next())

    # Where numbers are.

    def _place_memories(self):
        self.memory_at: dict[int, int] = {}
        own_end, common_end = 0, 0
        program = self.program
        for i, memory in program.memories.items():
            if memory.source is not None or memory.values is not None or i in program.placed:
                continue
            size = memory.size * max(1, memory.dtype.itemsize)
            if i in program.common_memories:
                self.memory_at[i], common_end = common_end, -(-(common_end + size) // 64) * 64
            else:
                size *= self.width if i in program.own_memories else 1
                self.memory_at[i], own_end = own_end, -(-(own_end + size) // 64) * 64
        self.first_slot, self.first_common = own_end, common_end

    def _give_slots(self):
        """A place for each number that is read in another piece, for as long as it is."""
        program = self.program
        self.common_slot = {i: k for k, i in enumerate(sorted(program.common))}
        born: dict[int, tuple[int, tuple[Turns, ...]]] = {}
        last: dict[int, int] = {}
        alias: dict[int, int] = {}

        def define(i, place, around):
            born[i] = place, around

        def read(x, place, around):
            if not isinstance(x, Number) or x.index in program.common:
                return
            i = alias.get(x.index, x.index)
            where, outside = born[i]
            inner = next((loop for loop in around if loop not in outside), None)
            place = place if inner is None else inner.last
            if place != where or inner is not None:
                last[i] = max(last.get(i, 0), place)

        def walk(actions, around):
            for action in actions:
                if isinstance(action, Piece):
                    for item in action.items:
                        if isinstance(item, Move):
                            read(item.value, action.place, around)
                            if item.mask is not None:
                                read(item.mask, action.place, around)
                            continue
                        for x in program.operands_of(item):
                            read(x, action.place, around)
                        if isinstance(item, int):
                            define(item, action.place, around)
                elif isinstance(action, Turns):
                    node, inner = action.node, (*around, action)
                    for x in node.carried:
                        define(x.index, action.first, around)
                        last[x.index] = action.last
                    if node.loop.length is not None:
                        define(node.loop.counter.index, action.first, around)
                        last[node.loop.counter.index] = action.last
                    walk(action.before, around)
                    walk(action.inside, inner)
                    walk(action.after, inner)
                    for x, y in zip(node.results, node.carried, strict=True):
                        alias[x.index] = y.index
                else:
                    for x in action.node.results:
                        define(x.index, action.first, around)
                        last[x.index] = action.last
                    for mask in action.node.masks:
                        read(mask, action.last, around)
                    for case in action.cases:
                        walk(case, around)

        walk(self.once, ())
        walk(self.each, ())
        self.slot: dict[int, int] = {}
        ends: dict[int, list[int]] = {}
        free: list[int] = []
        top = 0
        begins: dict[int, list[int]] = {}
        for i in last:
            begins.setdefault(born[i][0], []).append(i)
        for place in range(self._count + 1):
            for i in begins.get(place, ()):
                if free:
                    self.slot[i] = free.pop()
                else:
                    self.slot[i], top = top, top + 1
                ends.setdefault(last[i], []).append(self.slot[i])
            free += ends.get(place, ())
        for x, y in alias.items():
            if y in self.slot:
                self.slot[x] = self.slot[y]
        self.slots = self.first_spill = top

    def _slot_address(self, code, i):
        if i in self.common_slot:
            return code.add(f"getelementptr i8, ptr %common, i64 {self.first_common + 8 * self.common_slot[i]}")
        return code.add(f"getelementptr i8, ptr %ws, i64 {self.first_slot + 8 * self.width * self.slot[i]}")

    def shape_of(self, i):
        """How many numbers side by side number i is."""
        return self.width if i in self.program.own else 1

    def shape_of_memory(self, memory):
        own = id(memory) in self.program.own_memories
        return self.width if own else 1

    def put(self, code: Instructions, i: int, x: str) -> None:
        """Store number i into its slot."""
        self.put_at(code, self._slot_address(code, i), self.program.dtypes[i], self.shape_of(i), x)

    def put_at(self, code, address, dtype, width, x):
        kind = scalar_type(dtype)
        if kind == "i1":
            wide = "i64" if width > 1 else "i8"
            x = code.add(
                f"{'sext' if width > 1 else 'zext'} {vector_type('i1', width)} {x} to {vector_type(wide, width)}"
            )
            kind = wide
        code.do(f"store {vector_type(kind, width)} {x}, ptr {address}, align {_aligned(kind, width)}")

    def get(self, code: Instructions, i: int) -> str:
        """Load number i from its slot."""
        return self.get_at(code, self._slot_address(code, i), self.program.dtypes[i], self.shape_of(i))

    def get_at(self, code, address, dtype, width):
        kind = scalar_type(dtype)
        wide = kind if kind != "i1" else "i64" if width > 1 else "i8"
        whole = vector_type(wide, width)
        x = code.add(f"load {whole}, ptr {address}, align {_aligned(wide, width)}")
        return x if kind != "i1" else code.add(f"icmp ne {whole} {x}, {constant(_int(wide)(0), width)}")

    # Straight code.

    def _function(self, name, piece):
        code = Instructions()
        if piece.items and isinstance(piece.items[0], Move):
            self._write_moves(code, piece.items)
        else:
            Straight(self, code, piece).write()
        self._define(name, code)

    def fill(self, item: Fill) -> str:
        """The name of a function that fills a memory."""
        name, code, source = f"fill{self._fills}", Instructions(), item.source
        self._fills += 1
        straight, kind = Straight(self, code, Piece(0, [])), scalar_type(item.memory.dtype)
        starts = ["0" if x is None else straight.value(x, 1) for x in (item.place, item.begin)]
        code.lines += ["  br label %head", "head:", "  %k = phi i64 [ 0, %entry ], [ %next, %body ]"]
        code.lines += [f"  %more = icmp slt i64 %k, {item.size}", "  br i1 %more, label %body, label %end"]
        code.lines.append("body:")
        at, begin = (code.add(f"add i64 %k, {start}") for start in starts)
        width = self.shape_of_memory(item.memory)
        if isinstance(source, Memory):
            own = self.shape_of_memory(source)
            x = straight.read(item.memory.dtype, own, straight.address(source, begin, 0))
            x = x if own == width else code.splat(x, kind, width)
        else:
            x = constant(source, width)
        straight.write_to(straight.address(item.memory, at, 0), item.memory.dtype, width, x)
        code.lines += ["  %next = add i64 %k, 1", "  br label %head", "end:"]
        self._define(name, code)
        return name

    def _define(self, name, code):
        self.text += [f"define internal void @{name}({PASSED}) #1 {{\nentry:", *code.lines, "  ret void\n}"]
        self.declared |= code.declared
        self.functions |= code.functions

    def _write_moves(self, code, moves):
        known: dict[int, str] = {}

        def value(x, width):
            if not isinstance(x, Number):
                return constant(x, width)
            if x.index not in known:
                known[x.index] = self.get(code, x.index)
            own = self.shape_of(x.index)
            return known[x.index] if own == width else code.splat(known[x.index], scalar_type(x.dtype), width)

        values = [value(x.value, self.shape_of(x.target.index)) for x in moves]
        for move, x in zip(moves, values, strict=True):
            i, width = move.target.index, self.shape_of(move.target.index)
            mask = move.mask
            if mask is not None and self.width > 1 and self.program.is_own(mask):
                whole = vector_type(scalar_type(move.target.dtype), width)
                condition, old = value(mask, width), self.get(code, i)
                x = code.add(f"select {vector_type('i1', width)} {condition}, {whole} {x}, {whole} {old}")
            self.put(code, i, x)

    # Control.

    def _control(self, name, actions):
        code = Instructions()
        self._labels = 0
        self._write_actions(code, name, actions)
        self._define(name, code)

    def _label(self):
        self._labels += 1
        return f"l{self._labels}"

    def _write_actions(self, code, name, actions):
        for action in actions:
            if isinstance(action, Piece):
                function = f"piece{action.place}"
                self._function(function, action)
                code.do(f"call void @{function}({ARGUMENTS})")
            elif isinstance(action, Turns):
                self._write_loop(code, name, action)
            else:
                self._write_choice(code, name, action)

    def _write_loop(self, code, name, action):
        loop = action.node.loop
        self._write_actions(code, name, action.before)
        counter = loop.counter.index
        head, body, end = self._label(), self._label(), self._label()
        if loop.length is not None:
            address = self._slot_address(code, counter)
            width = self.shape_of(counter)
            kind = vector_type("i64", width)
            code.do(f"store {kind} {constant(np.int64(0), width)}, ptr {address}, align {_aligned('i64', width)}")
            code.do(f"br label %{head}\n{head}:")
            at = code.add(f"load i64, ptr {address}")
            code.do(f"br i1 {code.add(f'icmp slt i64 {at}, {loop.length}')}, label %{body}, label %{end}\n{body}:")
            self._write_actions(code, name, [*action.inside, *action.after])
            again = code.add(f"load {kind}, ptr {address}, align {_aligned('i64', width)}")
            more = code.add(f"add {kind} {again}, {constant(np.int64(1), width)}")
            code.do(f"store {kind} {more}, ptr {address}, align {_aligned('i64', width)}")
        else:
            code.do(f"br label %{head}\n{head}:")
            code.do(f"br i1 {self._any(code, loop.counter)}, label %{body}, label %{end}\n{body}:")
            self._write_actions(code, name, [*action.inside, *action.after])
        code.do(f"br label %{head}\n{end}:")

    def _write_choice(self, code, name, action):
        for mask, case in zip(action.node.masks, action.cases, strict=True):
            body, end = self._label(), self._label()
            code.do(f"br i1 {self._any(code, mask)}, label %{body}, label %{end}\n{body}:")
            self._write_actions(code, name, case)
            code.do(f"br label %{end}\n{end}:")

    def _any(self, code, x):
        """Whether a truth value holds for any member."""
        if not isinstance(x, Number):
            return constant(x, 1)
        found = self.get(code, x.index)
        if self.shape_of(x.index) == 1:
            return found
        bits = code.add(f"bitcast <{self.width} x i1> {found} to i{self.width}")
        return code.add(f"icmp ne i{self.width} {bits}, 0")

    # Memories.

    def table(self, memory: Memory) -> str:
        """The name of a memory of known values."""
        if id(memory) not in self.tables:
            self.tables[id(memory)] = f"@table{len(self.tables)}", memory
        return self.tables[id(memory)][0]

    @property
    def constants(self) -> Iterator[str]:
        """Memories of known values."""
        for name, memory in self.tables.values():
            kind = scalar_type(memory.dtype)
            values = memory.values
            if kind == "i1":
                kind, values = "i8", values.astype(np.int8)
            body = ", ".join(f"{kind} {constant(x, 1)}" for x in values)
            yield f"{name} = internal constant [{values.size} x {kind}] [{body}], align 64"


def _int(kind):
    return {"i8": np.int8, "i64": np.int64}[kind]


def _bits(kind):
    return {"double": 64, "float": 32}.get(kind) or int(kind[1:])


def _aligned(kind, width):
    return max(1, _bits(kind) // 8) * width


def _readers(program):
    """The runs in which each number is read; 0 stands for anything else."""
    found: dict[int, set[int]] = {}

    def read(x, where):
        if isinstance(x, Number):
            found.setdefault(x.index, set()).add(where)

    def walk(nodes):
        for node in nodes:
            if isinstance(node, Run):
                for item in node.items:
                    for x in program.operands_of(item):
                        read(x, id(node))
            elif isinstance(node, Repeated):
                for x in (*node.begin, *node.following, node.loop.counter):
                    read(x, 0)
                walk(node.inside)
            else:
                for part in (node.masks, *node.outcomes):
                    for x in part:
                        read(x, 0)
                for case in node.cases:
                    walk(case)

    walk(program.once)
    walk(program.each)
    return found
