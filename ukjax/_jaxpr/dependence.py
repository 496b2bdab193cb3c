"""Dependence of the results of a function on its arguments."""

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.interpreters.partial_eval import dce_jaxpr
from jaxtyping import Array


def depends_on(function: Callable[[Array], Any], argument: Array) -> bool:
    """Whether ``function(argument)`` depends on the argument: whether dead-code elimination keeps it."""
    program = jax.make_jaxpr(function)(argument).jaxpr
    return bool(dce_jaxpr(program, [True] * len(program.outvars))[1][0])


def evaluated(program: ClosedJaxpr, structure: Any, *arguments: Any) -> Any:
    """The results of a jaxpr as a pytree of this structure."""
    return jax.tree.unflatten(structure, jaxpr_as_fun(program)(*arguments))
