"""Translate a program to an LLVM module for a GPU, with one thread for each member.

The code of a member is that of the CPU's kernels with vectors of one lane. The difference is where values are stored:
all functions become one, and each slot of the workspace is used for one value, so that LLVM turns slots into registers.
Arrays that are addressed by index are in the local memory of the thread. Values that are the same for all members are
computed by the first thread of each block, in shared memory.
"""

from collections.abc import Sequence

from ..graph.graph import Memory, TooLarge
from ..llvm.ffi_call import Buffer
from ..llvm.instructions import Instructions, scalar_type
from ..llvm.module import Assembly
from ..llvm.program import Program
from ..llvm.straight import Piece, Straight
from ..unsupported import Unsupported
from .libdevice import path as libdevice_path
from .rare import RARE, rare_function

THREADS = 128
"""Largest number of threads in a block. Each thread can then have 255 registers."""

MAX_SHARED_BYTES = 32 * 2**10
"""Largest size of the values that are the same for all members and are kept in shared memory [bytes]; above it, each
thread has its own. A block may have 48 KiB."""

MAX_LIVE = 1000
"""Largest number of values that pieces of code pass to each other, for which ptxas assigns all registers. A kernel with
more of them gets 32 registers. Then the values stay in local memory, and only those of a piece are in registers, as in
the CPU's kernels."""

PIECE_REGISTERS = 100
"""Number of values of a piece that are in registers, if the others are in local memory."""

MAX_LOCAL_BYTES = 32 * 2**10
"""Largest local memory of a thread [bytes]. The driver reserves it for all threads that a GPU can hold, on an H100 9 GB
for this size. Reverse mode keeps the start of each step there."""

MAX_BUFFERS = 500
"""Largest number of arguments and results: the parameters of a kernel have 4 KiB."""

KERNEL = """
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)
SHARED
define ptx_kernel void @kernel(PARAMETERS) #0 {
entry:
  %ins = alloca [INS x ptr]
  %outs = alloca [OUTS x ptr]
POINTERS
  %thread = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %threads = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %block = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
PROLOGUE
member:
  %thread64 = zext i32 %thread to i64
  %threads64 = zext i32 %threads to i64
  %block64 = zext i32 %block to i64
  %before = mul i64 %block64, %threads64
  %m = add i64 %before, %thread64
  %inside = icmp slt i64 %m, %members
  br i1 %inside, label %run, label %end
run:
  call void @member(ptr %common, ptr %ins, ptr %outs, i64 %members, i64 %m)
  br label %end
end:
  ret void
}
"""

OWN_COMMON = """  %common = alloca [SIZE x i8], align 64
  call void @once(ptr %common, ptr %ins, ptr %outs, i64 %members)
  br label %member"""

SHARED_COMMON = """  %common = addrspacecast ptr addrspace(3) @shared to ptr
  %first = icmp eq i32 %thread, 0
  br i1 %first, label %once, label %wait
once:
  call void @once(ptr %common, ptr %ins, ptr %outs, i64 %members)
  br label %wait
wait:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  br label %member"""


OWN_FUNCTIONS = RARE.keys() | {"logistic", "tanh"}
"""Elementary functions that are arithmetic in all kernels. Others come from a library."""


def has_library() -> bool:
    """Return whether functions of NVIDIA's library can be compiled."""
    return libdevice_path() is not None


class ThreadInstructions(Instructions):
    """Instructions for a GPU, which has no C library."""

    def library(self, name: str, kind: str, width: int, *arguments: str) -> str:
        if name not in RARE:
            if not has_library():
                raise Unsupported(f"{name} on a GPU needs NVIDIA's libdevice, which was not found")
            name = name if kind == "double" else f"{name}f"
            self.functions.add(name)
            function = f"@__nv_{name}"
            self.declared.add(f"declare {kind} {function}({', '.join([kind] * len(arguments))})")
            return self.add(f"call {kind} {function}({', '.join(f'{kind} {x}' for x in arguments)})")
        self.functions.add(name)
        (x,) = arguments
        if kind == "double":
            return self.add(f"call double @rare_{name}(double {x})")
        wide = self.add(f"fpext {kind} {x} to double")
        return self.add(f"fptrunc double {self.add(f'call double @rare_{name}(double {wide})')} to {kind}")


class ThreadAssembly(Assembly):
    """The code of one member for one thread.

    Attributes
    ----------
    memory_name
        Parameter that points to each memory of the workspace, by the memory's id.
    memory_size
        Size of these memories [bytes], by that parameter.
    common_size
        Size of the values that are the same for all members [bytes].
    in_memory
        Whether slots stay in local memory. Otherwise LLVM makes registers of them, and ptxas spills.
    """

    instructions = ThreadInstructions

    def __init__(self, program: Program):
        super().__init__(program, width=1, registers=PIECE_REGISTERS)
        self.common_size = self.common_slots_offset + 8 * len(self.common_slot)

    def _allocate_memories(self):
        super()._allocate_memories()
        self.slots_offset = 0
        self.memory_name: dict[int, str] = {}
        self.memory_size: dict[str, int] = {}
        for i in self.memory_at:
            if i not in self.program.common_memories:
                memory = self.program.memories[i]
                name = self.memory_name[i] = f"%memory{len(self.memory_name)}"
                self.memory_size[name] = memory.size * max(1, memory.dtype.itemsize)
        self.arguments += "".join(f", ptr {name}" for name in self.memory_size)
        self.parameters += "".join(f", ptr noalias {name}" for name in self.memory_size)

    def _assign_slots(self):
        super()._assign_slots()
        self.in_memory = self.slots > MAX_LIVE
        if not self.in_memory:  # each slot has one type and one value: then LLVM makes a register of it
            self.reuses_slots, self.registers = False, 2**62
            super()._assign_slots()

    @property
    def local_size(self) -> int:
        """Size of the arrays of a thread, and of its slots if they are in memory [bytes]."""
        return sum(self.memory_size.values()) + (8 * self.slots if self.in_memory else 0)

    def place_of(self, memory: Memory) -> tuple[str, int]:
        name = self.memory_name.get(id(memory))
        return (name, 0) if name is not None else super().place_of(memory)

    def get(self, code: Instructions, i: int) -> str:
        """Load number i from its slot, or from the argument, so that it occupies no register before its use."""
        if i not in self.program.input_place or i in self.common_slot:
            return super().get(code, i)
        return Straight(self, code, Piece(0, [])).operation(i)

    def _write_choice(self, code, name, action):
        """Write a choice. Its results are undefined before it, so that no earlier value is stored for them."""
        for x in () if self.in_memory else action.node.results:
            if x.index in self.slot:
                kind = scalar_type(x.dtype)
                code.do(f"store {'i8' if kind == 'i1' else kind} poison, ptr {self._slot_address(code, x.index)}")
        super()._write_choice(code, name, action)

    def entry_points(self) -> str:
        """Return the functions ``once``, which computes the common values, and ``member``."""
        space = f"alloca [{max(1, self.slots)} x i64], align 8"
        allocations = [f"  %ws = {space}"]
        if self.in_memory:  # an offset that is zero at run time only keeps LLVM from making registers of the slots
            allocations = [
                f"  %space = {space}",
                "  %zero = lshr i64 %members, 63",
                "  %ws = getelementptr i8, ptr %space, i64 %zero",
            ]
        allocations += [f"  {name} = alloca [{size} x i8], align 64" for name, size in self.memory_size.items()]
        body = "\n".join(allocations)
        return f"""
define internal void @once(ptr noalias %common, ptr noalias %ins, ptr noalias %outs, i64 %members) #1 {{
{body}
  %m = add i64 0, 0
  call void @prologue({self.arguments})
  ret void
}}
define internal void @member(ptr noalias %common, ptr noalias %ins, ptr noalias %outs, i64 %members, i64 %m) #1 {{
{body}
  call void @chunk({self.arguments})
  ret void
}}
"""


def thread_module(program: Program, ins: Sequence[Buffer], outs: Sequence[Buffer]) -> tuple[str, ThreadAssembly]:
    """Return the functions of one member as LLVM IR for any processor, and the assembly that they come from.

    ``member`` computes member number ``m``, after ``once`` has computed the common values.
    """
    if len(ins) + len(outs) > MAX_BUFFERS:
        raise Unsupported(f"more than {MAX_BUFFERS} arrays are not passed to a kernel on a GPU")
    assembly = ThreadAssembly(program)
    if assembly.local_size > MAX_LOCAL_BYTES:
        raise TooLarge
    rare = [rare_function(name) for name in sorted(assembly.functions & RARE.keys())]
    declared = assembly.declared.union(*(declarations for _, declarations in rare))
    parts = [
        *assembly.constants,
        *assembly.text,
        *(text for text, _ in rare),
        assembly.entry_points(),
        *sorted(declared),
    ]
    return "\n".join(parts), assembly


def module(program: Program, ins: Sequence[Buffer], outs: Sequence[Buffer]) -> str:
    """Return the LLVM IR of a kernel for a GPU.

    Its parameters are the pointers of the arguments, those of the results, and the number of members.
    """
    functions, assembly = thread_module(program, ins, outs)
    parameters, pointers = [], []
    for kind, buffers in (("ins", ins), ("outs", outs)):
        for k in range(len(buffers)):
            n = f"{kind}{k}"
            parameters.append(f"ptr addrspace(1) {'noalias ' if kind == 'outs' else ''}%p_{n}")
            pointers += [
                f"  %g_{n} = addrspacecast ptr addrspace(1) %p_{n} to ptr",
                f"  %a_{n} = getelementptr ptr, ptr %{kind}, i64 {k}",
                f"  store ptr %g_{n}, ptr %a_{n}",
            ]
    size = assembly.common_size
    is_shared = 0 < size <= MAX_SHARED_BYTES
    values = {
        "SHARED": f"@shared = internal addrspace(3) global [{size} x i8] undef, align 64" if is_shared else "",
        "PARAMETERS": ", ".join([*parameters, "i64 %members"]),
        "POINTERS": "\n".join(pointers),
        "PROLOGUE": SHARED_COMMON if is_shared else OWN_COMMON.replace("SIZE", str(max(1, size))),
        "INS": str(max(1, len(ins))),
        "OUTS": str(max(1, len(outs))),
    }
    kernel = KERNEL
    for key, value in values.items():
        kernel = kernel.replace(key, value)
    attributes = f'attributes #0 = {{ nounwind "nvvm.maxntid"="{THREADS}" }}\n'
    return "\n".join(
        [
            functions,
            kernel,
            attributes,
            "attributes #1 = { nounwind alwaysinline }",
            "attributes #2 = { nounwind noinline }\n",
        ]
    )
