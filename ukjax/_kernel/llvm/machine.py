"""Modules of LLVM made into machine code for this processor, and kept on disk for the next process."""

import contextlib
import ctypes
import functools
import hashlib
import os
import threading
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from ..._run.compile import kept_for_good

llvm: Any
try:
    import llvmlite.binding as llvm

    reason = ""
except (ImportError, OSError) as error:  # there is no wheel for every platform, or a library that it needs is missing
    llvm, reason = None, str(error)

OPTIMISATION = 1
"""LLVM's level for the code generator. Its passes on the module are not used: the graph has been simplified."""

FEW_DEPENDENCIES = "-dag-maps-huge-region=50", "-dag-maps-reduction-size=20"
"""Options of LLVM's scheduler. It compares each store with all loads and stores before it, up to 1000 of them by
default, which took half of the compile time. With a limit of 50 the code is as fast."""

NEWEST = 22
"""The newest LLVM that is known to have these options. One that has not ends the process."""

KEPT_BYTES = 512 * 2**20
"""What the objects on disk may take together."""


class Machine(NamedTuple):
    """What code is made for: the processor's name and features, the numbers of 8 bytes that a vector has, and how many
    vectors stay in registers."""

    cpu: str
    features: str
    width: int
    registers: int

    @property
    def attributes(self) -> str:
        """Of each function, in LLVM's words."""
        bits = 64 * self.width
        return (
            f'nounwind "frame-pointer"="none" "target-cpu"="{self.cpu}" "target-features"="{self.features}" '
            f'"prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}"'
        )


def is_available() -> bool:
    """Whether there is a compiler."""
    return llvm is not None


@functools.cache
def warn_no_room() -> None:
    """Say, once in a process, that it has as many kernels as it may."""
    warnings.warn(
        "this process has compiled so many different models that the system has no room for more machine code: further "
        "ones are compiled by XLA, as by jax.vmap, and take many times longer. Start a new process.",
        stacklevel=2,
    )


@functools.cache
def warn_no_compiler() -> None:
    """Say, once in a process, that there is none."""
    warnings.warn(
        f"without llvmlite ({reason}) motions and batches are compiled by XLA, as by jax.vmap: the results are right "
        "but take many times longer. Install it by `pip install llvmlite`, where there is a wheel for this platform.",
        stacklevel=2,
    )


@functools.cache
def machine() -> Machine:
    """This one."""
    if llvm.llvm_version_info[0] <= NEWEST:
        for option in FEW_DEPENDENCIES:
            llvm.set_option("ukjax", option)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features()
    return machine_of(cpu, features.flatten(), features)


def machine_of(cpu: str, text: str, has: Any) -> Machine:
    """One with this processor and these features."""
    if has.get("avx512f") and has.get("avx512vl") and has.get("avx512dq"):
        return Machine(cpu, text, 8, 28)
    if has.get("avx2"):
        return Machine(cpu, text, 4, 13)
    return Machine(cpu, text, 2, 28 if "neon" in text else 13)


def address_of(text: str, symbol: str, functions: frozenset[str], target: Machine, keep: bool = True) -> int:
    """Where the machine code of a function begins, in a module that calls these ``functions`` of the C library; to
    ``keep`` it is to put it on disk."""
    key = hashlib.sha256("\n".join((text, *target[:2], str(OPTIMISATION), llvm.llvm_version_info.__str__())).encode())
    name = key.hexdigest()
    with _linking:
        if name not in _linked:
            object_code = _from_disk(name) if keep else None
            if object_code is None:
                object_code = _compiled(text, target)
                if keep:
                    _to_disk(name, object_code)
            builder = llvm.JITLibraryBuilder().add_object_img(object_code).export_symbol(symbol)
            for function in functions:
                builder.import_symbol(function, _library_address(function))
            _linked[name] = kept_for_good(lambda: builder.link(_linker(), f"ukjax_{name}"))
        return _linked[name][symbol]


_linked: dict[str, Any] = {}
_linking = threading.RLock()


def _compiled(text, target):
    module = llvm.parse_assembly(text)
    return _target_machine(target).emit_object(module)


@functools.cache
def _target_machine(target):
    triple = llvm.Target.from_triple(llvm.get_process_triple())
    # The small model: the large one needs an instruction for each constant.
    return triple.create_target_machine(
        cpu=target.cpu, features=target.features, opt=OPTIMISATION, codemodel="small", reloc="pic"
    )


@functools.cache
def _linker():
    # JITLink has code and constants of an object side by side. LLVM's older linker may put them so far apart that the
    # small model cannot reach, and ends the process.
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
    """Where objects are kept: ``UKJAX_CACHE``, or a folder of the user's caches; None where that is empty."""
    given = os.environ.get("UKJAX_CACHE")
    if given is not None:
        return Path(given) if given else None
    with contextlib.suppress(RuntimeError):  # nobody's home
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ukjax" / "kernels"
    return None


def _from_disk(name):
    where = folder()
    if where is None:
        return None
    with contextlib.suppress(OSError):
        data = (where / name).read_bytes()
        if hashlib.sha256(data[32:]).digest() == data[:32]:  # one that was cut short is made anew
            with contextlib.suppress(OSError):  # of a folder that may only be read
                (where / name).touch()
            return data[32:]
    return None


def _to_disk(name, object_code):
    where = folder()
    if where is None:
        return
    with contextlib.suppress(OSError):  # a disk that is full, or may not be written to, costs time alone
        where.mkdir(parents=True, exist_ok=True)
        part = where / f".{name}.{os.getpid()}.{threading.get_ident()}"
        part.write_bytes(hashlib.sha256(object_code).digest() + object_code)
        part.replace(where / name)
        _make_room(where)


def _make_room(where):
    """Remove what was used least recently."""
    files = sorted((x.stat().st_mtime, x.stat().st_size, x) for x in where.iterdir())
    left = sum(size for _, size, _ in files)
    for _, size, file in files:
        if left <= KEPT_BYTES:
            return
        file.unlink(missing_ok=True)
        left -= size
