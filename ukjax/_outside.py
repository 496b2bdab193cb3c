"""Numbers that a function reads from outside: globals, numbers of functions that it calls, attributes of objects.

A compiled program has the values that these had when it was traced. They are part of the key of every program here, so
that a number that has changed compiles the program anew, as if the function were another one.
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

MOST = 1000
"""Things that are looked at for one function. What lies deeper is not noticed when it changes."""

FEW = 100_000
"""Entries of a NumPy array that are compared. Of a larger one every so many are."""

ENTRY = "[]"
"""In a name: an entry of a container."""

LENGTHENING = {"append", "appendleft", "extend", "insert"}
"""Methods of containers. ``add`` and ``update`` are not among them: they are other things in JAX."""

OUTSIDE = {"LOAD_DEREF", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR"}
"""Instructions that begin with what is no variable of the function's own."""

PACKAGE = __name__.partition(".")[0]
JITTED = type(jax.jit(lambda: None))
PLAIN = (str, bytes, type(None), type, types.ModuleType, types.BuiltinFunctionType, np.ufunc)


class Same:
    """An object that is equal to itself alone, for as long as this stands for it."""

    def __init__(self, thing: Any):
        self.thing = thing

    def __hash__(self) -> int:
        return id(self.thing)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.thing is other.thing


def external_values(function: Callable) -> tuple[Hashable, ...]:
    """A key of the values that the numbers have which ``function`` reads from outside. Functions of installed packages
    are not looked into, apart from what they were made to hold; and what a function itself writes, such as a counter of
    its calls, is no number that it depends on."""
    found: list[tuple[Any, ...]] = []
    seen: dict[int, Any] = {}
    read: set[str] = set()
    written: set[str] = set()
    objects: list[tuple[Any, set[str]]] = []
    waiting: list[tuple[str, Any]] = [("", function)]
    while waiting and len(seen) < MOST:
        name, thing = waiting.pop()
        if isinstance(thing, bool | int | float | complex):
            found.append((name, type(thing), repr(thing)))
        elif isinstance(thing, jax.Array):
            found.append((name, Same(thing)))  # it never changes
        elif isinstance(thing, np.ndarray | np.generic):
            found.append((name, thing.dtype.str, thing.shape, _sample(thing)))
        elif not isinstance(thing, PLAIN) and id(thing) not in seen:
            seen[id(thing)] = thing  # kept: another could get its id
            if isinstance(thing, types.FunctionType):
                read |= names_in(thing.__code__)
                written |= written_by(thing.__code__)
            parts = _parts(name, thing)
            waiting += parts or ()
            if parts is None:
                objects.append((thing, set()))
        if not waiting:  # of objects only what the functions so far ask for
            for thing, known in objects:
                waiting += [(name, _attribute(thing, name)) for name in sorted(read - known)]
                known |= read
    return tuple(entry for entry in found if entry[0] not in written and not (ENTRY in written and ENTRY in entry[0]))


def external_values_in(tree: Any) -> tuple[Hashable, ...]:
    """The same of all functions in a pytree."""
    return tuple(external_values(x) for x in jax.tree.leaves(tree) if callable(x) and not isinstance(x, type))


def _sample(array):
    if array.dtype == object:
        return None
    entries = array.reshape(-1) if isinstance(array, np.ndarray) else np.reshape(array, 1)
    return hash(entries[:: -(-entries.size // FEW) or 1].tobytes())


def _parts(name, thing) -> list[tuple[str, Any]] | None:
    """What a thing of this name holds at first hand, or reads, by name; None of an object with attributes."""
    if isinstance(thing, types.FunctionType):
        held = [
            (name, cell.cell_contents)
            for name, cell in zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=True)
            if cell != types.CellType()
        ]
        held += [("", x) for x in (*(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values())]
        if not is_of_library(thing.__module__):
            outside = thing.__globals__
            held += [(name, outside[name]) for name in globals_in(thing.__code__) if name in outside]
        return held
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
    """Of an object or its class, without calling anything; None if there is none."""
    for held in (getattr(thing, "__dict__", {}), *map(vars, type(thing).__mro__)):
        if name in held:
            value = held[name]
            value = value.fget if isinstance(value, property) else value
            return getattr(value, "__func__", value) if isinstance(value, staticmethod | classmethod) else value
    return None


@functools.lru_cache(maxsize=4096)
def names_in(code: types.CodeType) -> frozenset[str]:
    """Names of the globals and attributes that a function uses, and those within it."""
    inner = (names_in(x) for x in code.co_consts if isinstance(x, types.CodeType))
    return frozenset(code.co_names).union(*inner)


@functools.lru_cache(maxsize=4096)
def written_by(code: types.CodeType) -> frozenset[str]:
    """Names of the globals, attributes and variables of outer functions that a function writes, and ``ENTRY`` if it
    writes entries of containers; with ``ENTRY`` behind it, the name of a container that it makes longer."""
    writing = {"STORE_GLOBAL", "STORE_ATTR", "STORE_DEREF", "STORE_SUBSCR"}
    steps = list(dis.get_instructions(code))
    names = {each.argval or ENTRY for each in steps if each.opname in writing}
    for thing, method in itertools.pairwise(steps):
        if method.opname in ("LOAD_ATTR", "LOAD_METHOD") and method.argval in LENGTHENING and thing.opname in OUTSIDE:
            names.add(thing.argval + ENTRY)
    inner = (written_by(x) for x in code.co_consts if isinstance(x, types.CodeType))
    return frozenset(names.union(*inner))


@functools.lru_cache(maxsize=4096)
def globals_in(code: types.CodeType) -> tuple[str, ...]:
    """Names of what a function takes from outside, and those within it."""
    names = {each.argval for each in dis.get_instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    inner = (globals_in(x) for x in code.co_consts if isinstance(x, types.CodeType))
    return tuple(sorted(names.union(*inner)))


@functools.lru_cache(maxsize=4096)
def is_of_library(module: str | None) -> bool:
    """Whether it is of this package, of Python or of an installed package: all of these are known by their versions."""
    top = str(module).partition(".")[0]
    if top == "__main__":
        return False
    if top == PACKAGE or top in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(top), "__file__", None)
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    return file is not None and ("site-packages" in file or any(file.startswith(folder) for folder in installed))
