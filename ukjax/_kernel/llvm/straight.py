"""Translate the operations, loads and stores of one straight-line piece of a program to LLVM instructions."""

from typing import Any, NamedTuple

import numpy as np

from ..graph.graph import INPUT, LOAD, Fill, Store
from ..graph.number import Number, Operand
from .instructions import FLOATS, Instructions, constant, scalar_type, vector_type

ARGUMENTS = "ptr %ws, ptr %common, ptr %ins, ptr %outs, i64 %members, i64 %m"
PARAMETERS = "ptr noalias %ws, ptr noalias %common, ptr noalias %ins, ptr noalias %outs, i64 %members, i64 %m"


class Piece(NamedTuple):
    """Straight-line code; ``place`` is its position in the order of all pieces."""

    place: int
    items: list[Any]


class Straight:
    """Writes the code of one piece.

    Values of the piece are kept in LLVM names. If they exceed the registers, values are spilled to the workspace, first
    those whose next use is the most distant one (Belady's rule).

    Attributes
    ----------
    assembly
        The module, which assigns slots of the workspace.
    names
        LLVM names of available values.
    in_registers
        Values that occupy registers.
    uses
        Places in the piece at which each value is used, next use last.
    spilled, free, top
        Spill slots in use, free spill slots, and the end of the workspace slots.
    """

    def __init__(self, assembly: Any, code: Instructions, piece: Piece):
        self.assembly, self.code, self.piece = assembly, code, piece
        self.program, self.width = assembly.program, assembly.width
        self.names: dict[int, str] = {}
        self.in_registers: dict[int, None] = {}
        self.uses: dict[int, list[int]] = {}
        for place, item in enumerate(piece.items):
            for x in self.program.operands_of(item):
                if isinstance(x, Number):
                    self.uses.setdefault(x.index, []).append(place)
        self.uses = {i: places[::-1] for i, places in self.uses.items()}  # next use last, so that it can be popped
        self.spilled: dict[int, int] = {}
        self.free: list[int] = []
        self.top = assembly.first_spill

    def write(self) -> None:
        """Write all items of the piece."""
        for place, item in enumerate(self.piece.items):
            if isinstance(item, Fill):
                self.code.do(f"call void @{self.assembly.fill(item)}({self.assembly.arguments})")
                continue
            if isinstance(item, Store):
                read = {x.index for x in self.program.operands_of(item) if isinstance(x, Number)}
                self._load_operands(read)
                self._store(item)
                self._release(read, place)
                continue
            _, _, operands = self.program.operations[item]
            read = {x.index for x in operands if isinstance(x, Number)}
            self._load_operands(read)
            result = self.operation(item)
            self._release(read, place)
            if item in self.assembly.slot or item in self.assembly.common_slot:
                self.assembly.put(self.code, item, result)
            if self.uses.get(item):
                self.names[item] = result
                self._occupy_register(item)
                self._evict({item})
        self.assembly.slots = max(self.assembly.slots, self.top)

    def _occupy_register(self, i):
        """Note that a floating-point value of each member occupies a register."""
        if i in self.program.varying and self.program.dtypes[i] in FLOATS:
            self.in_registers[i] = None

    def _load_operands(self, operands):
        """Load operands that are not available."""
        for i in operands:
            if i in self.names or (self.width > 1 and i not in self.program.varying):
                continue
            if i in self.spilled:
                self.names[i] = self.assembly.get_at(
                    self.code, self._spill_address(self.spilled[i]), self.program.dtypes[i], self.assembly.width_of(i)
                )
            else:
                self.names[i] = self.assembly.get(self.code, i)
            self._occupy_register(i)
        self._evict(operands)

    def _spill_address(self, slot):
        return self.code.add(f"getelementptr i8, ptr %ws, i64 {self.assembly.slots_offset + 8 * self.width * slot}")

    def _evict(self, keep):
        """Spill values until the others fit the registers; never those in ``keep``."""
        while len(self.in_registers) > self.assembly.registers:
            i = max((x for x in self.in_registers if x not in keep), key=lambda x: self.uses[x][-1], default=None)
            if i is None:
                return
            if i not in self.assembly.slot and i not in self.spilled:
                if self.free:
                    self.spilled[i] = self.free.pop()
                else:
                    self.spilled[i], self.top = self.top, self.top + 1
                self.assembly.put_at(
                    self.code,
                    self._spill_address(self.spilled[i]),
                    self.program.dtypes[i],
                    self.assembly.width_of(i),
                    self.names[i],
                )
            del self.in_registers[i], self.names[i]

    def _release(self, operands, place):
        """Forget operands that have no use after ``place``."""
        for i in operands:
            uses = self.uses[i]
            while uses and uses[-1] <= place:
                uses.pop()
            if not uses:
                self.in_registers.pop(i, None)
                self.names.pop(i, None)
                if i in self.spilled:
                    self.free.append(self.spilled.pop(i))

    def value(self, x: Operand, width: int) -> str:
        """Return the LLVM name of an operand, as a vector of this width."""
        if not isinstance(x, Number):
            return constant(x, width)
        name = self.names.get(x.index)
        if name is None:  # the same for all members: loaded at each use, so that it occupies no register
            name = self.assembly.get(self.code, x.index)
        return name if self.assembly.width_of(x.index) == width else self.code.splat(name, scalar_type(x.dtype), width)

    def operation(self, i: int) -> str:
        """Write an operation and return the name of its result."""
        name, parameters, operands = self.program.operations[i]
        width, dtype = self.assembly.width_of(i), self.program.dtypes[i]
        if name == INPUT:
            argument, place = self.program.input_place[i]
            return self.read(dtype, width, self._input_address(argument, dtype, place, None))
        if name == LOAD:
            return self._load(parameters["memory"], operands[0] if operands else None, parameters["offset"], width)
        kinds = [self.program.kind(x) for x in operands]
        arguments = [self.value(x, width) for x in operands]
        if name == "select_n" and kinds[0].kind == "b" and width > 1 and not self.program.is_varying(operands[0]):
            arguments[0] = "scalar " + self.value(operands[0], 1)
        return self.code.operation(name, parameters, kinds, dtype, width, arguments)

    # A memory is accessed at the address of the first member's entry, or at a vector of addresses.

    def _input_address(self, argument, dtype, place, index):
        """Return the address of an entry of an argument, at ``place`` + ``index``."""
        base = self._pointer("%ins", argument)
        return self._entry(base, dtype, place, index, self.program.mapped[argument])

    def _pointer(self, which, k):
        """Return pointer k of an array of pointers."""
        address = self.code.add(f"getelementptr ptr, ptr {which}, i64 {k}")
        return self.code.add(f"load ptr, ptr {address}")

    def _entry(self, base, dtype, place, index, is_mapped):
        """Return the address of an entry of an XLA buffer: row-major, with the members as last axis."""
        add, size = self.code.add, max(1, dtype.itemsize)
        offset = str(place) if index is None else add(f"add i64 {index}, {place}")
        if is_mapped:
            row = add(f"mul i64 {offset}, %members")
            offset = add(f"add i64 {row}, %m")
        return add(f"getelementptr i8, ptr {base}, i64 {add(f'mul i64 {offset}, {size}')}")

    def address(self, memory, index, offset):
        """Return the address of an entry of a memory, for an ``index`` that is the same for all members."""
        add, size, program = self.code.add, max(1, memory.dtype.itemsize), self.program
        if memory.source is not None:
            return self._input_address(memory.source, memory.dtype, offset, index)
        if id(memory) in program.output_index:
            base = self._pointer("%outs", program.output_index[id(memory)])
            return self._entry(base, memory.dtype, offset, index, not program.unbatched)
        step = size * (self.width if id(memory) in program.varying_memories else 1)
        base, start = self.assembly.place_of(memory)
        if index is None:
            return add(f"getelementptr i8, ptr {base}, i64 {start + offset * step}")
        offset_bytes = add(f"mul i64 {index}, {step}")
        return add(f"getelementptr i8, ptr {base}, i64 {add(f'add i64 {offset_bytes}, {start + offset * step}')}")

    def _addresses(self, memory, index, offset):
        """Return the addresses of the entries of all members, for a vector ``index``."""
        add, width, program = self.code.add, self.width, self.program
        size = max(1, memory.dtype.itemsize)
        vector, lanes = f"<{width} x i64>", ", ".join(f"i64 {k * size}" for k in range(width))
        output = program.output_index.get(id(memory))
        if memory.source is not None or output is not None:
            is_mapped = program.mapped[memory.source] if memory.source is not None else True
            step = (
                self.code.splat(add(f"mul i64 %members, {size}"), "i64", width)
                if is_mapped
                else constant(np.int64(size), width)
            )
            base = self._pointer("%ins", memory.source) if memory.source is not None else self._pointer("%outs", output)
            if is_mapped:
                base = add(f"getelementptr i8, ptr {base}, i64 {add(f'mul i64 %m, {size}')}")
            start = 0
        else:
            is_mapped = id(memory) in program.varying_memories
            step = constant(np.int64(size * (width if is_mapped else 1)), width)
            base, start = self.assembly.place_of(memory)
        offsets = add(f"add {vector} {index}, {constant(np.int64(offset), width)}")
        offsets = add(f"mul {vector} {offsets}, {step}")
        if is_mapped:
            offsets = add(f"add {vector} {offsets}, <{lanes}>")
        offsets = add(f"add {vector} {offsets}, {constant(np.int64(start), width)}")
        return add(f"getelementptr i8, ptr {base}, {vector} {offsets}")

    def read(self, dtype, width, address):
        """Load ``width`` numbers from an address."""
        kind = scalar_type(dtype)
        stored_kind = "i8" if kind == "i1" else kind
        vector = vector_type(stored_kind, width)
        x = self.code.add(f"load {vector}, ptr {address}, align {max(1, dtype.itemsize)}")
        return x if kind != "i1" else self.code.add(f"icmp ne {vector} {x}, {constant(np.int8(0), width)}")

    def write_to(self, address: str, dtype: np.dtype, width: int, x: str) -> None:
        """Store ``width`` numbers at an address."""
        kind = scalar_type(dtype)
        if kind == "i1":
            kind = "i8"
            x = self.code.add(f"zext {vector_type('i1', width)} {x} to {vector_type(kind, width)}")
        self.code.do(f"store {vector_type(kind, width)} {x}, ptr {address}, align {max(1, dtype.itemsize)}")

    def _load(self, memory, index, offset, width):
        """Load an entry of a memory; by a gather if the index differs between members."""
        dtype = memory.dtype
        if index is None or not self.program.is_varying(index) or self.width == 1:
            scalar_index = None if index is None else self.value(index, 1)
            memory_width = self.assembly.width_of_memory(memory)
            x = self.read(dtype, memory_width, self.address(memory, scalar_index, offset))
            return x if memory_width == width else self.code.splat(x, scalar_type(dtype), width)
        kind = scalar_type(dtype)
        stored_kind = "i8" if kind == "i1" else kind
        vector = vector_type(stored_kind, width)
        pointers = self._addresses(memory, self.value(index, width), offset)
        name = f"masked.gather.v{width}{_mangled(stored_kind)}.v{width}p0"
        size = max(1, dtype.itemsize)
        declared = f"declare {vector} @llvm.{name}(<{width} x ptr>, i32, <{width} x i1>, {vector})"
        self.code.declared.add(declared)
        ones = constant(np.bool_(True), width)
        x = self.code.add(
            f"call {vector} @llvm.{name}"
            f"(<{width} x ptr> {pointers}, i32 {size}, <{width} x i1> {ones}, {vector} poison)"
        )
        return x if kind != "i1" else self.code.add(f"icmp ne {vector} {x}, {constant(np.int8(0), width)}")

    def _store(self, store):
        """Store an entry of a memory; by a scatter if the index differs between members."""
        memory, index, code = store.memory, store.index, self.code
        width, dtype = self.assembly.width_of_memory(memory), memory.dtype
        x, kind = self.value(store.value, width), scalar_type(dtype)
        if kind == "i1":
            kind = "i8"
            x = code.add(f"zext {vector_type('i1', width)} {x} to {vector_type(kind, width)}")
        vector, size = vector_type(kind, width), max(1, dtype.itemsize)
        mask = None
        for condition in store.masks if self.width > 1 else ():
            if self.program.is_varying(condition):
                lanes = self.value(condition, width)
                mask = lanes if mask is None else code.add(f"and <{width} x i1> {mask}, {lanes}")
        if index is not None and self.program.is_varying(index) and self.width > 1:
            pointers = self._addresses(memory, self.value(index, width), store.offset)
            name = f"masked.scatter.v{width}{_mangled(kind)}.v{width}p0"
            code.declared.add(f"declare void @llvm.{name}({vector}, <{width} x ptr>, i32, <{width} x i1>)")
            mask = constant(np.bool_(True), width) if mask is None else mask
            code.do(
                f"call void @llvm.{name}({vector} {x}, <{width} x ptr> {pointers}, i32 {size}, <{width} x i1> {mask})"
            )
            return
        address = self.address(memory, None if index is None else self.value(index, 1), store.offset)
        if mask is not None:
            old = code.add(f"load {vector}, ptr {address}, align {size}")
            x = code.add(f"select <{width} x i1> {mask}, {vector} {x}, {vector} {old}")
        code.do(f"store {vector} {x}, ptr {address}, align {size}")


def _mangled(kind):
    """Return the name of a type in the names of LLVM intrinsics."""
    return {"double": "f64", "float": "f32"}.get(kind, kind)
