"""Hoist tracers out of closures: functions that close over tracers become pytrees with the tracers as leaves.

Inside a function that JAX differentiates, maps or compiles, a user may write a model with ``lambda t, q: g * q[1]``,
where g is a tracer. This g is invisible from outside the lambda: a cached program would leak it, and a derivative would
omit it. Such functions are therefore rebuilt with placeholders for the tracers. No function is traced or called.
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

from .._flatten import Flat, ask_all

MAX_OBJECTS = 10_000
"""Largest number of objects that are searched in one function. For tracers beyond it, JAX raises an error."""

JITTED = type(jax.jit(lambda: None))
WITHOUT_TRACERS = (str, bytes, int, float, complex, type(None), np.ndarray, np.generic, jax.Array, ModuleType, type)
"""Types whose instances contain no tracers."""

Tree = TypeVar("Tree")


def hoist_tracers(tree: Tree) -> Tree:
    """Make the tracers that the functions in ``tree`` close over leaves of ``tree``. Without any, return ``tree``.

    Closures, default arguments, ``functools.partial``, the objects of bound methods, and functions, containers and
    objects inside these are searched.
    """
    if not any(contains_tracer(leaf) for leaves in ask_all(_functions, tree) for leaf in leaves):
        return tree
    return jax.tree.map(lambda leaf: _hoist(leaf) if contains_tracer(leaf) else leaf, tree)


class HoistedFunction(eqx.Module):
    """A function with placeholders, and the ``tracers`` that belong there."""

    function: Callable = eqx.field(static=True)
    tracers: tuple[Array, ...]

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return _replace(self.function, _Placeholder, lambda place: self.tracers[place.index])(*arguments, **named)


class _Placeholder:
    """Placeholder of the tracer number ``index``."""

    def __init__(self, index: int):
        self.index = index


def contains_tracer(leaf: Any) -> bool:
    """Whether ``leaf`` is a function that closes over a tracer."""
    return callable(leaf) and bool(_find(leaf, jax.core.Tracer))


def _functions(flat: Flat) -> list[Any]:
    return list(filter(callable, flat.leaves))


def _hoist(function):
    tracers = _find(function, jax.core.Tracer)
    places = {id(number): _Placeholder(i) for i, number in enumerate(tracers)}
    return HoistedFunction(_replace(function, jax.core.Tracer, lambda number: places[id(number)]), tuple(tracers))


def _find(thing, kind) -> list:
    """Find all objects of type ``kind`` that ``thing`` contains, each once."""
    matches, visited, queue = {}, {}, [thing]
    while queue and len(visited) < MAX_OBJECTS:
        current = queue.pop()
        if isinstance(current, kind):
            matches[id(current)] = current
        elif id(current) not in visited:
            visited[id(current)] = current  # keeps the object alive, so that its id is not reused
            queue += _parts(current)
    return list(matches.values())


def _parts(thing) -> list:
    """Return the objects that ``thing`` refers to directly."""
    if isinstance(thing, (*WITHOUT_TRACERS, BuiltinFunctionType)):
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


def _replace(thing: Any, kind: type, replacement: Callable, copies: dict[int, Any] | None = None) -> Any:
    """Replace each x of type ``kind`` inside ``thing`` by ``replacement(x)``. Objects without such x are not copied."""
    copies = {} if copies is None else copies
    if isinstance(thing, kind):
        return replacement(thing)
    if id(thing) in copies:
        return copies[id(thing)]
    if not _find(thing, kind):
        return thing
    recurse = lambda part: _replace(part, kind, replacement, copies)
    # Objects that can refer to themselves, such as recursive functions, are recorded before their parts.
    if isinstance(thing, CellType):
        new = copies[id(thing)] = CellType()
        new.cell_contents = recurse(thing.cell_contents)
    elif isinstance(thing, FunctionType):
        cells = thing.__closure__ and tuple(recurse(cell) for cell in thing.__closure__)
        new = copies[id(thing)] = FunctionType(thing.__code__, thing.__globals__, thing.__name__, closure=cells)
        new.__defaults__ = thing.__defaults__ and tuple(map(recurse, thing.__defaults__))
        new.__kwdefaults__ = {name: recurse(value) for name, value in (thing.__kwdefaults__ or {}).items()}
        new.__qualname__ = thing.__qualname__
    elif isinstance(thing, MethodType):
        new = MethodType(recurse(thing.__func__), recurse(thing.__self__))
    elif isinstance(thing, functools.partial):
        new = functools.partial(
            recurse(thing.func), *map(recurse, thing.args), **{name: recurse(x) for name, x in thing.keywords.items()}
        )
    elif isinstance(thing, JITTED):
        new = recurse(thing.__wrapped__)  # pyright: ignore[reportAttributeAccessIssue]
    elif _is_container(thing):
        new = jax.tree.map(recurse, thing)
    else:
        new = copies[id(thing)] = copy.copy(thing)
        vars(new).update({name: recurse(value) for name, value in vars(thing).items()})
    return new


def _is_container(thing) -> bool:
    """Whether ``thing`` is a pytree node rather than a leaf."""
    leaves = jax.tree.leaves(thing)
    return not (len(leaves) == 1 and leaves[0] is thing)
