"""``per_member(f)``: f itself, compiled as one kernel for one member and for many.

One operation of JAX stands for the whole function. ``vmap``, nested or not, only notes which arguments have one entry
per member, and the batch stays the last axis, where entries of different members are neighbours in memory; derivatives
are operations of the same kind, so the values of a factorisation are computed where they are used and never kept.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from .._run.compile import Recent, Static, joined, split
from . import lowering as lowering  # what it becomes in a program
from . import transform as transform  # what vmap and derivatives make of it
from .primitive import holds, per_member_p
from .unsupported import KernelOptions, origin

CUSTOM_VMAP = "custom_vmap_call"  # JAX's word for it

MOST_PROGRAMS = 32
"""Of one function, for different static arguments, such as different models. One that was dropped is made anew."""


def per_member(function: Callable, strict: bool = False) -> Callable:
    """``function`` of pytrees of arrays, with the same values and derivatives: made to be batched.

    It belongs inside ``jit``, as in ``jax.jit(jax.vmap(uk.per_member(f)))``. Called outside, it compiles itself, and
    the rules are those of ``jax.jit``: ``function`` is traced once for all arguments of like shapes and types, so what
    it takes from outside (a global, a field of an object) stays as it was then; Python numbers among the arguments are
    constants, each value a program of its own; keep what ``per_member`` returns, for what it compiled goes with it.

    On a CPU, LLVM compiles ``function`` to machine code as one kernel. The kernel serves one member and batches of any
    size, does several members with each instruction, and shares large batches among the cores. It may contain
    arithmetic, mathematical functions, ``lax.scan`` and ``lax.while_loop`` of any length, ``lax.cond`` and
    ``lax.switch``, and indices that are computed. A branch of many operations is done only where one of the members
    done together, eight at most, takes it. Their loops end when the last of them is through.

    A kernel cannot contain solvers of LAPACK (``jnp.linalg.solve``, ``eigh``, ``svd``), random keys, callbacks, and
    numbers other than float64, float32, integers and truth values. A function with one of these is done as by
    ``vmap``, often twenty times slower, with a warning that names the operation and its line. With ``strict`` that is a
    ``ValueError``, and so is a function of more than 300 000 operations. Without ``strict`` so long a function is done
    in the pieces that have their own ``per_member``, or one member after the other. A function that is called for one
    member alone and has no long loop is compiled by XLA from 10 000 operations on: it has large matrices. A function
    that says itself how it is batched, by ``jax.custom_batching.custom_vmap`` as ``method="sparse"`` does, is batched
    so. It is done as by ``vmap`` too on a GPU or TPU, in what ``jax.export`` writes, and where llvmlite is not
    installed, of which a warning tells.

    In a kernel, a zero that is known when it is compiled, times any number, is 0; sin(x − x) is 0 and cos(x − x) is 1,
    also where x is infinite or NaN. Everything else is infinite or NaN where it is so by ``vmap``.
    """
    if not callable(function) or isinstance(function, type):
        raise ValueError(f"function must be one of arrays, got {function!r}")
    if not isinstance(strict, bool):
        raise ValueError(f"strict must be True or False, got {strict!r}")
    how = KernelOptions(strict, origin(function))

    def done(given: Static, leaves: list[Any]) -> tuple[Static, list[Any]]:
        structure: Any = None

        def flat(*leaves):
            nonlocal structure
            structure, results = split(function(*given.join(leaves)))
            return results

        traced = jax.make_jaxpr(flat)(*leaves)
        if traced.effects:
            return split(function(*given.join(leaves)))
        if not how.strict and holds(traced, lambda equation: equation.primitive.name == CUSTOM_VMAP):
            return structure, jaxpr_as_fun(traced)(*leaves)
        closed, held = _without_closure(traced, leaves)
        results = per_member_p.bind(
            *held,
            *leaves,
            jaxpr=closed,
            mapped=(False,) * (len(held) + len(leaves)),
            how=how,
        )
        return structure, results

    # ``jit`` keeps what it traced and compiled for as long as the function that it is given, in its own caches, which
    # ``jax.clear_caches`` empties. Inlined, it leaves no trace in a program around it.
    programs = Recent(MOST_PROGRAMS)
    compiled_for = lambda given: programs.of(given, lambda: jax.jit(functools.partial(done, given), inline=True))

    @functools.wraps(function)
    def wrapped(*arguments: Any) -> Any:
        given, leaves = split(arguments)
        return joined(compiled_for(given)(leaves) if given.is_hashable() else done(given, leaves))

    return wrapped


def _without_closure(traced, leaves):
    """``traced`` with what it holds of values that are themselves traced, or batched, as arguments before the others;
    and those values."""
    places = [i for i, x in enumerate(traced.consts) if isinstance(x, Tracer)]
    if not places:
        return traced, []
    held = [traced.consts[i] for i in places]

    def opened(held, *leaves):
        consts = list(traced.consts)
        for i, x in zip(places, held, strict=True):
            consts[i] = x
        return jaxpr_as_fun(ClosedJaxpr(traced.jaxpr, consts))(*leaves)

    return jax.make_jaxpr(opened)(held, *leaves), held
