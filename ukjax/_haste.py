"""How long XLA may take over a program.

On a CPU it has two ways to make the code of fused operations. The newer takes twice as long or more, and for small
matrices in loops is no faster; and what runs once is not worth optimising at all.
"""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx

SOON = {"xla_cpu_use_fusion_emitters": False}
UNKNOWN, NESTED = "No such compile option", "compiler_options"  # in the words of XLA and of JAX
AT_ONCE = SOON | {"xla_backend_optimization_level": 0}


def soon(function: Callable) -> Callable:
    """``function`` of pytrees as one program, for small matrices and long loops: as quick as any, compiled sooner."""
    return _compiled(function, SOON)


def at_once(function: Callable) -> Callable:
    """``function`` of pytrees as one program that runs once or twice: to look at a start, or at an end."""
    return _compiled(function, AT_ONCE)


def compile_soon(lowered: Any) -> Callable:
    """The same for what ``equinox.filter_jit`` has lowered."""
    try:
        return lowered.compile(compiler_options=SOON)
    except RuntimeError as error:
        if UNKNOWN not in str(error):
            raise
    return lowered.compile()


def _compiled(function, options):
    in_haste = eqx.filter_jit(function, compiler_options=options)  # pyright: ignore[reportCallIssue]
    as_usual = eqx.filter_jit(function)

    @functools.wraps(function)
    def wrapped(*arguments: Any) -> Any:
        try:
            return in_haste(*arguments)
        except (ValueError, RuntimeError) as error:  # within another program, or where XLA knows of no such option
            if not any(words in str(error) for words in (UNKNOWN, NESTED)):
                raise
        return as_usual(*arguments)

    return wrapped
