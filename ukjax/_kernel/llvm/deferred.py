"""Kernels for rare cases, compiled on the first call."""

import ctypes
import hashlib
import itertools
import threading
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr

from .ffi_call import METADATA, TYPES
from .machine import address_of, machine
from .stored import compilation_cache_is_enabled, digest_of

HANDLER = """
define ptr @handler(ptr %frame) #0 {
METADATA
execute:
  %cell = inttoptr i64 CELL to ptr
  %there = load atomic ptr, ptr %cell acquire, align 8
  %missing = icmp eq ptr %there, null
  br i1 %missing, label %make, label %run
make:
  %compile = inttoptr i64 COMPILE to ptr
  call void %compile(i64 NUMBER)
  %made = load atomic ptr, ptr %cell acquire, align 8
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %fail, label %run
fail:                                                     ; size, extension, message, code
  %apip = getelementptr %Frame, ptr %frame, i32 0, i32 2
  %api = load ptr, ptr %apip
  %fp = getelementptr i8, ptr %api, i64 48                ; XLA_FFI_Error_Create
  %create = load ptr, ptr %fp
  %args = alloca { i64, ptr, ptr, i32 }
  %message = inttoptr i64 MESSAGE to ptr
  %a0 = insertvalue { i64, ptr, ptr, i32 } { i64 32, ptr null, ptr null, i32 13 }, ptr %message, 2
  store { i64, ptr, ptr, i32 } %a0, ptr %args
  %error = call ptr %create(ptr %args)
  ret ptr %error
run:
  %kernel = phi ptr [ %there, %execute ], [ %made, %make ]
  %result = call ptr %kernel(ptr %frame)
  ret ptr %result
}
"""

MESSAGE = ctypes.create_string_buffer(2000)
_cells: dict[int, ctypes.c_void_p] = {}
_compilers: dict[int, Callable[[], int]] = {}
_names: set[str] = set()
_numbers = itertools.count()
_lock = threading.Lock()


@ctypes.CFUNCTYPE(None, ctypes.c_int64)
def _compile(number: int) -> None:
    """Compile kernel ``number``. Called by its handler, in a thread of XLA."""
    with _lock:
        if _cells[number].value is None:
            try:
                _cells[number].value = _compilers[number]()
            except BaseException as error:  # no Python caller to raise to: XLA reports it
                message = f"a rare case could not be compiled: {type(error).__name__}: {error}"
                MESSAGE.value = message.encode()[: len(MESSAGE) - 1]


def register_deferred(name: str, jaxpr: ClosedJaxpr, make: Callable[[], int]) -> str:
    """Register a kernel whose handler is compiled by ``make()`` on the first call, and return its XLA target name.

    ``name`` is the target name of the kernel for the usual cases.
    """
    target = f"{name}_rare_{cache_key(jaxpr)}"
    with _lock:
        if target in _names:
            return target
        number = next(_numbers)
        _cells[number], _compilers[number] = ctypes.c_void_p(), make
        _names.add(target)
    values: dict[str, Any] = {
        "METADATA": METADATA,
        "CELL": ctypes.addressof(_cells[number]),
        "COMPILE": ctypes.cast(_compile, ctypes.c_void_p).value,
        "NUMBER": number,
        "MESSAGE": ctypes.addressof(MESSAGE),
    }
    text = TYPES + HANDLER + f"\nattributes #0 = {{ {machine().attributes} }}\n"
    for key, value in values.items():
        text = text.replace(key, str(value))
    address = address_of(text, "handler", frozenset({"malloc", "free"}), machine(), keep=False)
    jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(address), platform="cpu")
    return target


def cache_key(jaxpr: ClosedJaxpr) -> str:
    """Return the part of the target name that identifies ``jaxpr``.

    JAX's persistent compilation cache stores target names. With that cache the name must be the same in every process.
    """
    if not compilation_cache_is_enabled():
        return str(next(_numbers))
    if (digest := digest_of(jaxpr)) is not None:
        return digest[:16]
    parts = [str(jaxpr.jaxpr).encode(), *(np.asarray(x).tobytes() for x in jaxpr.consts)]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]
