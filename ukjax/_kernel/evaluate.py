"""Trace functions of pytrees to jaxprs, and evaluate the jaxprs in another way."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from .transform import eliminate_dead_code


def with_jaxpr(function: Callable, evaluate: Callable[[ClosedJaxpr, list[Any]], Sequence[Any]]) -> Callable:
    """``function`` of pytrees, evaluated as ``evaluate(jaxpr, arrays)``. It must be called inside ``jit``."""

    @functools.wraps(function)
    def wrapped(*arguments: Any) -> Any:
        dynamic, static = eqx.partition(arguments, eqx.is_array)
        leaves, tree = jax.tree.flatten(dynamic)
        structure: Any = None

        def flat(*leaves):
            nonlocal structure
            results = function(*eqx.combine(jax.tree.unflatten(tree, leaves), static))
            results, static_results = eqx.partition(results, eqx.is_array)
            results, results_tree = jax.tree.flatten(results)
            structure = results_tree, static_results
            return results

        traced = jax.make_jaxpr(flat)(*leaves)
        results_tree, static_results = structure
        return eqx.combine(jax.tree.unflatten(results_tree, evaluate(traced, leaves)), static_results)

    return wrapped


def without_unused(function: Callable) -> Callable:
    """``function`` of pytrees without dead code.

    ``vmap`` and differentiation otherwise trace the dead code too, before it is removed.
    """
    return with_jaxpr(function, _evaluate_live)


def _evaluate_live(traced, leaves):
    live, needed = eliminate_dead_code(traced, (True,) * len(traced.out_avals))
    return jaxpr_as_fun(live)(*(x for x, is_needed in zip(leaves, needed, strict=True) if is_needed))
