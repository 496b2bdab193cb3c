"""One computation by two algorithms: arithmetic where it is written out or batched, JAX's own routines for one."""

from collections.abc import Callable
from typing import Any

import jax
from jax.core import ShapedArray
from jax.extend.core import Primitive, jaxpr_as_fun
from jax.interpreters import batching, mlir

either_p = Primitive("either")
either_p.multiple_results = True


def either(arithmetic: Callable, library: Callable, *arguments: Any) -> Any:
    """``library(*arguments)`` where JAX does it for one member, ``arithmetic(*arguments)`` elsewhere: in a batch, where
    calls of LAPACK are slow and can deadlock, and in what ``per_member`` writes out.

    Both give the same arrays up to rounding, of which no derivative is taken.
    """
    leaves, tree = jax.tree.flatten(jax.lax.stop_gradient(arguments))
    structure = None

    def flat(function):
        def of_leaves(*leaves):
            nonlocal structure
            results, structure = jax.tree.flatten(function(*jax.tree.unflatten(tree, leaves)))
            return results

        return jax.make_jaxpr(of_leaves)(*leaves)

    results = either_p.bind(*leaves, arithmetic=flat(arithmetic), library=flat(library))
    return jax.tree.unflatten(structure, results)


@either_p.def_abstract_eval
def _abstract(*_, arithmetic, library):
    return [ShapedArray(out.shape, out.dtype) for out in library.out_avals]


@either_p.def_impl
def _now(*arguments, arithmetic, library):
    return jax.jit(jaxpr_as_fun(library))(*arguments)


def _alone(*arguments, arithmetic, library):
    return jaxpr_as_fun(library)(*arguments)


mlir.register_lowering(either_p, mlir.lower_fun(_alone, multiple_results=True))


def _batch(arguments, axes, *, arithmetic, library):
    results = jax.vmap(jaxpr_as_fun(arithmetic), in_axes=axes)(*arguments)
    return results, [0] * len(results)


batching.primitive_batchers[either_p] = _batch
