"""The functions of CUDA's driver that load and launch a kernel, looked up when a kernel is first launched."""

import ctypes
import functools
import os
from typing import Any

LIBRARY = "nvcuda.dll" if os.name == "nt" else "libcuda.so.1"

ERROR_LOG, ERROR_LOG_SIZE = 5, 6
"""Options of the driver's assembler: CU_JIT_ERROR_LOG_BUFFER and CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES."""

LOG_BYTES = 8192


class CudaError(RuntimeError):
    """A function of the driver has failed."""


@functools.cache
def library() -> Any:
    """Return the driver's shared library."""
    try:
        driver = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise CudaError(f"the driver of the GPU cannot be loaded: {error}") from error
    if code := driver.cuInit(0):
        raise CudaError(f"cuInit failed: {describe(driver, code)}")
    return driver


def describe(driver: Any, code: int) -> str:
    """Return the driver's words for an error."""
    text = ctypes.c_char_p()
    driver.cuGetErrorString(ctypes.c_int(code), ctypes.byref(text))
    return f"error {code}" if text.value is None else f"error {code}, {text.value.decode()}"


def load_kernel(ptx: str) -> int:
    """Assemble PTX and return the handle of its function ``kernel``.

    A kernel of a library belongs to no context: the driver loads it for each GPU when it is first launched there.
    """
    driver, code = library(), ctypes.create_string_buffer(ptx.encode())
    log = ctypes.create_string_buffer(LOG_BYTES)
    options = (ctypes.c_int * 2)(ERROR_LOG, ERROR_LOG_SIZE)
    values = (ctypes.c_void_p * 2)(ctypes.addressof(log), LOG_BYTES)
    handle, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    no_options = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint(0)
    status = driver.cuLibraryLoadData(ctypes.byref(handle), code, options, values, ctypes.c_uint(2), *no_options)
    if status:
        raise CudaError(f"the driver cannot assemble a kernel: {describe(driver, status)}. {log.value.decode()}")
    if status := driver.cuLibraryGetKernel(ctypes.byref(kernel), handle, b"kernel"):
        raise CudaError(f"the driver finds no kernel in its library: {describe(driver, status)}")
    assert kernel.value is not None
    return kernel.value


def launch_address() -> int:
    """Return the address of ``cuLaunchKernel``."""
    address = ctypes.cast(library().cuLaunchKernel, ctypes.c_void_p).value
    assert address is not None
    return address
