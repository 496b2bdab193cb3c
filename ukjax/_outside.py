"""Numbers that a function reads from outside: globals, numbers of functions that it calls, attributes of objects.

A compiled program has the values that these had when it was traced. They are part of the key of every program here, so
that a number that has changed compiles the program anew, as if the function were another one.
"""

import dis
import functools
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


def numbers_outside(function: Callable) -> tuple[Hashable, ...]:
    """A key of the values that the numbers have which ``function`` reads from outside. Functions of installed packages
    are not looked into, apart from what they were made to hold."""
    found: list[Hashable] = []
    seen: dict[int, Any] = {}
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
            waiting += _parts(thing)
    return tuple(found)


def numbers_outside_of(tree: Any) -> tuple[Hashable, ...]:
    """The same of all functions in a pytree."""
    return tuple(numbers_outside(x) for x in jax.tree.leaves(tree) if callable(x) and not isinstance(x, type))


def _sample(array):
    if array.dtype == object:
        return None
    entries = array.reshape(-1) if isinstance(array, np.ndarray) else np.reshape(array, 1)
    return hash(entries[:: -(-entries.size // FEW) or 1].tobytes())


def _parts(thing) -> list[tuple[str, Any]]:
    """What a thing holds at first hand, or reads, by name."""
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
        return [("", x) for x in thing]
    if isinstance(thing, dict):
        return [(str(name), x) for name, x in thing.items()]
    if is_of_library(type(thing).__module__):
        return []
    return list(getattr(thing, "__dict__", {}).items())


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
