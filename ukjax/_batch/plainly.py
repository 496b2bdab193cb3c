"""What is not worth the time of compiling it well: done as JAX would do it."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun

from .primitive import kept_with_jaxpr, per_member_p


def plainly(function: Callable) -> Callable:
    """``function`` of pytrees of arrays with no function of one member left in it: ``vmap`` and derivatives go through
    all operations together, and what value and derivative have in common stands once. Compiled soonest; for what is
    done for few members, a few thousand times. It belongs inside ``jit``."""

    @functools.wraps(function)
    def wrapped(*arguments: Any) -> Any:
        dynamic, static = eqx.partition(arguments, eqx.is_array)
        leaves, tree = jax.tree.flatten(dynamic)
        structure: Any = None

        def flat(*leaves):
            nonlocal structure
            results, structure = jax.tree.flatten(function(*eqx.combine(jax.tree.unflatten(tree, leaves), static)))
            return results

        traced = jax.make_jaxpr(flat)(*leaves)
        return jax.tree.unflatten(structure, jaxpr_as_fun(plain(traced))(*leaves))

    return wrapped


@kept_with_jaxpr
def plain(jaxpr):
    """``jaxpr`` where every function of one member in it is done as JAX would."""

    def changed(x: Any) -> Any:
        if isinstance(x, Jaxpr):
            return x.replace(eqns=[in_equation(equation) for equation in x.eqns])
        if isinstance(x, ClosedJaxpr):
            return x.replace(jaxpr=changed(x.jaxpr))
        if isinstance(x, tuple):
            parts = map(changed, x)
            return type(x)(*parts) if hasattr(x, "_fields") else tuple(parts)
        return x

    def in_equation(equation):
        parameters = {key: changed(x) for key, x in equation.params.items()}
        if equation.primitive is per_member_p:
            parameters["how"] = parameters["how"]._replace(few=None)
        return equation.replace(params=parameters)

    return changed(jaxpr)
