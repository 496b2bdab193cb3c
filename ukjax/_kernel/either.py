"""One computation by two algorithms: arithmetic in a kernel or a batch, JAX's own routines for one member."""

from collections.abc import Callable
from typing import Any

import jax
from jax.core import ShapedArray
from jax.extend.core import Primitive, jaxpr_as_fun
from jax.interpreters import batching, mlir

either_p = Primitive("either")
either_p.multiple_results = True


def arithmetic_or_library(arithmetic: Callable, library: Callable, *arguments: Any, made: Any = ()) -> Any:
    """``library(*made, *arguments)`` where JAX does it for one member, ``arithmetic(*made, *arguments)`` elsewhere: in
    a batch, where calls of LAPACK are slow and can deadlock, and in kernels of ``per_member``.

    Both give the same arrays up to rounding, of which no derivative is taken; or, where only the two in question know
    what these mean, arrays of the same shapes, ``made`` for a second pair. That goes on as the first began: where one
    matrix meets a batch of right-hand sides, such as derivatives, its factors are one member's.
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

    results = either_p.bind(
        *leaves, arithmetic=flat(arithmetic), library=flat(library), decisive=len(made_leaves) or len(leaves)
    )
    return jax.tree.unflatten(structure, results)


@either_p.def_abstract_eval
def _abstract(*_, arithmetic, library, decisive):
    return [ShapedArray(out.shape, out.dtype) for out in library.out_avals]


@either_p.def_impl
def _now(*arguments, arithmetic, library, decisive):
    return jax.jit(jaxpr_as_fun(library))(*arguments)


def _alone(*arguments, arithmetic, library, decisive):
    return jaxpr_as_fun(library)(*arguments)


mlir.register_lowering(either_p, mlir.lower_fun(_alone, multiple_results=True))


def _batch(arguments, axes, *, arithmetic, library, decisive):
    batched = lambda jaxpr: jax.vmap(jaxpr_as_fun(jaxpr), in_axes=axes)
    if any(axis is not None for axis in axes[:decisive]):
        results = batched(arithmetic)(*arguments)
    else:  # a batch that is still to come may decide
        arithmetic, library = (jax.make_jaxpr(batched(jaxpr))(*arguments) for jaxpr in (arithmetic, library))
        results = either_p.bind(*arguments, arithmetic=arithmetic, library=library, decisive=decisive)
    return results, [0] * len(results)


batching.primitive_batchers[either_p] = _batch
