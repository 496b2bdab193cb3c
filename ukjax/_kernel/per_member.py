"""``per_member(f)``: compile ``f`` as one kernel, for one member or a batch.

One JAX primitive stands for the whole function. ``vmap``, nested or not, only records which arguments have one entry
per member. The batch stays the last axis, so that entries of different members are neighbours in memory. Derivatives
are operations of the same primitive: intermediate values, such as those of a factorisation, are recomputed where they
are used and never stored.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from .._errors import InputError
from .._jaxpr.nested import any_equation
from .._run.compile import LRUCache, Static, join, split
from . import lowering as lowering
from . import transform as transform
from .primitive import per_member_p
from .unsupported import KernelOptions, origin

CUSTOM_VMAP = "custom_vmap_call"  # the primitive of jax.custom_batching.custom_vmap

MAX_PROGRAMS_PER_FUNCTION = 32
"""Programs kept per function, one for each value of its static arguments, such as the model. A program that was dropped
is compiled again."""


def per_member(function: Callable, strict: bool = False) -> Callable:
    """Compile a function of one member as one kernel for batches; values and derivatives stay the same.

    Use it inside ``jit``, as in ``jax.jit(jax.vmap(uk.per_member(f)))``. Outside ``jit`` it is compiled by the rules of
    ``jax.jit``. ``function`` is traced once for all arguments of equal structure, shapes and types, so a global
    variable or a field of an object that it reads keeps the value of that time. Python numbers among the arguments are
    constants: a separate program is compiled for each value. Call ``per_member`` once and reuse the result: the
    compiled programs are dropped together with the result.

    On a CPU, LLVM compiles ``function`` to machine code as one kernel. The kernel serves one member and batches of any
    size, computes several members with each instruction (SIMD), and divides large batches among the cores. It may
    contain arithmetic, mathematical functions, ``lax.scan`` and ``lax.while_loop`` of any length, ``lax.cond`` and
    ``lax.switch``, and computed indices. The members of one vector, eight at most, run together: a branch of many
    operations is executed only if one of them takes it, and their loops end when the last of them has finished.

    A kernel cannot contain solvers of LAPACK (``jnp.linalg.solve``, ``eigh``, ``svd``), random keys, callbacks, or
    numbers other than float64, float32, integers and booleans. A function with one of these is executed as by ``vmap``,
    which is slower, with a warning that names the operation and its line. A function of more than 300 000
    operations is executed by the ``per_member`` functions that it calls, or else member by member. A function that is
    called for one member alone and has no long loop is compiled by XLA from 30 000 operations on, since it has large
    matrices. A function with its own batching rule, by ``jax.custom_batching.custom_vmap`` as in ``method="sparse"``,
    is batched by that rule. On a TPU or a GPU of AMD, in programs written by ``jax.export``, and where llvmlite is not
    installed (with a warning), all functions are executed as by ``vmap``.

    On a GPU of NVIDIA, each member is a thread of one kernel, of at most 60 000 operations and 32 KiB of arrays for
    each thread. Larger functions are executed by the ``per_member`` functions that they call, or else as by ``vmap``.
    The environment variable ``UKJAX_CUDA_KERNELS=0`` turns these kernels off.

    In a kernel, a zero that is known at compile time times any number is 0; sin(x − x) is 0 and cos(x − x) is 1, also
    where x is infinite or NaN. All other results are infinite or NaN where those of ``vmap`` are.

    Parameters
    ----------
    function
        A function of pytrees of arrays, for one member.
    strict
        Raise ``InputError`` if ``function`` cannot be compiled as one kernel, or has more than 300 000 operations.

    Returns
    -------
    Callable
        A function with the arguments and results of ``function``.
    """
    if not callable(function) or isinstance(function, type):
        raise InputError(f"function must be a function of arrays, got {function!r}")
    if not isinstance(strict, bool):
        raise InputError(f"strict must be True or False, got {strict!r}")
    return _compiled(function, KernelOptions(strict, origin(function)))


def per_member_forward(function: Callable) -> Callable:
    """``per_member(function)`` for forward mode: its JVP is one kernel, which returns the results and their tangents.

    Otherwise it is two kernels, so that reverse mode can separate results and tangents, and the second one computes the
    results again.
    """
    return _compiled(function, KernelOptions(False, origin(function), joint_jvp=True))


def _compiled(function, options):
    def bind(static: Static, leaves: list[Any]) -> tuple[Static, list[Any]]:
        structure: Any = None

        def flat(*leaves):
            nonlocal structure
            structure, results = split(function(*static.join(leaves)))
            return results

        traced = jax.make_jaxpr(flat)(*leaves)
        if traced.effects:
            return split(function(*static.join(leaves)))
        if not options.strict and any_equation(traced, lambda equation: equation.primitive.name == CUSTOM_VMAP):
            return structure, jaxpr_as_fun(traced)(*leaves)
        jaxpr, captured = _without_closure(traced, leaves)
        results = per_member_p.bind(
            *captured,
            *leaves,
            jaxpr=jaxpr,
            mapped=(False,) * (len(captured) + len(leaves)),
            options=options,
        )
        return structure, results

    # ``jit`` keeps its traces and programs in its own caches as long as its function exists; ``jax.clear_caches``
    # empties them. With inline=True, an enclosing program contains no call.
    programs = LRUCache(MAX_PROGRAMS_PER_FUNCTION)
    compiled_for = lambda static: programs.of(static, lambda: jax.jit(functools.partial(bind, static), inline=True))

    @functools.wraps(function)
    def wrapped(*arguments: Any) -> Any:
        static, leaves = split(arguments)
        return join(compiled_for(static)(leaves) if static.is_hashable() else bind(static, leaves))

    return wrapped


def _without_closure(traced, leaves):
    """Lift constants of ``traced`` that are tracers: the jaxpr with these as its first arguments, and their values."""
    positions = [i for i, x in enumerate(traced.consts) if isinstance(x, Tracer)]
    if not positions:
        return traced, []
    captured = [traced.consts[i] for i in positions]

    def lifted(captured, *leaves):
        consts = list(traced.consts)
        for i, x in zip(positions, captured, strict=True):
            consts[i] = x
        return jaxpr_as_fun(ClosedJaxpr(traced.jaxpr, consts))(*leaves)

    return jax.make_jaxpr(lifted)(captured, *leaves), captured
