"""External values of a function: the numbers that it reads from globals, closures and attributes of objects.

A compiled program contains the values at the time of tracing. They are part of the key of every cached program, so that
a changed value triggers a new compilation, as for another function.
"""

import dis
import functools
import itertools
import sys
import sysconfig
import types
from collections.abc import Callable, Hashable
from typing import Any

import jax
import numpy as np

from ._jaxpr.tracing import is_traced

MAX_OBJECTS = 1000
"""Largest number of objects that are searched for one function. Changes beyond it are not detected."""

MAX_HASHED_ENTRIES = 100_000
"""Largest number of entries of a NumPy array that are hashed. A larger array is sampled with a stride."""

ENTRY = "[]"
"""Suffix of a name: an entry of a container."""

ADDING_METHODS = {"append", "appendleft", "extend", "insert"}
"""Methods that add entries to containers. ``add`` and ``update`` are omitted: these names have other uses in JAX."""

LOADS = {"LOAD_DEREF", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR"}
"""Instructions that load a name that is not a local variable."""

PACKAGE = __name__.partition(".")[0]
JITTED = type(jax.jit(lambda: None))
WITHOUT_VALUES = (str, bytes, type(None), type, types.ModuleType, types.BuiltinFunctionType, np.ufunc)


class _ByIdentity:
    """Hashable wrapper that compares an object by identity and keeps it alive."""

    def __init__(self, thing: Any):
        self.thing = thing

    def __hash__(self) -> int:
        return id(self.thing)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and self.thing is other.thing


def external_values(function: Callable) -> tuple[Hashable, ...]:
    """Return a hashable key of the external values that ``function`` reads.

    Of functions of installed packages, only closures and defaults are searched. Values that the function itself writes,
    such as a counter of its calls, are excluded.
    """
    values: list[tuple[Any, ...]] = []
    visited: dict[int, Any] = {}
    read: set[str] = set()
    written: set[str] = set()
    objects: list[tuple[Any, set[str]]] = []
    queue: list[tuple[str, Any]] = [("", function)]
    while queue and len(visited) < MAX_OBJECTS:
        name, thing = queue.pop()
        if isinstance(thing, bool | int | float | complex):
            values.append((name, type(thing), repr(thing)))
        elif isinstance(thing, jax.Array):
            values.append((name, _ByIdentity(thing)))  # immutable
        elif isinstance(thing, np.ndarray | np.generic):
            values.append((name, thing.dtype.str, thing.shape, _sample(thing)))
        elif not isinstance(thing, WITHOUT_VALUES) and id(thing) not in visited:
            visited[id(thing)] = thing  # keeps the object alive, so that its id is not reused
            if isinstance(thing, types.FunctionType):
                read |= names_in(thing.__code__)
                written |= written_by(thing.__code__)
            parts = _parts(name, thing)
            queue += parts or ()
            if parts is None:
                objects.append((thing, set()))
        if not queue:  # of objects, only the attributes that the functions found so far read
            for thing, searched in objects:
                queue += [(name, _attribute(thing, name)) for name in sorted(read - searched)]
                searched |= read
    return tuple(entry for entry in values if entry[0] not in written and not (ENTRY in written and ENTRY in entry[0]))


def external_values_in(tree: Any) -> tuple[Hashable, ...]:
    """Return the external values of all functions in a pytree."""
    return tuple(external_values(x) for x in jax.tree.leaves(tree) if callable(x) and not isinstance(x, type))


def holds_tracers(values: tuple[Hashable, ...]) -> bool:
    """Whether a traced array is one of the values that ``external_values_in`` returned."""
    arrays = (x.thing for entries in values for entry in entries for x in entry if isinstance(x, _ByIdentity))
    return any(is_traced(array) for array in arrays)


def _sample(array):
    if array.dtype == object:
        return None
    entries = array.reshape(-1) if isinstance(array, np.ndarray) else np.reshape(array, 1)
    return hash(entries[:: -(-entries.size // MAX_HASHED_ENTRIES) or 1].tobytes())


def _parts(name, thing) -> list[tuple[str, Any]] | None:
    """Return the named objects that ``thing`` refers to directly, None for an object with attributes."""
    if isinstance(thing, types.FunctionType):
        parts = [
            (name, cell.cell_contents)
            for name, cell in zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=True)
            if cell != types.CellType()
        ]
        parts += [("", x) for x in (*(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values())]
        if not is_of_library(thing.__module__):
            globals_ = thing.__globals__
            parts += [(name, globals_[name]) for name in globals_in(thing.__code__) if name in globals_]
        return parts
    if isinstance(thing, types.MethodType):
        return [("", thing.__func__), ("", thing.__self__)]
    if isinstance(thing, functools.partial):
        return [("", x) for x in (thing.func, *thing.args, *thing.keywords.values())]
    if isinstance(thing, JITTED):
        return [("", thing.__wrapped__)]  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(thing, list | tuple | set | frozenset):
        return [(name + ENTRY, x) for x in thing]
    if isinstance(thing, dict):
        return [(name + ENTRY, x) for x in thing.values()]
    return [] if is_of_library(type(thing).__module__) else None


def _attribute(thing, name):
    """Return an attribute of an object or its class without calling descriptors, None if there is none."""
    for namespace in (getattr(thing, "__dict__", {}), *map(vars, type(thing).__mro__)):
        if name in namespace:
            value = namespace[name]
            value = value.fget if isinstance(value, property) else value
            return getattr(value, "__func__", value) if isinstance(value, staticmethod | classmethod) else value
    return None


@functools.lru_cache(maxsize=4096)
def names_in(code: types.CodeType) -> frozenset[str]:
    """Return the names of the globals and attributes that a function and its nested functions use."""
    inner = (names_in(x) for x in code.co_consts if isinstance(x, types.CodeType))
    return frozenset(code.co_names).union(*inner)


@functools.lru_cache(maxsize=4096)
def written_by(code: types.CodeType) -> frozenset[str]:
    """Return the names of globals, attributes and nonlocal variables that a function and its nested functions write.

    ``ENTRY`` is included if it writes entries of containers, and name + ``ENTRY`` if it adds entries to a container.
    """
    stores = {"STORE_GLOBAL", "STORE_ATTR", "STORE_DEREF", "STORE_SUBSCR"}
    instructions = list(dis.get_instructions(code))
    names = {instruction.argval or ENTRY for instruction in instructions if instruction.opname in stores}
    for thing, method in itertools.pairwise(instructions):
        if method.opname in ("LOAD_ATTR", "LOAD_METHOD") and method.argval in ADDING_METHODS and thing.opname in LOADS:
            names.add(thing.argval + ENTRY)
    inner = (written_by(x) for x in code.co_consts if isinstance(x, types.CodeType))
    return frozenset(names.union(*inner))


@functools.lru_cache(maxsize=4096)
def globals_in(code: types.CodeType) -> tuple[str, ...]:
    """Return the names of the globals that a function and its nested functions load."""
    names = {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    inner = (globals_in(x) for x in code.co_consts if isinstance(x, types.CodeType))
    return tuple(sorted(names.union(*inner)))


@functools.lru_cache(maxsize=4096)
def is_of_library(module: str | None) -> bool:
    """Whether a module is part of ukjax, of Python or of an installed package, which are identified by version."""
    top = str(module).partition(".")[0]
    if top == "__main__":
        return False
    if top == PACKAGE or top in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(top), "__file__", None)
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    return file is not None and ("site-packages" in file or any(file.startswith(folder) for folder in installed))
