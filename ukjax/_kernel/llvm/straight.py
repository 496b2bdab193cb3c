"""Straight code: operations, loads and stores of one piece of a program, as instructions of LLVM."""

from typing import Any, NamedTuple

import numpy as np

from ..graph.graph import INPUT, LOAD, Fill, Store
from ..graph.number import Number, Operand
from .instructions import FLOATS, Instructions, constant, scalar_type, vector_type

ARGUMENTS = "ptr %ws, ptr %common, ptr %ins, ptr %outs, i64 %members, i64 %m"
PASSED = "ptr noalias %ws, ptr noalias %common, ptr noalias %ins, ptr noalias %outs, i64 %members, i64 %m"


class Piece(NamedTuple):
    """Straight code, at a place in the order of all."""

    place: int
    items: list[Any]


class Straight:
    """The code of one piece of an ``assembly``, which knows where numbers are (see there)."""

    def __init__(self, assembly: Any, code: Instructions, piece: Piece):
        self.a, self.code, self.piece = assembly, code, piece
        self.program, self.width = assembly.program, assembly.width
        self.names: dict[int, str] = {}
        self.held: dict[int, None] = {}
        self.uses: dict[int, list[int]] = {}
        for place, item in enumerate(piece.items):
            for x in self.program.operands_of(item):
                if isinstance(x, Number):
                    self.uses.setdefault(x.index, []).append(place)
        self.uses = {i: places[::-1] for i, places in self.uses.items()}  # the next is the last
        self.spilled: dict[int, int] = {}
        self.free: list[int] = []
        self.top = assembly.first_spill

    def write(self) -> None:
        for place, item in enumerate(self.piece.items):
            if isinstance(item, Fill):
                self.code.do(f"call void @{self.a.fill(item)}({ARGUMENTS})")
                continue
            if isinstance(item, Store):
                here = {x.index for x in self.program.operands_of(item) if isinstance(x, Number)}
                self._bring(here)
                self._store(item)
                self._used(here, place)
                continue
            _, _, operands = self.program.operations[item]
            here = {x.index for x in operands if isinstance(x, Number)}
            self._bring(here)
            found = self._operation(item)
            self._used(here, place)
            if item in self.a.slot or item in self.a.common_slot:
                self.a.put(self.code, item, found)
            if self.uses.get(item):
                self.names[item] = found
                self._hold(item)
                self._evict({item})
        self.a.slots = max(self.a.slots, self.top)

    def _hold(self, i):
        if i in self.program.own and self.program.dtypes[i] in FLOATS:
            self.held[i] = None

    def _bring(self, here):
        for i in here:
            if i in self.names or (self.width > 1 and i not in self.program.own):
                continue
            if i in self.spilled:
                self.names[i] = self.a.get_at(
                    self.code, self._spill_address(self.spilled[i]), self.program.dtypes[i], self.a.shape_of(i)
                )
            else:
                self.names[i] = self.a.get(self.code, i)
            self._hold(i)
        self._evict(here)

    def _spill_address(self, slot):
        return self.code.add(f"getelementptr i8, ptr %ws, i64 {self.a.first_slot + 8 * self.width * slot}")

    def _evict(self, keep):
        while len(self.held) > self.a.registers:
            i = max((x for x in self.held if x not in keep), key=lambda x: self.uses[x][-1], default=None)
            if i is None:
                return
            if i not in self.a.slot and i not in self.spilled:
                if self.free:
                    self.spilled[i] = self.free.pop()
                else:
                    self.spilled[i], self.top = self.top, self.top + 1
                self.a.put_at(
                    self.code,
                    self._spill_address(self.spilled[i]),
                    self.program.dtypes[i],
                    self.a.shape_of(i),
                    self.names[i],
                )
            del self.held[i], self.names[i]

    def _used(self, here, place):
        for i in here:
            left = self.uses[i]
            while left and left[-1] <= place:
                left.pop()
            if not left:
                self.held.pop(i, None)
                self.names.pop(i, None)
                if i in self.spilled:
                    self.free.append(self.spilled.pop(i))

    def value(self, x: Operand, width: int) -> str:
        """An operand, as so many numbers side by side."""
        if not isinstance(x, Number):
            return constant(x, width)
        name = self.names.get(x.index)
        if name is None:  # common to all members, and loaded anew at each use: that takes no register
            name = self.a.get(self.code, x.index)
        return name if self.a.shape_of(x.index) == width else self.code.splat(name, scalar_type(x.dtype), width)

    def _operation(self, i):
        name, parameters, operands = self.program.operations[i]
        width, dtype = self.a.shape_of(i), self.program.dtypes[i]
        if name == INPUT:
            argument, place = self.program.argument[i]
            return self.read(dtype, width, self._input_address(argument, dtype, place, None))
        if name == LOAD:
            return self._load(parameters["memory"], operands[0] if operands else None, parameters["offset"], width)
        kinds = [self.program.kind(x) for x in operands]
        arguments = [self.value(x, width) for x in operands]
        if name == "select_n" and kinds[0].kind == "b" and width > 1 and not self.program.is_own(operands[0]):
            arguments[0] = "scalar " + self.value(operands[0], 1)
        return self.code.operation(name, parameters, kinds, dtype, width, arguments)

    # Memory is reached by the address of the first member's number, or of each member's.

    def _input_address(self, argument, dtype, place, index):
        """Of an argument's number; ``index`` is added to the place: (its name, whether it is one for each member)."""
        base = self._pointer("%ins", argument)
        return self._entry(base, dtype, place, index, self.program.mapped[argument])

    def _pointer(self, which, k):
        address = self.code.add(f"getelementptr ptr, ptr {which}, i64 {k}")
        return self.code.add(f"load ptr, ptr {address}")

    def _entry(self, base, dtype, place, index, by_member):
        """Where an array that XLA holds has an entry: in row-major order, members last."""
        add, size = self.code.add, max(1, dtype.itemsize)
        at = str(place) if index is None else add(f"add i64 {index}, {place}")
        if by_member:
            row = add(f"mul i64 {at}, %members")
            at = add(f"add i64 {row}, %m")
        return add(f"getelementptr i8, ptr {base}, i64 {add(f'mul i64 {at}, {size}')}")

    def address(self, memory, index, offset):
        """Where a memory has an entry; ``index`` is one for all members."""
        add, size, program = self.code.add, max(1, memory.dtype.itemsize), self.program
        if memory.source is not None:
            return self._input_address(memory.source, memory.dtype, offset, index)
        if id(memory) in program.placed:
            base = self._pointer("%outs", program.placed[id(memory)])
            return self._entry(base, memory.dtype, offset, index, not program.alone)
        step = size * (self.width if id(memory) in program.own_memories else 1)
        if memory.values is not None:
            base, start = self.a.table(memory), 0
        else:
            base = "%common" if id(memory) in program.common_memories else "%ws"
            start = self.a.memory_at[id(memory)]
        if index is None:
            return add(f"getelementptr i8, ptr {base}, i64 {start + offset * step}")
        at = add(f"mul i64 {index}, {step}")
        return add(f"getelementptr i8, ptr {base}, i64 {add(f'add i64 {at}, {start + offset * step}')}")

    def _addresses(self, memory, index, offset):
        """The same where ``index`` is a vector of one for each member: a vector of addresses."""
        add, width, program = self.code.add, self.width, self.program
        size = max(1, memory.dtype.itemsize)
        whole, lanes = f"<{width} x i64>", ", ".join(f"i64 {k * size}" for k in range(width))
        placed = program.placed.get(id(memory))
        if memory.source is not None or placed is not None:
            by_member = program.mapped[memory.source] if memory.source is not None else True
            step = (
                self.code.splat(add(f"mul i64 %members, {size}"), "i64", width)
                if by_member
                else constant(np.int64(size), width)
            )
            base = self._pointer("%ins", memory.source) if memory.source is not None else self._pointer("%outs", placed)
            if by_member:
                base = add(f"getelementptr i8, ptr {base}, i64 {add(f'mul i64 %m, {size}')}")
            start = 0
        else:
            by_member = id(memory) in program.own_memories
            step = constant(np.int64(size * (width if by_member else 1)), width)
            if memory.values is not None:
                base, start = self.a.table(memory), 0
            else:
                base = "%common" if id(memory) in program.common_memories else "%ws"
                start = self.a.memory_at[id(memory)]
        at = add(f"add {whole} {index}, {constant(np.int64(offset), width)}")
        at = add(f"mul {whole} {at}, {step}")
        if by_member:
            at = add(f"add {whole} {at}, <{lanes}>")
        at = add(f"add {whole} {at}, {constant(np.int64(start), width)}")
        return add(f"getelementptr i8, ptr {base}, {whole} {at}")

    def read(self, dtype, width, address):
        kind = scalar_type(dtype)
        wide = "i8" if kind == "i1" else kind
        whole = vector_type(wide, width)
        x = self.code.add(f"load {whole}, ptr {address}, align {max(1, dtype.itemsize)}")
        return x if kind != "i1" else self.code.add(f"icmp ne {whole} {x}, {constant(np.int8(0), width)}")

    def write_to(self, address: str, dtype: np.dtype, width: int, x: str) -> None:
        """Store numbers side by side."""
        kind = scalar_type(dtype)
        if kind == "i1":
            kind = "i8"
            x = self.code.add(f"zext {vector_type('i1', width)} {x} to {vector_type(kind, width)}")
        self.code.do(f"store {vector_type(kind, width)} {x}, ptr {address}, align {max(1, dtype.itemsize)}")

    def _load(self, memory, index, offset, width):
        dtype = memory.dtype
        if index is None or not self.program.is_own(index) or self.width == 1:
            at = None if index is None else self.value(index, 1)
            own = self.a.shape_of_memory(memory)
            x = self.read(dtype, own, self.address(memory, at, offset))
            return x if own == width else self.code.splat(x, scalar_type(dtype), width)
        kind = scalar_type(dtype)
        wide = "i8" if kind == "i1" else kind
        whole = vector_type(wide, width)
        pointers = self._addresses(memory, self.value(index, width), offset)
        name = f"masked.gather.v{width}{_mangled(wide)}.v{width}p0"
        size = max(1, dtype.itemsize)
        declared = f"declare {whole} @llvm.{name}(<{width} x ptr>, i32, <{width} x i1>, {whole})"
        self.code.declared.add(declared)
        ones = constant(np.bool_(True), width)
        x = self.code.add(
            f"call {whole} @llvm.{name}(<{width} x ptr> {pointers}, i32 {size}, <{width} x i1> {ones}, {whole} poison)"
        )
        return x if kind != "i1" else self.code.add(f"icmp ne {whole} {x}, {constant(np.int8(0), width)}")

    def _store(self, store):
        memory, index, code = store.memory, store.index, self.code
        width, dtype = self.a.shape_of_memory(memory), memory.dtype
        x, kind = self.value(store.value, width), scalar_type(dtype)
        if kind == "i1":
            kind = "i8"
            x = code.add(f"zext {vector_type('i1', width)} {x} to {vector_type(kind, width)}")
        whole, size = vector_type(kind, width), max(1, dtype.itemsize)
        mask = None
        for each in store.masks if self.width > 1 else ():
            if self.program.is_own(each):
                held = self.value(each, width)
                mask = held if mask is None else code.add(f"and <{width} x i1> {mask}, {held}")
        if index is not None and self.program.is_own(index) and self.width > 1:
            pointers = self._addresses(memory, self.value(index, width), store.offset)
            name = f"masked.scatter.v{width}{_mangled(kind)}.v{width}p0"
            code.declared.add(f"declare void @llvm.{name}({whole}, <{width} x ptr>, i32, <{width} x i1>)")
            mask = constant(np.bool_(True), width) if mask is None else mask
            code.do(
                f"call void @llvm.{name}({whole} {x}, <{width} x ptr> {pointers}, i32 {size}, <{width} x i1> {mask})"
            )
            return
        address = self.address(memory, None if index is None else self.value(index, 1), store.offset)
        if mask is not None:
            old = code.add(f"load {whole}, ptr {address}, align {size}")
            x = code.add(f"select <{width} x i1> {mask}, {whole} {x}, {whole} {old}")
        code.do(f"store {whole} {x}, ptr {address}, align {size}")


def _mangled(kind):
    return {"double": "f64", "float": "f32"}.get(kind, kind)
