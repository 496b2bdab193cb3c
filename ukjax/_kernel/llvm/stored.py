"""Kernels that a later process loads from disk without unrolling their functions again.

With JAX's compilation cache, the description of a kernel is stored beside its object file. Its name is a hash of
everything on which the kernel depends: the jaxpr of its function, versions, the processor, and the source code of
``_kernel`` and ``_jaxpr``.
"""

import functools
import hashlib
import pickle
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr

from ..._fingerprint import Digest, NotComparable
from ..primitive import cached_per_jaxpr
from .ffi_call import Code, cores, register_code
from .machine import folder, from_disk, llvm, machine, to_disk

SOURCES = Path(__file__).parents[1], Path(__file__).parents[2] / "_jaxpr"
"""Folders whose source code is part of the names of descriptions."""

IMPORTED = time.time()
"""When this process imported the source code [s]."""


def compilation_cache_is_enabled() -> bool:
    """Whether JAX stores compiled programs on disk."""
    return bool(jax.config.jax_compilation_cache_dir)  # pyright: ignore[reportAttributeAccessIssue]


@cached_per_jaxpr
def digest_of(jaxpr: ClosedJaxpr) -> str | None:
    """A digest of a jaxpr with all its constants, the same in every process; None if it cannot be compared."""
    try:
        return Digest().of(jaxpr).hex()
    except NotComparable:
        return None


def name_of(jaxpr: ClosedJaxpr, mapped: tuple[bool, ...], max_operations: int) -> str | None:
    """The name of the description of a kernel; None if it is not stored."""
    if not compilation_cache_is_enabled() or folder() is None or jaxpr.effects:
        return None
    digest, source = digest_of(jaxpr), _digest_of_sources()
    if digest is None or source is None:
        return None
    versions = sys.version, np.__version__, jax.__version__, version("jaxlib"), llvm.llvm_version_info
    parts = digest, source, mapped, max_operations, *versions, *machine(), cores()
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()


def load(name: str) -> Any | None:
    """The description that is stored under a name, if the object file of its kernel is on disk too; else None.

    The kernel is registered.
    """
    data = from_disk(name)
    if data is None:
        return None
    target, code, description = pickle.loads(data)
    return description if register_code(target, code) else None


def store(name: str, target: str, code: Code, description: Any) -> None:
    """Store a description of the kernel with an XLA target name and this code."""
    to_disk(name, pickle.dumps((target, code, description)))


@functools.cache
def _digest_of_sources() -> str | None:
    """A digest of the source code; None if the package is installed without it, or was updated after the import."""
    files = sorted(file for folder in SOURCES for file in folder.rglob("*.py"))
    if not files or any(max(file.stat().st_mtime, file.stat().st_ctime) > IMPORTED for file in files):
        return None
    digest = hashlib.sha256()
    for file in files:
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
