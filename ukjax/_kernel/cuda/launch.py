"""The functions through which XLA launches a kernel on a GPU.

Each kernel has a handler of XLA's FFI, written in LLVM IR and executed by the host. It takes the stream from XLA,
counts the members, and calls ``cuLaunchKernel``. On the first call it has the kernel compiled, by a function of Python.
"""

import ctypes
import hashlib
import itertools
import threading
from collections.abc import Callable, Sequence

import jax
from jax.extend.core import ClosedJaxpr

from ..._jaxpr.nested import any_equation
from ..llvm.deferred import cache_key
from ..llvm.ffi_call import METADATA, TYPES, Buffer, members_of, pointers_of
from ..llvm.instructions import LIBRARY
from ..llvm.machine import address_of, machine
from ..llvm.program import Program
from .driver import CudaError, describe, launch_address, library, load_kernel
from .module import OWN_FUNCTIONS, THREADS, has_library, module
from .ptx import ptx_of

SMALL_BATCH, FEW_THREADS = 16_384, 32
"""Largest size of a small batch, and its threads per block: with small blocks, more multiprocessors have a block."""

OF_LIBRARY = LIBRARY.keys() - OWN_FUNCTIONS
"""Elementary functions that need NVIDIA's library."""

LAUNCH = (
    "call i32 %function(ptr %kernel, i32 %blocks32, i32 1, i32 1, i32 %threads32, i32 1, i32 1, i32 0, "
    "ptr %stream, ptr %values, ptr null)"
)

HANDLER = """
define internal ptr @error(ptr %api, ptr %message) #1 {
  %fp = getelementptr i8, ptr %api, i64 48                ; XLA_FFI_Error_Create
  %create = load ptr, ptr %fp
  %args = alloca { i64, ptr, ptr, i32 }                   ; size, extension, message, code
  %a0 = insertvalue { i64, ptr, ptr, i32 } { i64 32, ptr null, ptr null, i32 13 }, ptr %message, 2
  store { i64, ptr, ptr, i32 } %a0, ptr %args
  %error = call ptr %create(ptr %args)
  ret ptr %error
}

define ptr @handler(ptr %frame) #0 {
METADATA
execute:
  %ins = alloca [INS x ptr]
  %outs = alloca [OUTS x ptr]
  %values = alloca [VALUES x ptr]
  %count = alloca i64
  %stream_args = alloca { i64, ptr, ptr, ptr }            ; size, extension, context, stream
  %apip = getelementptr %Frame, ptr %frame, i32 0, i32 2
  %api = load ptr, ptr %apip
  %ctxp = getelementptr %Frame, ptr %frame, i32 0, i32 3
  %ctx = load ptr, ptr %ctxp
  %ap = getelementptr %Frame, ptr %frame, i32 0, i32 5, i32 4
  %args = load ptr, ptr %ap
  %rp = getelementptr %Frame, ptr %frame, i32 0, i32 6, i32 4
  %rets = load ptr, ptr %rp
LOADS
  %none = icmp sle i64 %members, 0
  br i1 %none, label %done, label %some
some:
  %state = inttoptr i64 STATE to ptr                      ; { kernel, cuLaunchKernel }
  %there = load atomic ptr, ptr %state acquire, align 8
  %missing = icmp eq ptr %there, null
  br i1 %missing, label %make, label %run
make:
  %compile = inttoptr i64 COMPILE to ptr
  %made_message = call ptr %compile(i64 NUMBER)
  %made = load atomic ptr, ptr %state acquire, align 8
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %not_made, label %run
not_made:
  %make_error = call ptr @error(ptr %api, ptr %made_message)
  ret ptr %make_error
run:
  %kernel = phi ptr [ %there, %some ], [ %made, %make ]
  %s0 = insertvalue { i64, ptr, ptr, ptr } { i64 32, ptr null, ptr null, ptr null }, ptr %ctx, 2
  store { i64, ptr, ptr, ptr } %s0, ptr %stream_args
  %gp = getelementptr i8, ptr %api, i64 80                ; XLA_FFI_Stream_Get
  %get = load ptr, ptr %gp
  %stream_error = call ptr %get(ptr %stream_args)
  %no_stream = icmp ne ptr %stream_error, null
  br i1 %no_stream, label %stream_failed, label %launch
stream_failed:
  ret ptr %stream_error
launch:
  %sp = getelementptr { i64, ptr, ptr, ptr }, ptr %stream_args, i32 0, i32 3
  %stream = load ptr, ptr %sp
  store i64 %members, ptr %count
PARAMETERS
  %few = icmp sle i64 %members, SMALL
  %threads = select i1 %few, i64 FEW, i64 MANY
  %threads32 = trunc i64 %threads to i32
  %less = sub i64 %threads, 1
  %up = add i64 %members, %less
  %blocks = udiv i64 %up, %threads
  %blocks32 = trunc i64 %blocks to i32
  %lp2 = getelementptr ptr, ptr %state, i64 1
  %function = load ptr, ptr %lp2
  %status = LAUNCH
  %refused = icmp ne i32 %status, 0
  br i1 %refused, label %not_launched, label %done
not_launched:
  %explain = inttoptr i64 EXPLAIN to ptr
  %launch_message = call ptr %explain(i32 %status)
  %launch_error = call ptr @error(ptr %api, ptr %launch_message)
  ret ptr %launch_error
done:
  ret ptr null
}
"""


class State(ctypes.Structure):
    """The data that a handler reads: the kernel, null until it is compiled, and the address of ``cuLaunchKernel``."""

    _fields_ = (("kernel", ctypes.c_void_p), ("launch", ctypes.c_void_p))


_messages = threading.local()
_states: dict[int, State] = {}
_makers: dict[int, Callable[[], str]] = {}
_texts: dict[str, Callable[[], str]] = {}
_numbers = itertools.count()
_registering, _loading = threading.Lock(), threading.Lock()


def _message(text):
    """Return the address of a text, valid until the next message of this thread."""
    _messages.buffer = ctypes.create_string_buffer(text.encode())
    return ctypes.addressof(_messages.buffer)


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)
def _compile(number: int) -> int | None:
    """Compile kernel ``number``; return null, or the address of a message. Its handler calls it, in a thread of XLA."""
    with _loading:
        state = _states[number]
        if state.kernel is not None:
            return None
        try:
            kernel = load_kernel(_makers[number]())
            state.launch = launch_address()
            state.kernel = kernel  # last: the handler reads this first
        except BaseException as error:  # no Python caller to raise to: XLA reports it
            return _message(f"a kernel could not be compiled for this GPU: {type(error).__name__}: {error}")
    return None


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int32)
def _explain(status: int) -> int:
    """Return the address of a message for an error of ``cuLaunchKernel``."""
    try:
        return _message(f"the GPU's driver did not launch a kernel: {describe(library(), status)}")
    except CudaError as error:
        return _message(str(error))


def register_kernel(program: Program, ins: Sequence[Buffer], outs: Sequence[Buffer]) -> str:
    """Register a kernel and return its XLA target name, a hash of its code. It is compiled when it is first called."""
    text = module(program, ins, outs)
    name = f"ukjax_cuda_{hashlib.sha256(text.encode()).hexdigest()[:32]}"
    _register(name, ins, outs, program.unbatched, lambda: text)
    return name


def register_complete(
    name: str, jaxpr: ClosedJaxpr, ins: Sequence[Buffer], outs: Sequence[Buffer], make: Callable[[], Program]
) -> str | None:
    """Register the kernel for rare cases of ``jaxpr``, whose program is made when it is first called.

    ``name`` is the target name of the kernel for the usual cases. Returns the target name; None if the rare cases may
    contain functions that a kernel on this GPU cannot have.
    """
    if not has_library() and any_equation(jaxpr, lambda equation: equation.primitive.name in OF_LIBRARY):
        return None
    target = f"{name}_rare_{cache_key(jaxpr)}"
    _register(target, ins, outs, not any(x.mapped for x in ins), lambda: module(make(), ins, outs))
    return target


def ptx(name: str) -> str:
    """Return the PTX of a registered kernel."""
    return ptx_of(_texts[name]())


def _register(name, ins, outs, unbatched, make_text):
    with _registering:
        if name in _texts:
            return
        _texts[name] = make_text
        address = handler_address(ins, outs, unbatched, lambda: ptx(name))
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(address), platform="CUDA")


def handler_address(ins: Sequence[Buffer], outs: Sequence[Buffer], unbatched: bool, make: Callable[[], str]) -> int:
    """Return the address of a new handler; ``make`` returns the PTX of its kernel."""
    number = next(_numbers)
    state = _states[number] = State()
    _makers[number] = make
    parameters = []
    for kind, buffers in (("ins", ins), ("outs", outs)):
        for k in range(len(buffers)):
            place = len(parameters)
            parameters.append(
                f"  %v_{kind}{k} = getelementptr ptr, ptr %values, i64 {place}\n"
                f"  store ptr %e_{kind}{k}, ptr %v_{kind}{k}"
            )
    parameters.append(
        f"  %v_count = getelementptr ptr, ptr %values, i64 {len(parameters)}\n  store ptr %count, ptr %v_count"
    )
    values = {
        "METADATA": METADATA,
        "LOADS": "\n".join([*pointers_of(ins, outs), *members_of(ins, unbatched)]),
        "PARAMETERS": "\n".join(parameters),
        "LAUNCH": LAUNCH,
        "INS": max(1, len(ins)),
        "OUTS": max(1, len(outs)),
        "VALUES": len(parameters),
        "STATE": ctypes.addressof(state),
        "COMPILE": ctypes.cast(_compile, ctypes.c_void_p).value,
        "EXPLAIN": ctypes.cast(_explain, ctypes.c_void_p).value,
        "NUMBER": number,
        "SMALL": SMALL_BATCH,
        "FEW": FEW_THREADS,
        "MANY": THREADS,
    }
    text = TYPES + HANDLER + f"\nattributes #0 = {{ {machine().attributes} }}\n"
    for key, value in values.items():
        text = text.replace(key, str(value))
    text += f"attributes #1 = {{ noinline {machine().attributes} }}\n"
    return address_of(text, "handler", frozenset({"malloc", "free"}), machine(), keep=False)
