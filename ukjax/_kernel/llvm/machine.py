"""Compile LLVM modules to machine code for this processor; object files are cached on disk for later processes."""

import contextlib
import ctypes
import functools
import hashlib
import os
import threading
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from ..._run.compile import link_kernel

llvm: Any
try:
    import llvmlite.binding as llvm

    import_error = ""
except (ImportError, OSError) as error:  # no wheel for this platform, or a shared library is missing
    llvm, import_error = None, str(error)

OPTIMISATION_LEVEL = 1
"""Optimisation level of LLVM's code generator. No passes run on the module: the graph is already simplified."""

SCHEDULER_OPTIONS = "-dag-maps-huge-region=50", "-dag-maps-reduction-size=20"
"""Options of LLVM's instruction scheduler. By default it compares each store with up to 1000 earlier loads and stores,
which took half of the compile time. With a limit of 50 the code is as fast."""

NEWEST_TESTED_LLVM = 22
"""Newest LLVM version that is known to have these options. An unknown option ends the process."""

MAX_CACHE_BYTES = 512 * 2**20
"""Maximum total size of the cached object files [bytes]."""


class Machine(NamedTuple):
    """Target processor.

    Attributes
    ----------
    cpu, features
        LLVM's names of the processor and of its features.
    width
        Number of 8-byte numbers in a vector register.
    registers
        Number of vectors that can be kept in registers.
    """

    cpu: str
    features: str
    width: int
    registers: int

    @property
    def attributes(self) -> str:
        """Attributes of each function, in LLVM syntax."""
        bits = 64 * self.width
        return (
            f'nounwind "frame-pointer"="none" "target-cpu"="{self.cpu}" "target-features"="{self.features}" '
            f'"prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}"'
        )


def is_available() -> bool:
    """Return whether llvmlite can be imported."""
    return llvm is not None


@functools.cache
def warn_no_room() -> None:
    """Warn once that this process may not load more kernels."""
    warnings.warn(
        "this process has compiled so many different models that the system has no room for more machine code: further "
        "ones are compiled by XLA, as by jax.vmap, and take many times longer. Start a new process.",
        stacklevel=2,
    )


@functools.cache
def warn_no_compiler() -> None:
    """Warn once that llvmlite is missing."""
    warnings.warn(
        f"without llvmlite ({import_error}) motions and batches are compiled by XLA, as by jax.vmap: the results are "
        "right but take many times longer. Install it by `pip install llvmlite`, where there is a wheel for this "
        "platform.",
        stacklevel=2,
    )


@functools.cache
def machine() -> Machine:
    """Return the processor of this process."""
    if llvm.llvm_version_info[0] <= NEWEST_TESTED_LLVM:
        for option in SCHEDULER_OPTIONS:
            llvm.set_option("ukjax", option)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features()
    return machine_of(cpu, features.flatten(), features)


def machine_of(cpu: str, features: str, supported: Any) -> Machine:
    """Return the target for a processor with these features."""
    if supported.get("avx512f") and supported.get("avx512vl") and supported.get("avx512dq"):
        return Machine(cpu, features, 8, 28)
    if supported.get("avx2"):
        return Machine(cpu, features, 4, 13)
    return Machine(cpu, features, 2, 28 if "neon" in features else 13)


def address_of(text: str, symbol: str, functions: frozenset[str], target: Machine, keep: bool = True) -> int:
    """Compile a module and return the address of the function ``symbol``.

    ``functions`` are the functions of the C library that it calls. With ``keep``, the object file is cached on disk.
    """
    name = object_name(text, target)
    with compiling:
        if name not in _linked:
            object_code = from_disk(name) if keep else None
            if object_code is None:
                object_code = _compiled(text, target)
                if keep:
                    to_disk(name, object_code)
            _link(name, object_code, symbol, functions)
        return _linked[name][symbol]


def address_on_disk(name: str, symbol: str, functions: frozenset[str]) -> int | None:
    """Return the address of ``symbol`` in the object file cached under a name; None if there is no such file."""
    with compiling:
        if name not in _linked:
            object_code = from_disk(name)
            if object_code is None:
                return None
            _link(name, object_code, symbol, functions)
        return _linked[name][symbol]


def object_name(text: str, target: Machine) -> str:
    """Return the name under which the object file of a module is cached."""
    parts = text, *target[:2], str(OPTIMISATION_LEVEL), llvm.llvm_version_info.__str__()
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _link(name, object_code, symbol, functions):
    builder = llvm.JITLibraryBuilder().add_object_img(object_code).export_symbol(symbol)
    for function in functions:
        builder.import_symbol(function, _library_address(function))
    _linked[name] = link_kernel(lambda: builder.link(_linker(), f"ukjax_{name}"))


_linked: dict[str, Any] = {}
compiling = threading.RLock()
"""Held while LLVM compiles: all modules share one context."""


def _compiled(text, target):
    module = llvm.parse_assembly(text)
    return _target_machine(target).emit_object(module)


@functools.cache
def _target_machine(target):
    triple = llvm.Target.from_triple(llvm.get_process_triple())
    # Small code model: the large one needs an extra instruction for each constant.
    return triple.create_target_machine(
        cpu=target.cpu, features=target.features, opt=OPTIMISATION_LEVEL, codemodel="small", reloc="pic"
    )


@functools.cache
def _linker():
    # JITLink places code and constants of an object side by side. LLVM's older linker may place them too far apart
    # for the small code model, and then ends the process.
    triple = llvm.Target.from_triple(llvm.get_process_triple())
    return llvm.create_lljit_compiler(triple.create_target_machine(), use_jit_link=True)


@functools.cache
def _c_library():
    if os.name == "nt":
        return [ctypes.CDLL("ucrtbase")]
    from ctypes.util import find_library

    return [ctypes.CDLL(find_library("m")), ctypes.CDLL(None)]


@functools.cache
def _library_address(function):
    for library in _c_library():
        with contextlib.suppress(AttributeError):
            return ctypes.cast(getattr(library, function), ctypes.c_void_p).value
    raise OSError(f"the C library has no function {function}")


def folder() -> Path | None:
    """Return the cache folder: ``UKJAX_CACHE``, or a folder in the user's cache; None if that variable is empty."""
    path = os.environ.get("UKJAX_CACHE")
    if path is not None:
        return Path(path) if path else None
    with contextlib.suppress(RuntimeError):  # no home directory
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ukjax" / "kernels"
    return None


def from_disk(name: str) -> bytes | None:
    """Return the code that is cached under a name, or None."""
    directory = folder()
    if directory is None:
        return None
    with contextlib.suppress(OSError):
        data = (directory / name).read_bytes()
        if hashlib.sha256(data[32:]).digest() == data[:32]:  # a truncated file is compiled again
            with contextlib.suppress(OSError):  # read-only folder
                (directory / name).touch()
            return data[32:]
    return None


def to_disk(name: str, object_code: bytes) -> None:
    """Cache code under a name, if there is a cache folder."""
    directory = folder()
    if directory is None:
        return
    with contextlib.suppress(OSError):  # a full or read-only disk costs time only
        directory.mkdir(parents=True, exist_ok=True)
        temporary = directory / f".{name}.{os.getpid()}.{threading.get_ident()}"
        temporary.write_bytes(hashlib.sha256(object_code).digest() + object_code)
        temporary.replace(directory / name)
        _make_room(directory)


def _make_room(directory):
    """Remove the least recently used files beyond the size limit."""
    files = sorted((x.stat().st_mtime, x.stat().st_size, x) for x in directory.iterdir())
    total = sum(size for _, size, _ in files)
    for _, size, file in files:
        if total <= MAX_CACHE_BYTES:
            return
        file.unlink(missing_ok=True)
        total -= size
