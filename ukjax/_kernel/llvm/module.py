"""Translate a program to the text of an LLVM module.

Straight-line code is split into functions of at most ``MAX_OPERATIONS`` operations, since the compile time grows faster
than the length of a function. Values that are used in another piece are passed in slots of a workspace. Within a piece,
values that exceed the registers are spilled to the workspace, first those whose next use is the most distant one
(Belady's rule), since LLVM does this badly for long straight-line code. Loops and choices are in the function
``chunk``, which computes as many members as a vector has lanes.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..graph.graph import Fill, Memory
from ..graph.number import Number, Operand
from .instructions import Instructions, constant, scalar_type, vector_type
from .program import ChoiceNode, LoopNode, Program, Run
from .straight import ARGUMENTS, PARAMETERS, Piece, Straight

MAX_OPERATIONS, MAX_MOVES = 300, 64
"""Maximum number of operations in a piece, and of moves in a piece of moves."""


class Move(NamedTuple):
    """Copy ``value`` to the slot of ``target``, for members for which ``mask`` holds."""

    target: Number
    value: Operand
    mask: Operand | None


class LoopCode(NamedTuple):
    """A loop.

    Attributes
    ----------
    first, last
        Places of its start and end.
    node
        The loop of the program.
    before
        Moves of the initial values.
    body
        Code of an iteration.
    after
        Moves at the end of an iteration.
    """

    first: int
    node: LoopNode
    before: list[Piece]
    body: list[Any]
    after: list[Piece]
    last: int


class ChoiceCode(NamedTuple):
    """A choice.

    Attributes
    ----------
    first, last
        Places of its start and end.
    node
        The choice of the program.
    cases
        Code of each case.
    """

    first: int
    node: ChoiceNode
    cases: list[list[Any]]
    last: int


class Assembly:
    """The module of a program, for chunks of ``width`` members.

    Attributes
    ----------
    registers
        Number of values that fit the registers.
    declared, functions
        Declarations, and names of called functions of the C library.
    tables
        Memories with constant values.
    text
        Function definitions.
    prologue, per_chunk
        Pieces, loops and choices, executed once and for each chunk.
    memory_at
        Offset of each memory in the workspace, or in the part of it that is common to all members [bytes].
    slot, common_slot
        Slot of each number in these parts.
    slots_offset, common_slots_offset
        Offset of the first slot in these parts [bytes].
    first_spill, slots
        Number of slots without and with spilled values.
    parameters, arguments
        Parameters of the functions of the module, and the arguments with which they call each other.
    """

    parameters, arguments = PARAMETERS, ARGUMENTS
    instructions: type[Instructions] = Instructions
    reuses_slots: bool = True

    def __init__(self, program: Program, width: int, registers: int):
        self.program, self.width, self.registers = program, width, registers
        self.declared: set[str] = set()
        self.functions: set[str] = set()
        self.tables: dict[int, tuple[str, Memory]] = {}
        self.text: list[str] = []
        self._count = self._fills = 0
        self._readers_of = _readers_of(program)
        self.prologue = list(self._lower(program.prologue))
        self.per_chunk = list(self._lower(program.per_chunk))
        self._allocate_memories()
        self._assign_slots()
        self._write_control("prologue", self.prologue)
        self._write_control("chunk", self.per_chunk)

    # Order of execution.

    def _next_place(self):
        """Return the next place in the order of execution."""
        self._count += 1
        return self._count

    def _lower(self, nodes: Sequence[Any]) -> Iterator[Any]:
        """Yield the pieces, loops and choices of nodes."""
        for node in nodes:
            if isinstance(node, Run):
                inside = {x for x in node.items if isinstance(x, int)}
                wanted = {i for i in inside if self._readers_of.get(i, set()) - {id(node)}}
                yield from self._split_run(self.program.ordered(node.items, wanted))
            elif isinstance(node, LoopNode):
                yield self._lower_loop(node)
            else:
                first = self._next_place()
                cases = []
                for mask, inside, outcomes in zip(node.masks, node.cases, node.outcomes, strict=True):
                    moves = [Move(x, y, mask) for x, y in zip(node.results, outcomes, strict=True)]
                    cases.append([*self._lower(inside), *self._split_moves(moves)])
                yield ChoiceCode(first, node, cases, self._next_place())

    def _split_run(self, items):
        """Split the items of a run into pieces; a fill is a separate piece."""
        piece: list[Any] = []
        for item in items:
            is_fill = isinstance(item, Fill)
            if piece and (is_fill or len(piece) == MAX_OPERATIONS):
                yield Piece(self._next_place(), piece)
                piece = []
            if is_fill:
                yield Piece(self._next_place(), [item])
            else:
                piece.append(item)
        if piece:
            yield Piece(self._next_place(), piece)

    def _split_moves(self, moves):
        """Split moves into pieces."""
        for k in range(0, len(moves), MAX_MOVES):
            yield Piece(self._next_place(), moves[k : k + MAX_MOVES])

    def _lower_loop(self, node):
        """Return the code of a loop."""
        first, loop = self._next_place(), node.loop
        is_while = loop.length is None
        before = list(self._split_moves([Move(x, y, None) for x, y in zip(node.carried, node.begin, strict=True)]))
        body = list(self._lower(node.body))
        mask = loop.counter if is_while else None
        moves = [Move(x, y, mask) for x, y in zip(node.carried, node.following, strict=True)]
        moves = [x for x in moves if not (isinstance(x.value, Number) and x.value.index == x.target.index)]
        targets = {x.index for x in node.carried}
        is_early = lambda x: isinstance(x.value, Number) and x.value.index in targets
        early = [x for x in moves if is_early(x)]  # read carried numbers before they are overwritten: all in one piece
        late = [x for x in moves if not is_early(x) and x.target.index != loop.counter.index]
        final = [x for x in moves if x.target.index == loop.counter.index and not is_early(x)]
        after = [
            *([Piece(self._next_place(), early)] if early else []),
            *self._split_moves(late),
            *self._split_moves(final),
        ]
        return LoopCode(first, node, before, body, after, self._next_place())

    # Workspace layout.

    def _allocate_memories(self):
        """Assign an offset in the workspace to each memory."""
        self.memory_at: dict[int, int] = {}
        memory_end, common_end = 0, 0
        program = self.program
        for i, memory in program.memories.items():
            if memory.source is not None or memory.values is not None or i in program.output_index:
                continue
            size = memory.size * max(1, memory.dtype.itemsize)
            if i in program.common_memories:
                self.memory_at[i], common_end = common_end, -(-(common_end + size) // 64) * 64
            else:
                size *= self.width if i in program.varying_memories else 1
                self.memory_at[i], memory_end = memory_end, -(-(memory_end + size) // 64) * 64
        self.slots_offset, self.common_slots_offset = memory_end, common_end

    def _assign_slots(self):
        """Assign a slot to each number that is read in another piece, from its definition to its last use.

        Slots are reused. A number that is defined outside of a loop and read in it is live until the end of the loop.
        """
        program = self.program
        self.common_slot = {i: k for k, i in enumerate(sorted(program.common))}
        definition: dict[int, tuple[int, tuple[LoopCode, ...]]] = {}
        last_use: dict[int, int] = {}
        alias: dict[int, int] = {}

        def define(i, place, loops):
            definition[i] = place, loops

        def read(x, place, loops):
            if not isinstance(x, Number) or x.index in program.common:
                return
            i = alias.get(x.index, x.index)
            defined_at, outer_loops = definition[i]
            entered_loop = next((loop for loop in loops if loop not in outer_loops), None)
            place = place if entered_loop is None else entered_loop.last
            if place != defined_at or entered_loop is not None:
                last_use[i] = max(last_use.get(i, 0), place)

        def walk(actions, loops):
            for action in actions:
                if isinstance(action, Piece):
                    for item in action.items:
                        if isinstance(item, Move):
                            read(item.value, action.place, loops)
                            if item.mask is not None:
                                read(item.mask, action.place, loops)
                            continue
                        for x in program.operands_of(item):
                            read(x, action.place, loops)
                        if isinstance(item, int):
                            define(item, action.place, loops)
                elif isinstance(action, LoopCode):
                    node, inner_loops = action.node, (*loops, action)
                    for x in node.carried:
                        define(x.index, action.first, loops)
                        last_use[x.index] = action.last
                    if node.loop.length is not None:
                        define(node.loop.counter.index, action.first, loops)
                        last_use[node.loop.counter.index] = action.last
                    walk(action.before, loops)
                    walk(action.body, inner_loops)
                    walk(action.after, inner_loops)
                    for x, y in zip(node.results, node.carried, strict=True):
                        alias[x.index] = y.index
                else:
                    for x in action.node.results:
                        define(x.index, action.first, loops)
                        last_use[x.index] = action.last
                    for mask in action.node.masks:
                        read(mask, action.last, loops)
                    for case in action.cases:
                        walk(case, loops)

        walk(self.prologue, ())
        walk(self.per_chunk, ())
        self.slot: dict[int, int] = {}
        ending: dict[int, list[int]] = {}
        free: list[int] = []
        count = 0
        starting: dict[int, list[int]] = {}
        for i in last_use:
            starting.setdefault(definition[i][0], []).append(i)
        for place in range(self._count + 1):
            for i in starting.get(place, ()):
                if free:
                    self.slot[i] = free.pop()
                else:
                    self.slot[i], count = count, count + 1
                ending.setdefault(last_use[i], []).append(self.slot[i])
            if self.reuses_slots:
                free += ending.get(place, ())
        for x, y in alias.items():
            if y in self.slot:
                self.slot[x] = self.slot[y]
        self.slots = self.first_spill = count

    def place_of(self, memory: Memory) -> tuple[str, int]:
        """Return the pointer and the offset at which the entries of a memory begin."""
        if memory.values is not None:
            return self.table(memory), 0
        return "%common" if id(memory) in self.program.common_memories else "%ws", self.memory_at[id(memory)]

    def _slot_address(self, code, i):
        """Return the address of the slot of number i."""
        if i in self.common_slot:
            return code.add(f"getelementptr i8, ptr %common, i64 {self.common_slots_offset + 8 * self.common_slot[i]}")
        return code.add(f"getelementptr i8, ptr %ws, i64 {self.slots_offset + 8 * self.width * self.slot[i]}")

    def width_of(self, i):
        """Return the number of lanes of number i."""
        return self.width if i in self.program.varying else 1

    def width_of_memory(self, memory):
        """Return the number of lanes of an entry of a memory."""
        is_varying = id(memory) in self.program.varying_memories
        return self.width if is_varying else 1

    def put(self, code: Instructions, i: int, x: str) -> None:
        """Store number i in its slot."""
        self.put_at(code, self._slot_address(code, i), self.program.dtypes[i], self.width_of(i), x)

    def put_at(self, code, address, dtype, width, x):
        """Store a value in a slot; truth values as integers."""
        kind = scalar_type(dtype)
        if kind == "i1":
            stored_kind = "i64" if width > 1 else "i8"
            x = code.add(
                f"{'sext' if width > 1 else 'zext'} {vector_type('i1', width)} {x} to {vector_type(stored_kind, width)}"
            )
            kind = stored_kind
        code.do(f"store {vector_type(kind, width)} {x}, ptr {address}, align {_alignment(kind, width)}")

    def get(self, code: Instructions, i: int) -> str:
        """Load number i from its slot."""
        return self.get_at(code, self._slot_address(code, i), self.program.dtypes[i], self.width_of(i))

    def get_at(self, code, address, dtype, width):
        """Load a value from a slot."""
        kind = scalar_type(dtype)
        stored_kind = kind if kind != "i1" else "i64" if width > 1 else "i8"
        vector = vector_type(stored_kind, width)
        x = code.add(f"load {vector}, ptr {address}, align {_alignment(stored_kind, width)}")
        return (
            x if kind != "i1" else code.add(f"icmp ne {vector} {x}, {constant(_integer_type(stored_kind)(0), width)}")
        )

    # Straight-line code.

    def _write_piece(self, name, piece):
        """Write a piece as a function."""
        code = self.instructions()
        if piece.items and isinstance(piece.items[0], Move):
            self._write_moves(code, piece.items)
        else:
            Straight(self, code, piece).write()
        self._define(name, code)

    def fill(self, item: Fill) -> str:
        """Write a function that fills a memory, and return its name."""
        name, code, source = f"fill{self._fills}", self.instructions(), item.source
        self._fills += 1
        straight, kind = Straight(self, code, Piece(0, [])), scalar_type(item.memory.dtype)
        starts = ["0" if x is None else straight.value(x, 1) for x in (item.place, item.begin)]
        code.lines += ["  br label %head", "head:", "  %k = phi i64 [ 0, %entry ], [ %next, %body ]"]
        code.lines += [f"  %more = icmp slt i64 %k, {item.size}", "  br i1 %more, label %body, label %end"]
        code.lines.append("body:")
        index, begin = (code.add(f"add i64 %k, {start}") for start in starts)
        width = self.width_of_memory(item.memory)
        if isinstance(source, Memory):
            source_width = self.width_of_memory(source)
            x = straight.read(item.memory.dtype, source_width, straight.address(source, begin, 0))
            x = x if source_width == width else code.splat(x, kind, width)
        else:
            x = constant(source, width)
        straight.write_to(straight.address(item.memory, index, 0), item.memory.dtype, width, x)
        code.lines += ["  %next = add i64 %k, 1", "  br label %head", "end:"]
        self._define(name, code)
        return name

    def _define(self, name, code):
        """Append a function definition."""
        self.text += [f"define internal void @{name}({self.parameters}) #1 {{\nentry:", *code.lines, "  ret void\n}"]
        self.declared |= code.declared
        self.functions |= code.functions

    def _write_moves(self, code, moves):
        """Write moves: first all loads, then all stores."""
        loaded: dict[int, str] = {}

        def value(x, width):
            if not isinstance(x, Number):
                return constant(x, width)
            if x.index not in loaded:
                loaded[x.index] = self.get(code, x.index)
            lanes = self.width_of(x.index)
            return loaded[x.index] if lanes == width else code.splat(loaded[x.index], scalar_type(x.dtype), width)

        values = [value(x.value, self.width_of(x.target.index)) for x in moves]
        for move, x in zip(moves, values, strict=True):
            i, width = move.target.index, self.width_of(move.target.index)
            mask = move.mask
            if mask is not None and self.width > 1 and self.program.is_varying(mask):
                vector = vector_type(scalar_type(move.target.dtype), width)
                condition, old = value(mask, width), self.get(code, i)
                x = code.add(f"select {vector_type('i1', width)} {condition}, {vector} {x}, {vector} {old}")
            self.put(code, i, x)

    # Control flow.

    def _write_control(self, name, actions):
        """Write a function that calls pieces in loops and choices."""
        code = self.instructions()
        self._labels = 0
        self._write_actions(code, name, actions)
        self._define(name, code)

    def _label(self):
        """Return an unused label."""
        self._labels += 1
        return f"l{self._labels}"

    def _write_actions(self, code, name, actions):
        """Write calls of pieces, loops and choices."""
        for action in actions:
            if isinstance(action, Piece):
                function = f"piece{action.place}"
                self._write_piece(function, action)
                code.do(f"call void @{function}({self.arguments})")
            elif isinstance(action, LoopCode):
                self._write_loop(code, name, action)
            else:
                self._write_choice(code, name, action)

    def _write_loop(self, code, name, action):
        """Write a loop; it ends when the counter reaches the length, or when no member continues."""
        loop = action.node.loop
        self._write_actions(code, name, action.before)
        counter = loop.counter.index
        head, body, end = self._label(), self._label(), self._label()
        if loop.length is not None:
            address = self._slot_address(code, counter)
            width = self.width_of(counter)
            vector = vector_type("i64", width)
            code.do(f"store {vector} {constant(np.int64(0), width)}, ptr {address}, align {_alignment('i64', width)}")
            code.do(f"br label %{head}\n{head}:")
            iteration = code.add(f"load i64, ptr {address}")
            code.do(
                f"br i1 {code.add(f'icmp slt i64 {iteration}, {loop.length}')}, label %{body}, label %{end}\n{body}:"
            )
            self._write_actions(code, name, [*action.body, *action.after])
            previous = code.add(f"load {vector}, ptr {address}, align {_alignment('i64', width)}")
            incremented = code.add(f"add {vector} {previous}, {constant(np.int64(1), width)}")
            code.do(f"store {vector} {incremented}, ptr {address}, align {_alignment('i64', width)}")
        else:
            code.do(f"br label %{head}\n{head}:")
            code.do(f"br i1 {self._any(code, loop.counter)}, label %{body}, label %{end}\n{body}:")
            self._write_actions(code, name, [*action.body, *action.after])
        code.do(f"br label %{head}\n{end}:")

    def _write_choice(self, code, name, action):
        """Write a choice: each case is executed if its mask holds for any member."""
        for mask, case in zip(action.node.masks, action.cases, strict=True):
            body, end = self._label(), self._label()
            code.do(f"br i1 {self._any(code, mask)}, label %{body}, label %{end}\n{body}:")
            self._write_actions(code, name, case)
            code.do(f"br label %{end}\n{end}:")

    def _any(self, code, x):
        """Return whether a truth value holds for any member."""
        if not isinstance(x, Number):
            return constant(x, 1)
        value = self.get(code, x.index)
        if self.width_of(x.index) == 1:
            return value
        bits = code.add(f"bitcast <{self.width} x i1> {value} to i{self.width}")
        return code.add(f"icmp ne i{self.width} {bits}, 0")

    # Constant tables.

    def table(self, memory: Memory) -> str:
        """Return the name of the constant table of a memory."""
        if id(memory) not in self.tables:
            self.tables[id(memory)] = f"@table{len(self.tables)}", memory
        return self.tables[id(memory)][0]

    @property
    def constants(self) -> Iterator[str]:
        """Definitions of the constant tables."""
        for name, memory in self.tables.values():
            kind = scalar_type(memory.dtype)
            values = memory.values
            if kind == "i1":
                kind, values = "i8", values.astype(np.int8)
            body = ", ".join(f"{kind} {constant(x, 1)}" for x in values)
            yield f"{name} = internal constant [{values.size} x {kind}] [{body}], align 64"


def _integer_type(kind):
    """Return the NumPy type of an LLVM integer type."""
    return {"i8": np.int8, "i64": np.int64}[kind]


def _bits(kind):
    """Return the size of an LLVM type [bits]."""
    return {"double": 64, "float": 32}.get(kind) or int(kind[1:])


def _alignment(kind, width):
    """Return the alignment of a vector in a slot [bytes]."""
    return max(1, _bits(kind) // 8) * width


def _readers_of(program):
    """Return the ids of the runs that read each number; 0 stands for any other reader."""
    readers: dict[int, set[int]] = {}

    def read(x, reader):
        if isinstance(x, Number):
            readers.setdefault(x.index, set()).add(reader)

    def walk(nodes):
        for node in nodes:
            if isinstance(node, Run):
                for item in node.items:
                    for x in program.operands_of(item):
                        read(x, id(node))
            elif isinstance(node, LoopNode):
                for x in (*node.begin, *node.following, node.loop.counter):
                    read(x, 0)
                walk(node.body)
            else:
                for part in (node.masks, *node.outcomes):
                    for x in part:
                        read(x, 0)
                for case in node.cases:
                    walk(case)

    walk(program.prologue)
    walk(program.per_chunk)
    return readers
