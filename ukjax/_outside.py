"""External values of a function: the numbers that it reads from globals, closures and attributes of objects.

A compiled program contains the values at the time of tracing. These values are part of the key of every cached program,
so that a changed value triggers a new compilation, as for another function.
"""

import argparse
import contextlib
import contextvars
import dis
import functools
import itertools
import sys
import sysconfig
import types
from collections.abc import Hashable, Iterator
from dataclasses import fields
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ._flatten import flat_of
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
WITHOUT_VALUES = (str, bytes, type(None), types.ModuleType, types.BuiltinFunctionType, np.ufunc)

NAMESPACES = types.SimpleNamespace, argparse.Namespace
"""Types of Python's library whose attributes are data of the user."""

IMPLICIT_METHODS = "__call__", "__getitem__"
"""Methods that are called without their names."""


class ByIdentity:
    """Hashable wrapper that compares an object by identity and keeps it alive."""

    def __init__(self, thing: Any):
        self.thing = thing

    def __hash__(self) -> int:
        return id(self.thing)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByIdentity) and self.thing is other.thing


_values_read: contextvars.ContextVar[dict[tuple[int, ...], Any] | None] = contextvars.ContextVar("values", default=None)


@contextlib.contextmanager
def read_once() -> Iterator[None]:
    """Within this context the external values of a function are read once, and these are used until its end.

    A simulation needs them for each of its programs. To search a function takes up to a millisecond.
    """
    if _values_read.get() is not None:
        yield
        return
    token = _values_read.set({})
    try:
        yield
    finally:
        _values_read.reset(token)


def is_reading_once() -> bool:
    """Whether ``read_once`` is active, so that to compare external values takes little time."""
    return _values_read.get() is not None


def external_values(*functions: Any) -> tuple[Hashable, ...]:
    """Return a hashable key of the external values that ``functions`` read: functions, objects that are called, or
    classes; all methods of a class are searched.

    Of functions of installed packages, only closures and defaults are searched. Values that the functions themselves
    write, such as a counter of their calls, are excluded.
    """
    if not functions:
        return ()
    read, key = _values_read.get(), tuple(map(id, functions))
    if read is None:
        return _external_values(functions)
    if key not in read:
        read[key] = functions, _external_values(functions)  # the functions stay alive, so that ids are not reused
    return read[key][1]


def _external_values(functions):
    values: list[tuple[Any, ...]] = []
    visited: dict[int, Any] = {}
    read = set(IMPLICIT_METHODS)
    written: set[str] = set()
    objects: list[tuple[Any, set[str]]] = []
    queue: list[tuple[str, Any]] = [("", function) for function in functions]
    while queue and len(visited) < MAX_OBJECTS:
        name, thing = queue.pop()
        if isinstance(thing, bool | int | float | complex):
            values.append((name, type(thing), repr(thing)))
        elif isinstance(thing, jax.Array):
            values.append((name, ByIdentity(thing)))  # immutable
        elif isinstance(thing, np.ndarray | np.generic):
            values.append((name, thing.dtype.str, thing.shape, _sample(thing)))
        elif not isinstance(thing, WITHOUT_VALUES) and id(thing) not in visited:
            visited[id(thing)] = thing  # keeps the object alive, so that its id is not reused
            if isinstance(thing, types.FunctionType):
                read |= names_in(thing.__code__)
                written |= written_by(thing.__code__)
            parts = _parts(name, thing)
            queue += parts or ()
            if parts is None or isinstance(thing, type):
                objects.append((thing, set()))
        if not queue:  # of objects, only attributes that the functions searched so far read
            for thing, searched in objects:
                queue += [(name, _attribute(thing, name)) for name in sorted(read - searched)]
                searched |= read
    return tuple(entry for entry in values if entry[0] not in written and not (ENTRY in written and ENTRY in entry[0]))


def external_values_in(tree: Any) -> tuple[Hashable, ...]:
    """Return the external values of all functions in a pytree, and of the methods of its classes."""
    flat = flat_of(tree)
    functions = (external_values(x) for x in flat.leaves if callable(x) and not isinstance(x, type))
    return *functions, external_values_of_structure(flat.tree)


def external_values_of_structure(structure: Any) -> tuple[Hashable, ...]:
    """Return the external values of the methods of a pytree's classes, and of the functions in its static fields."""
    return external_values(*code_in(structure))


def code_in(structure: Any) -> tuple[Any, ...]:
    """Return the classes of a pytree that are not part of a library, and the values of its static fields that may be
    called."""
    try:
        return _searched(structure)
    except TypeError:  # a static field that cannot be hashed
        return _searched.__wrapped__(structure)


@functools.lru_cache(maxsize=512)
def _searched(structure):
    """See ``_code_in``."""
    if structure.node_data() is None:
        return ()
    cls, _ = structure.node_data()
    found = [] if is_of_library(cls.__module__) else [cls]
    if issubclass(cls, eqx.Module):
        module = structure.unflatten([None] * structure.num_leaves)
        static = [x.name for x in fields(cls) if x.metadata.get("static") and hasattr(module, x.name)]
        found += [x for x in (getattr(module, name) for name in static) if callable(x)]
    for child in structure.children():
        found += _searched.__wrapped__(child)
    return tuple({id(x): x for x in found}.values())


def holds_tracers(values: tuple[Hashable, ...]) -> bool:
    """Whether a traced array is one of the values that ``external_values_in`` returned."""
    arrays = (x.thing for entries in values for entry in entries for x in entry if isinstance(x, ByIdentity))
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
    if isinstance(thing, type):
        return [] if is_of_library(thing.__module__) else [("", x) for x in _methods(thing)]
    if not is_of_library(type(thing).__module__) or isinstance(thing, NAMESPACES):
        return None
    if isinstance(thing, eqx.Module):
        leaves, structure = jax.tree.flatten(thing)
        return [(name, x) for x in (*leaves, *code_in(structure))]
    wrapped = getattr(thing, "__wrapped__", None) if callable(thing) else None
    return [] if wrapped is None else [("", wrapped)]


def _methods(cls):
    """Functions of a class and of its bases outside of libraries: methods and properties."""
    for base in _own_classes(cls):
        for name in vars(base):
            if not name.startswith("__") or name in IMPLICIT_METHODS:
                method = _attribute(cls, name)
                if callable(method) and not isinstance(method, type):
                    yield method


@functools.lru_cache(maxsize=512)
def _own_classes(cls):
    """A class and those of its bases that are not part of a library."""
    return tuple(base for base in cls.__mro__ if not is_of_library(base.__module__))


def _attribute(thing, name):
    """Return an attribute of an object or its class without calling descriptors, None if there is none."""
    cls = thing if isinstance(thing, type) else type(thing)
    for namespace in (getattr(thing, "__dict__", {}), *map(vars, _own_classes(cls))):
        if name in namespace:
            value = namespace[name]
            value = value.fget if isinstance(value, property) else value
            value = value.func if isinstance(value, functools.cached_property) else value
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
