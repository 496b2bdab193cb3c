"""Jaxprs inside of jaxprs: bodies of loops, branches and called functions."""

from collections.abc import Callable
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr

JAXPRS = ClosedJaxpr, Jaxpr


def jaxprs_in(equation: Any) -> list[ClosedJaxpr | Jaxpr]:
    """The jaxprs among the parameters of an equation."""
    found = []
    for x in equation.params.values():
        if isinstance(x, JAXPRS):
            found.append(x)
        elif isinstance(x, (tuple, list)):
            found += [y for y in x if isinstance(y, JAXPRS)]
    return found


def any_equation(
    x: ClosedJaxpr | Jaxpr, predicate: Callable[[Any], bool], memo: dict[Jaxpr, bool] | None = None
) -> bool:
    """Whether ``predicate`` is true for an equation in a jaxpr, at any depth.

    ``memo`` saves the answers for further calls with the same predicate.
    """
    jaxpr = x.jaxpr if isinstance(x, ClosedJaxpr) else x
    memo = {} if memo is None else memo
    if jaxpr not in memo:
        is_inside = lambda equation: any(any_equation(inner, predicate, memo) for inner in jaxprs_in(equation))
        memo[jaxpr] = any(predicate(equation) or is_inside(equation) for equation in jaxpr.eqns)
    return memo[jaxpr]
