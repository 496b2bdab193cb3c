"""Functions of pytrees as what JAX traces of them, to be done in another way."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from .transform import smaller


def with_jaxpr(function: Callable, done: Callable[[ClosedJaxpr, list[Any]], Sequence[Any]]) -> Callable:
    """``function`` of pytrees, whose arrays are found by ``done(jaxpr, arrays)``; it belongs inside ``jit``."""

    @functools.wraps(function)
    def wrapped(*arguments: Any) -> Any:
        dynamic, static = eqx.partition(arguments, eqx.is_array)
        leaves, tree = jax.tree.flatten(dynamic)
        structure: Any = None

        def flat(*leaves):
            nonlocal structure
            results = function(*eqx.combine(jax.tree.unflatten(tree, leaves), static))
            results, fixed = eqx.partition(results, eqx.is_array)
            results, shape = jax.tree.flatten(results)
            structure = shape, fixed
            return results

        traced = jax.make_jaxpr(flat)(*leaves)
        shape, fixed = structure
        return eqx.combine(jax.tree.unflatten(shape, done(traced, leaves)), fixed)

    return wrapped


def without_unused(function: Callable) -> Callable:
    """``function`` of pytrees without what its results do not need: else derivatives and batches are traced with all of
    that, before it is left out."""
    return with_jaxpr(function, _of_used)


def _of_used(traced, leaves):
    fewer, needed = smaller(traced, (True,) * len(traced.out_avals))
    return jaxpr_as_fun(fewer)(*(x for x, own in zip(leaves, needed, strict=True) if own))
