"""How long XLA may take over a program.

On a CPU it has two ways to make the code of fused operations. The newer takes twice as long or more, and for small
matrices in loops is no faster; and what runs once is not worth optimising at all.
"""

import contextlib
import functools
import gc
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx

SOON = {"xla_cpu_use_fusion_emitters": False}
UNKNOWN, NESTED = "No such compile option", "compiler_options"  # in the words of XLA and of JAX
AT_ONCE = SOON | {"xla_backend_optimization_level": 0}
MANY = SOON | {"xla_cpu_prefer_vector_width": 512}  # bits: eight members at a time, where a processor can


def soon(function: Callable) -> Callable:
    """``function`` of pytrees as one program, for small matrices and long loops: as quick as any, compiled sooner."""
    return _compiled(function, SOON)


def at_once(function: Callable) -> Callable:
    """``function`` of pytrees as one program that runs once or twice: to look at a start, or at an end."""
    return _compiled(function, AT_ONCE)


def compiled_soon(function: Callable, *arguments: Any) -> Callable:
    """The same for an ``equinox.filter_jit`` and arguments like these, for batches: what is written out is one chain
    of operations on each member, and a fifth faster the more of them go along it side by side."""
    with _nothing_collected():
        lowered: Any = function.lower(*arguments)  # pyright: ignore[reportFunctionMemberAccess]
        while True:
            options = _known(MANY)
            try:
                return lowered.compile(compiler_options=dict(options))
            except RuntimeError as error:
                _learn(error, options)


@contextlib.contextmanager
def _nothing_collected() -> Iterator[None]:
    """Tracing makes hundreds of thousands of objects that are all needed: looking for what could go, again and again,
    is a fifteenth of the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _compiled(function, options):
    jitted: Callable = eqx.filter_jit  # which hands on what it does not name
    in_haste = functools.cache(lambda known: jitted(function, compiler_options=dict(known)))
    as_usual = eqx.filter_jit(function)

    @functools.wraps(function)
    def wrapped(*arguments: Any) -> Any:
        while True:
            known = _known(options)
            try:
                return in_haste(known)(*arguments)
            except ValueError as error:
                if NESTED not in str(error):
                    raise
                return as_usual(*arguments)  # within another program
            except RuntimeError as error:
                _learn(error, known)

    return wrapped


_unknown: set[str] = set()


def _known(options):
    """Those that this XLA has."""
    return tuple((name, value) for name, value in options.items() if name not in _unknown)


def _learn(error, options):
    """Remember the option that XLA does not have, if that is what went wrong."""
    new = {name for name, _ in options if f"{UNKNOWN}: {name!r}" in str(error)}
    if not new:
        raise error
    _unknown.update(new)
