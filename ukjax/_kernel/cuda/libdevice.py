"""NVIDIA's library of elementary functions for GPUs, which is installed together with JAX for CUDA.

It is bitcode of LLVM: ``pow`` is ``__nv_pow`` for float64 and ``__nv_powf`` for float32.
"""

import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..llvm import machine

FILE = "nvvm/libdevice/libdevice.10.bc"


@functools.cache
def path() -> Path | None:
    """Return the file, None if it is not installed."""
    return next((x for x in map(lambda folder: folder / FILE, _folders()) if x.is_file()), None)


def _folders() -> Iterator[Path]:
    for entry in sys.path:
        nvidia = Path(entry) / "nvidia"
        if nvidia.is_dir():
            yield from sorted(x for x in nvidia.iterdir() if x.is_dir())
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if value := os.environ.get(variable):
            yield Path(value)
    yield from sorted(Path("/usr/local").glob("cuda*"), reverse=True)


def link(module: Any) -> None:
    """Add the library to a module. Only the module's own functions stay visible."""
    file = path()
    assert file is not None
    llvm = machine.llvm
    library = llvm.parse_bitcode(file.read_bytes())
    library.triple, library.data_layout = module.triple, module.data_layout
    module.link_in(library)
    for function in module.functions:
        if not function.is_declaration and function.name != "kernel":
            function.linkage = "internal"
