"""Kernels that XLA calls through its typed FFI, written in LLVM IR alone.

The memory layouts are those of XLA's ``c_api.h``, version 0: a call frame with the buffers of arguments and results.
The number of members is read from the dimensions of a buffer, so one kernel serves batches of any size.
"""

import hashlib
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from .machine import Machine, address_of, address_on_disk, machine, object_name
from .module import Assembly
from .program import Program

TYPES = """%Extension = type { i64, ptr, ptr }
%List = type { i64, ptr, i64, ptr, ptr }                  ; size, extension, count, types, pointers
%Frame = type { i64, ptr, ptr, ptr, i32, %List, %List, %List, ptr }
%Buffer = type { i64, ptr, i32, ptr, i64, ptr }           ; size, extension, type, data, rank, dimensions
declare ptr @malloc(i64)
declare void @free(ptr)
"""

METADATA = """entry:
  %ep = getelementptr %Frame, ptr %frame, i32 0, i32 1
  %extension = load ptr, ptr %ep
  %asked = icmp ne ptr %extension, null
  br i1 %asked, label %question, label %execute
question:                                                 ; { size, type, next }, metadata
  %tp = getelementptr { i64, i32, ptr, ptr }, ptr %extension, i32 0, i32 1
  %type = load i32, ptr %tp
  %is = icmp eq i32 %type, 1
  br i1 %is, label %answer, label %execute
answer:                                                   ; size, { size, extension, major, minor }, traits, state
  %mp = getelementptr { i64, i32, ptr, ptr }, ptr %extension, i32 0, i32 3
  %metadata = load ptr, ptr %mp
  %major = getelementptr { i64, { i64, ptr, i32, i32 }, i32, i64 }, ptr %metadata, i32 0, i32 1, i32 2
  store i32 0, ptr %major
  %minor = getelementptr { i64, { i64, ptr, i32, i32 }, i32, i64 }, ptr %metadata, i32 0, i32 1, i32 3
  store i32 1, ptr %minor
  %traits = getelementptr { i64, { i64, ptr, i32, i32 }, i32, i64 }, ptr %metadata, i32 0, i32 2
  store i32 0, ptr %traits
  ret ptr null"""
"""The handler's reply to XLA's query for its API version: 0.1. XLA accepts handlers that are older than itself."""

HANDLER = """
define ptr @handler(ptr %frame) #0 {
METADATA
execute:
  %ins = alloca [INS x ptr]
  %outs = alloca [OUTS x ptr]
  %ap = getelementptr %Frame, ptr %frame, i32 0, i32 5, i32 4
  %args = load ptr, ptr %ap
  %rp = getelementptr %Frame, ptr %frame, i32 0, i32 6, i32 4
  %rets = load ptr, ptr %rp
LOADS
  CALL
  ret ptr null
}
"""

SPREAD = """
; State shared by the threads: the next unclaimed member, the number of finished members, the number of threads that
; hold a reference, arguments, results, number of members.
%Shared = type { i64, i64, i64, ptr, ptr, i64 }
declare i32 @sched_yield()

define internal void @work(ptr %s) #1 {
entry:
  %nextp = getelementptr %Shared, ptr %s, i32 0, i32 0
  %donep = getelementptr %Shared, ptr %s, i32 0, i32 1
  %insp = getelementptr %Shared, ptr %s, i32 0, i32 3
  %outsp = getelementptr %Shared, ptr %s, i32 0, i32 4
  %membersp = getelementptr %Shared, ptr %s, i32 0, i32 5
  %ins = load ptr, ptr %insp
  %outs = load ptr, ptr %outsp
  %members = load i64, ptr %membersp
  br label %claim
claim:
  %first = atomicrmw add ptr %nextp, i64 BLOCK monotonic
  %any = icmp slt i64 %first, %members
  br i1 %any, label %one, label %leave
one:
  %end = add i64 %first, BLOCK
  %over = icmp sgt i64 %end, %members
  %last = select i1 %over, i64 %members, i64 %end
  call void @range(ptr %ins, ptr %outs, i64 %members, i64 %first, i64 %last)
  %size = sub i64 %last, %first
  atomicrmw add ptr %donep, i64 %size release
  br label %claim
leave:
  ret void
}

define internal void @let_go(ptr %s) #1 {
  %ownersp = getelementptr %Shared, ptr %s, i32 0, i32 2
  %before = atomicrmw sub ptr %ownersp, i64 1 acq_rel
  %was_last = icmp eq i64 %before, 1
  br i1 %was_last, label %free, label %end
free:
  call void @free(ptr %s)
  br label %end
end:
  ret void
}

define internal void @task(ptr %s) #0 {
  call void @work(ptr %s)
  call void @let_go(ptr %s)
  ret void
}

; The caller works on unclaimed members, too, then waits for the claimed ones. Busy threads of the pool delay nothing.
define internal void @spread(ptr %frame, ptr %ins, ptr %outs, i64 %members) #1 {
entry:
  %few = icmp sle i64 %members, BLOCK
  br i1 %few, label %alone, label %many
alone:
  call void @range(ptr %ins, ptr %outs, i64 %members, i64 0, i64 %members)
  ret void
many:
  %apip = getelementptr %Frame, ptr %frame, i32 0, i32 2
  %api = load ptr, ptr %apip
  %ctxp = getelementptr %Frame, ptr %frame, i32 0, i32 3
  %ctx = load ptr, ptr %ctxp
  %up = add i64 %members, ALMOST
  %blocks = sdiv i64 %up, BLOCK
  %others = sub i64 %blocks, 1
  %fewer = icmp slt i64 %others, HELPERS
  %tasks = select i1 %fewer, i64 %others, i64 HELPERS
  %s = call ptr @malloc(i64 64)
  %s0 = insertvalue %Shared zeroinitializer, i64 1, 2
  %s1 = insertvalue %Shared %s0, ptr %ins, 3
  %s2 = insertvalue %Shared %s1, ptr %outs, 4
  %s3 = insertvalue %Shared %s2, i64 %members, 5
  store %Shared %s3, ptr %s
  %ownersp = getelementptr %Shared, ptr %s, i32 0, i32 2
  %donep = getelementptr %Shared, ptr %s, i32 0, i32 1
  %fp = getelementptr i8, ptr %api, i64 136               ; XLA_FFI_ThreadPool_Schedule
  %schedule = load ptr, ptr %fp
  %args = alloca { i64, ptr, ptr, ptr, ptr }
  br label %more
more:
  %k = phi i64 [ 0, %many ], [ %k1, %go ]
  %enough = icmp sge i64 %k, %tasks
  br i1 %enough, label %own, label %go
go:
  %k1 = add i64 %k, 1
  atomicrmw add ptr %ownersp, i64 1 monotonic
  %a0 = insertvalue { i64, ptr, ptr, ptr, ptr } { i64 40, ptr null, ptr null, ptr @task, ptr null }, ptr %ctx, 2
  %a1 = insertvalue { i64, ptr, ptr, ptr, ptr } %a0, ptr %s, 4
  store { i64, ptr, ptr, ptr, ptr } %a1, ptr %args
  %error = call ptr %schedule(ptr %args)
  br label %more
own:
  call void @work(ptr %s)
  br label %wait
wait:
  %done = load atomic i64, ptr %donep acquire, align 8
  %all = icmp sge i64 %done, %members
  br i1 %all, label %end, label %yield
yield:
  %y = call i32 @sched_yield()
  br label %wait
end:
  call void @let_go(ptr %s)
  ret void
}
"""

OPERATIONS_PER_BLOCK = 400_000
"""Operations that a thread claims at a time: some tens of microseconds."""

ASSUMED_ITERATIONS = 100
"""Assumed number of iterations of a loop of unknown length."""

RANGE = """
define internal void @range(ptr %ins, ptr %outs, i64 %members, i64 %first, i64 %last) #1 {
entry:
  %space = call ptr @malloc(i64 SPACE)
  %number = ptrtoint ptr %space to i64
  %up = add i64 %number, 63
  %aligned = and i64 %up, -64
  %ws = inttoptr i64 %aligned to ptr
  %common = getelementptr i8, ptr %ws, i64 COMMON
  call void @prologue(ptr %ws, ptr %common, ptr %ins, ptr %outs, i64 %members, i64 0)
  br label %head
head:
  %m = phi i64 [ %first, %entry ], [ %next, %body ]
  %next = add i64 %m, WIDTH
  %whole = icmp sle i64 %next, %last
  br i1 %whole, label %body, label %rest
body:
  call void @chunk(ptr %ws, ptr %common, ptr %ins, ptr %outs, i64 %members, i64 %m)
  br label %head
rest:
  %any = icmp slt i64 %m, %last
  br i1 %any, label %ragged, label %end
ragged:
RAGGED
  br label %end
end:
  call void @free(ptr %space)
  ret void
}
"""

COPY = """
define internal void @copy_inBITS(ptr %from, ptr %to, i64 %rows, i64 %members, i64 %m, i64 %count) #1 {
entry:
  %none = icmp eq i64 %rows, 0
  br i1 %none, label %end, label %row
row:
  %r = phi i64 [ 0, %entry ], [ %r1, %next ]
  br label %lane
lane:
  %k = phi i64 [ 0, %row ], [ %k1, %lane ]
  %last = sub i64 %count, 1
  %inside = icmp slt i64 %k, %count
  %near = select i1 %inside, i64 %k, i64 %last
  %a = mul i64 %r, %members
  %b = add i64 %a, %m
  %c = add i64 %b, %near
  %p = getelementptr iBITS, ptr %from, i64 %c
  %x = load iBITS, ptr %p
  %d = mul i64 %r, WIDTH
  %e = add i64 %d, %k
  %o = getelementptr iBITS, ptr %to, i64 %e
  store iBITS %x, ptr %o
  %k1 = add i64 %k, 1
  %more = icmp slt i64 %k1, WIDTH
  br i1 %more, label %lane, label %next
next:
  %r1 = add i64 %r, 1
  %again = icmp slt i64 %r1, %rows
  br i1 %again, label %row, label %end
end:
  ret void
}
define internal void @copy_outBITS(ptr %from, ptr %to, i64 %rows, i64 %members, i64 %m, i64 %count) #1 {
entry:
  %none = icmp eq i64 %rows, 0
  br i1 %none, label %end, label %row
row:
  %r = phi i64 [ 0, %entry ], [ %r1, %next ]
  br label %lane
lane:
  %k = phi i64 [ 0, %row ], [ %k1, %lane ]
  %d = mul i64 %r, WIDTH
  %e = add i64 %d, %k
  %p = getelementptr iBITS, ptr %from, i64 %e
  %x = load iBITS, ptr %p
  %a = mul i64 %r, %members
  %b = add i64 %a, %m
  %c = add i64 %b, %k
  %o = getelementptr iBITS, ptr %to, i64 %c
  store iBITS %x, ptr %o
  %k1 = add i64 %k, 1
  %more = icmp slt i64 %k1, %count
  br i1 %more, label %lane, label %next
next:
  %r1 = add i64 %r, 1
  %again = icmp slt i64 %r1, %rows
  br i1 %again, label %row, label %end
end:
  ret void
}
"""


class Buffer(NamedTuple):
    """An argument or a result of one member.

    Attributes
    ----------
    shape, dtype
        Shape and type.
    mapped
        Whether each member has its own values.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    mapped: bool

    @property
    def rows(self) -> int:
        """Number of values of one member."""
        return int(np.prod(self.shape, dtype=int))


class Code(NamedTuple):
    """The machine code of a kernel.

    Attributes
    ----------
    name
        Name of its object file in the cache.
    functions
        Functions of the C library that it calls.
    """

    name: str
    functions: frozenset[str]


def module(
    program: Program, ins: Sequence[Buffer], outs: Sequence[Buffer], target: Machine
) -> tuple[str, frozenset[str]]:
    """Return the LLVM IR of a kernel with its handler, and the functions of the C library that it calls."""
    width = 1 if program.unbatched else target.width
    assembly = Assembly(program, width, target.registers)
    common_offset = -(-(assembly.slots_offset + 8 * width * assembly.slots) // 64) * 64
    space = common_offset + assembly.common_slots_offset + 8 * len(assembly.common_slot) + 128
    ragged = [] if program.unbatched else _ragged(ins, outs, width)
    sizes = sorted({8 * max(1, x.dtype.itemsize) for x in (*ins, *outs)})
    values = {"SPACE": space, "COMMON": common_offset, "WIDTH": width, "RAGGED": "\n".join(ragged)}
    parts = [TYPES, *assembly.constants, *assembly.text]
    if not program.unbatched:
        parts += [_substitute(COPY, {"BITS": bits, "WIDTH": width}) for bits in sizes]
    parts.append(_substitute(RANGE, values))
    helpers, threads = cores() - 1, frozenset()
    call = "call void @range(ptr %ins, ptr %outs, i64 %members, i64 0, i64 %members)"
    if helpers and not program.unbatched:
        block = width * max(1, round(OPERATIONS_PER_BLOCK / width / max(1, program.length(ASSUMED_ITERATIONS))))
        parts.append(_substitute(SPREAD, {"BLOCK": block, "ALMOST": block - 1, "HELPERS": helpers}))
        call = "call void @spread(ptr %frame, ptr %ins, ptr %outs, i64 %members)"
        threads = frozenset({"sched_yield"})
    parts.append(_handler(program, ins, outs, call))
    parts += sorted(assembly.declared)
    parts.append(f"attributes #0 = {{ {target.attributes} }}\nattributes #1 = {{ noinline {target.attributes} }}\n")
    return "\n".join(parts), frozenset({"malloc", "free"} | assembly.functions | threads)


def _substitute(text, values):
    """Replace placeholders in a template."""
    for key, value in values.items():
        text = text.replace(key, str(value))
    return text


def pointers_of(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> list[str]:
    """Return the code that copies the pointers of all buffers from the call frame to the arrays %ins and %outs."""
    loads = []
    for kind, buffers, source in (("ins", ins, "%args"), ("outs", outs, "%rets")):
        for k in range(len(buffers)):
            n = f"{kind}{k}"
            loads += [
                f"  %a_{n} = getelementptr ptr, ptr {source}, i64 {k}",
                f"  %b_{n} = load ptr, ptr %a_{n}",
                f"  %c_{n} = getelementptr %Buffer, ptr %b_{n}, i32 0, i32 3",
                f"  %d_{n} = load ptr, ptr %c_{n}",
                f"  %e_{n} = getelementptr ptr, ptr %{kind}, i64 {k}",
                f"  store ptr %d_{n}, ptr %e_{n}",
            ]
    return loads


def members_of(ins: Sequence[Buffer], unbatched: bool) -> list[str]:
    """Return the code that reads the number of members, %members, from the dimensions of an argument."""
    if unbatched:
        return ["  %members = add i64 0, 1"]
    k = next(k for k, x in enumerate(ins) if x.mapped)
    return [
        f"  %dp = getelementptr %Buffer, ptr %b_ins{k}, i32 0, i32 5",
        "  %dimensions = load ptr, ptr %dp",
        f"  %lp = getelementptr i64, ptr %dimensions, i64 {len(ins[k].shape)}",
        "  %members = load i64, ptr %lp",
    ]


def _handler(program, ins, outs, call):
    """Return the handler: it unpacks the call frame, and then executes ``call``."""
    loads = [*pointers_of(ins, outs), *members_of(ins, program.unbatched)]
    counts = {"INS": max(1, len(ins)), "OUTS": max(1, len(outs)), "METADATA": METADATA}
    return _substitute(HANDLER, {"LOADS": "\n".join(loads), "CALL": call, **counts})


def _ragged(ins, outs, width):
    """Return the code for the last members if they do not fill a vector.

    It works on copies of their buffers, in which the values of the last member fill the free lanes.
    """
    lines, offset = [], 0
    lines += [
        f"  %ins_copied = alloca [{max(1, len(ins))} x ptr]",
        f"  %outs_copied = alloca [{max(1, len(outs))} x ptr]",
        "  %count = sub i64 %last, %m",
        "  %copies = call ptr @malloc(i64 TOTAL)",
    ]
    before, after = [], []
    for kind, buffers in (("ins", ins), ("outs", outs)):
        for k, x in enumerate(buffers):
            n, size = f"{kind}{k}", max(1, x.dtype.itemsize)
            lines.append(f"  %q_{n} = getelementptr ptr, ptr %{kind}, i64 {k}\n  %o_{n} = load ptr, ptr %q_{n}")
            lines.append(f"  %z_{n} = getelementptr ptr, ptr %{kind}_copied, i64 {k}")
            if not x.mapped:
                lines.append(f"  store ptr %o_{n}, ptr %z_{n}")
                continue
            lines.append(f"  %y_{n} = getelementptr i8, ptr %copies, i64 {offset}\n  store ptr %y_{n}, ptr %z_{n}")
            offset += -(-x.rows * width * size // 64) * 64
            sizes = f"i64 {x.rows}, i64 %members, i64 %m, i64 %count"
            if kind == "ins":
                before.append(f"  call void @copy_in{8 * size}(ptr %o_{n}, ptr %y_{n}, {sizes})")
            else:
                after.append(f"  call void @copy_out{8 * size}(ptr %y_{n}, ptr %o_{n}, {sizes})")
    call = f"  call void @chunk(ptr %ws, ptr %common, ptr %ins_copied, ptr %outs_copied, i64 {width}, i64 0)"
    lines = [*lines, *before, call, *after, "  call void @free(ptr %copies)"]
    return [line.replace("TOTAL", str(max(64, offset))) for line in lines]


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def register_kernel(program: Program, ins: Sequence[Buffer], outs: Sequence[Buffer]) -> str:
    """Compile and register a kernel, and return its XLA target name.

    The name is a hash of the code, so programs in JAX's persistent cache find the same kernel.
    """
    text, functions = module(program, ins, outs, machine())
    name = f"ukjax_{hashlib.sha256(text.encode()).hexdigest()[:32]}"
    if name not in _registered:
        address = address_of(text, "handler", functions, machine())
        _register(name, Code(object_name(text, machine()), functions), address)
    return name


def register_code(name: str, code: Code) -> bool:
    """Register a kernel under an XLA target name. Returns False if its object file is not on disk."""
    if name not in _registered:
        address = address_on_disk(code.name, "handler", code.functions)
        if address is None:
            return False
        _register(name, code, address)
    return True


def code_of(name: str) -> Code:
    """Return the code of the kernel that is registered under an XLA target name."""
    return _registered[name]


def _register(name, code, address):
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(address), platform="cpu")
    _registered[name] = code


def handler_address(program: Program, ins: Sequence[Buffer], outs: Sequence[Buffer]) -> int:
    """Return the address of the compiled handler of a kernel."""
    text, functions = module(program, ins, outs, machine())
    return address_of(text, "handler", functions, machine())


_registered: dict[str, Code] = {}


def call_kernel(name: str, arguments: Sequence[Any], results: Sequence[jax.ShapeDtypeStruct]) -> list[Any]:
    """Call a kernel on arrays and return its results."""
    return list(jax.ffi.ffi_call(name, list(results))(*arguments))
