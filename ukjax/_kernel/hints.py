"""Hints to the unroller: a branch that is rarely taken, and computations that differ inside and outside kernels.

Each hint is a JAX primitive. The unroller has a rule for it; in all other programs it is lowered to plain JAX.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive, jaxpr_as_fun
from jax.interpreters import batching, mlir
from jaxtyping import Array, Bool

# --- a branch that is rarely taken ---------------------------------------------------------------------------------

rare_p = Primitive("rare")
"""The identity on a boolean; marks it as rarely true."""

rare_p.def_impl(lambda x: x)
rare_p.def_abstract_eval(lambda x: ShapedArray(x.shape, np.dtype(bool)))
mlir.register_lowering(rare_p, lambda _, x: [x])
batching.defvectorized(rare_p)


def rare_cond(pred: Bool[Array, ""], rare: Callable[..., Any], usual: Callable[..., Any], *operands: Any) -> Any:
    """``lax.cond(pred, rare, usual, *operands)`` where ``pred`` is true for few members of a batch, or for none.

    A kernel contains the ``usual`` branch only, which makes it shorter. Members for which ``pred`` is true are computed
    again by a second kernel, which contains both branches and is compiled when it is first needed. If that kernel would
    be large, the kernel of a loop for one member contains both at once. Loops of the rare branch stay loops. A function
    that returns ``assumption_failed()`` handles such members itself, without the second kernel.
    """
    return jax.lax.cond(rare_p.bind(pred), rare, usual, *operands)


assumption_failed_p = Primitive("assumption_failed")
"""Whether the condition of an earlier ``rare_cond`` is true; False outside kernels."""

assumption_failed_p.def_abstract_eval(lambda: ShapedArray((), np.dtype(bool)))
assumption_failed_p.def_impl(lambda: jnp.asarray(False))
mlir.register_lowering(assumption_failed_p, mlir.lower_fun(lambda: jnp.asarray(False), multiple_results=False))


def assumption_failed() -> Bool[Array, ""]:
    """Whether the condition of an earlier ``rare_cond`` is true. False where all branches are compiled.

    A function calls it last and returns its value. Its kernel then contains the usual branches only, and the caller
    must handle the members for which the value is true.
    """
    return assumption_failed_p.bind()


# --- a shortcut for kernels only -----------------------------------------------------------------------------------

in_kernel_p = Primitive("in_kernel")
"""True in a kernel of ``per_member``, False in all other programs."""

in_kernel_p.def_abstract_eval(lambda: ShapedArray((), np.dtype(bool)))
in_kernel_p.def_impl(lambda: jnp.asarray(False))
mlir.register_lowering(in_kernel_p, mlir.lower_fun(lambda: jnp.asarray(False), multiple_results=False))


def fast_branch(needs_general: Bool[Array, ""], general: Callable[[], Any], fast: Callable[[], Any]) -> Any:
    """``general()``, or in a kernel ``fast()`` for members for which ``needs_general`` is false.

    Both must give equally good results for these members. Programs compiled by XLA contain ``general`` only: to compile
    both branches, and in a batch to execute both, would cost more than the shortcut saves.
    """
    return jax.lax.cond(in_kernel_p.bind(), lambda: rare_cond(needs_general, general, fast), general)


# --- arithmetic in a kernel or a batch, a library routine for one member -------------------------------------------

arithmetic_or_library_p = Primitive("arithmetic_or_library")
"""Holds both jaxprs until batching or lowering selects one.

Parameters
    arithmetic, library: jaxprs with equal argument and result shapes.
    num_deciding: number of leading operands that decide: if one of them is batched, ``arithmetic`` is selected.
"""

arithmetic_or_library_p.multiple_results = True


def arithmetic_or_library(arithmetic: Callable, library: Callable, *arguments: Any, made: Any = ()) -> Any:
    """``library(*made, *arguments)`` for one member, ``arithmetic(*made, *arguments)`` in a batch or a kernel.

    In a batch, calls of LAPACK are slow and can deadlock. Both functions return the same arrays up to rounding. They
    may return different arrays of the same shapes, such as two kinds of factors, if only a second pair of functions
    uses these, which receives them as ``made``. The second pair then makes the same selection as the first: if the
    factors belong to one matrix and only the right-hand sides are batched (as derivatives are), ``library`` is used.
    The arguments are treated as constants by differentiation.
    """
    made_leaves, arguments = jax.tree.leaves(made), (*made, *arguments)
    leaves, tree = jax.tree.flatten(jax.lax.stop_gradient(arguments))
    structure = None

    def flat(function):
        def of_leaves(*leaves):
            nonlocal structure
            results, structure = jax.tree.flatten(function(*jax.tree.unflatten(tree, leaves)))
            return results

        return jax.make_jaxpr(of_leaves)(*leaves)

    results = arithmetic_or_library_p.bind(
        *leaves, arithmetic=flat(arithmetic), library=flat(library), num_deciding=len(made_leaves) or len(leaves)
    )
    return jax.tree.unflatten(structure, results)


@arithmetic_or_library_p.def_abstract_eval
def _abstract(*_, arithmetic, library, num_deciding):
    return [ShapedArray(out.shape, out.dtype) for out in library.out_avals]


@arithmetic_or_library_p.def_impl
def _impl(*arguments, arithmetic, library, num_deciding):
    return jax.jit(jaxpr_as_fun(library))(*arguments)


def _lowered(*arguments, arithmetic, library, num_deciding):
    return jaxpr_as_fun(library)(*arguments)


mlir.register_lowering(arithmetic_or_library_p, mlir.lower_fun(_lowered, multiple_results=True))


def _batch(arguments, axes, *, arithmetic, library, num_deciding):
    batched = lambda jaxpr: jax.vmap(jaxpr_as_fun(jaxpr), in_axes=axes)
    if any(axis is not None for axis in axes[:num_deciding]):
        results = batched(arithmetic)(*arguments)
    else:  # an outer vmap may still batch a deciding operand
        arithmetic, library = (jax.make_jaxpr(batched(jaxpr))(*arguments) for jaxpr in (arithmetic, library))
        results = arithmetic_or_library_p.bind(
            *arguments, arithmetic=arithmetic, library=library, num_deciding=num_deciding
        )
    return results, [0] * len(results)


batching.primitive_batchers[arithmetic_or_library_p] = _batch
