"""Traced numbers that functions hold from the place where they were written, made into leaves.

Inside a function that JAX differentiates, maps or compiles, a user may well write a model with
``lambda t, q: g * q[1]`` where g is being traced. Nobody can see that g from outside the lambda: a program made of it
would keep g beyond its time, and a derivative would pass it by. So functions are looked into, and those that hold such
numbers are written anew with the numbers as leaves. Nothing is traced or called for that.
"""

import copy
import functools
from collections.abc import Callable
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.core
import numpy as np
from jaxtyping import Array

MOST = 10_000
"""Things looked at in one function. What lies deeper is left to JAX, which complains of it."""

JITTED = type(jax.jit(lambda: None))
CLOSED = (str, bytes, int, float, complex, type(None), np.ndarray, np.generic, jax.Array, ModuleType, type)
"""What holds nothing that is traced."""

Tree = TypeVar("Tree")


def hoist_tracers(tree: Tree) -> Tree:
    """``tree`` with the traced numbers that its functions hold as leaves of it; itself if they hold none.

    They are found in closures, default arguments, ``functools.partial``, the objects of bound methods and in functions,
    containers and objects inside these.
    """
    if not any(map(_is_to_be_opened, jax.tree.leaves(tree))):
        return tree
    return jax.tree.map(lambda leaf: _opened(leaf) if _is_to_be_opened(leaf) else leaf, tree)


class HoistedFunction(eqx.Module):
    """A function that holds places where numbers stood, and these, ``taken`` out of it."""

    function: Callable = eqx.field(static=True)
    taken: tuple[Array, ...]

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return _with(self.function, _Place, lambda place: self.taken[place.index])(*arguments, **named)


class _Place:
    """Where the number ``index`` stood."""

    def __init__(self, index: int):
        self.index = index


def _is_to_be_opened(leaf) -> bool:
    return callable(leaf) and bool(_held(leaf, jax.core.Tracer))


def _opened(function):
    taken = _held(function, jax.core.Tracer)
    places = {id(number): _Place(i) for i, number in enumerate(taken)}
    return HoistedFunction(_with(function, jax.core.Tracer, lambda number: places[id(number)]), tuple(taken))


def _held(thing, kind) -> list:
    """Everything of a ``kind`` that a function holds, each once."""
    found, seen, waiting = {}, {}, [thing]
    while waiting and len(seen) < MOST:
        here = waiting.pop()
        if isinstance(here, kind):
            found[id(here)] = here
        elif id(here) not in seen:
            seen[id(here)] = here  # kept: another could get its id
            waiting += _parts(here)
    return list(found.values())


def _parts(thing) -> list:
    """What a thing holds at first hand."""
    if isinstance(thing, (*CLOSED, BuiltinFunctionType)):
        return []
    if isinstance(thing, FunctionType):
        return [*(thing.__closure__ or ()), *(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values()]
    if isinstance(thing, CellType):
        return [] if thing == CellType() else [thing.cell_contents]
    if isinstance(thing, MethodType):
        return [thing.__func__, thing.__self__]
    if isinstance(thing, functools.partial):
        return [thing.func, *thing.args, *thing.keywords.values()]
    if isinstance(thing, JITTED):
        return [thing.__wrapped__]  # pyright: ignore[reportAttributeAccessIssue]
    if _is_container(thing):
        return jax.tree.leaves(thing)
    return list(getattr(thing, "__dict__", {}).values())


def _with(thing: Any, kind: type, put: Callable, made: dict[int, Any] | None = None) -> Any:
    """``thing`` with ``put(x)`` for each x of a ``kind`` that it holds; what holds none stays the same object."""
    made = {} if made is None else made
    if isinstance(thing, kind):
        return put(thing)
    if id(thing) in made:
        return made[id(thing)]
    if not _held(thing, kind):
        return thing
    again = lambda part: _with(part, kind, put, made)
    # What may hold itself, as a recursive function does, is noted before its parts.
    if isinstance(thing, CellType):
        new = made[id(thing)] = CellType()
        new.cell_contents = again(thing.cell_contents)
    elif isinstance(thing, FunctionType):
        cells = thing.__closure__ and tuple(again(cell) for cell in thing.__closure__)
        new = made[id(thing)] = FunctionType(thing.__code__, thing.__globals__, thing.__name__, closure=cells)
        new.__defaults__ = thing.__defaults__ and tuple(map(again, thing.__defaults__))
        new.__kwdefaults__ = {name: again(value) for name, value in (thing.__kwdefaults__ or {}).items()}
        new.__qualname__ = thing.__qualname__
    elif isinstance(thing, MethodType):
        new = MethodType(again(thing.__func__), again(thing.__self__))
    elif isinstance(thing, functools.partial):
        new = functools.partial(
            again(thing.func), *map(again, thing.args), **{name: again(x) for name, x in thing.keywords.items()}
        )
    elif isinstance(thing, JITTED):
        new = again(thing.__wrapped__)  # pyright: ignore[reportAttributeAccessIssue]
    elif _is_container(thing):
        new = jax.tree.map(again, thing)
    else:
        new = made[id(thing)] = copy.copy(thing)
        vars(new).update({name: again(value) for name, value in vars(thing).items()})
    return new


def _is_container(thing) -> bool:
    """Whether it is a pytree of other things."""
    leaves = jax.tree.leaves(thing)
    return not (len(leaves) == 1 and leaves[0] is thing)
