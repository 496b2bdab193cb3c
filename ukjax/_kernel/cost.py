"""Estimate how many scalar operations a function needs, before it is unrolled."""

from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from .hints import in_kernel_p, rare_p
from .primitive import cached_per_jaxpr
from .unroll.control import CALLED_JAXPR

MOVING = frozenset(
    "broadcast_in_dim concatenate convert_element_type copy dynamic_slice dynamic_update_slice gather iota pad reshape "
    "rev scatter slice squeeze transpose".split()
)
"""Primitives that only move or convert entries; they count as no operation."""


@cached_per_jaxpr
def branch_cost_ratio(jaxpr: ClosedJaxpr) -> float:
    """Operations of a function with all branches, divided by its operations with the usual branches only.

    Structural zeros are counted like other numbers in both.
    """
    usual, every = (_operations(jaxpr.jaxpr, only_usual, {}) for only_usual in (True, False))
    return every / max(1, usual)


def _operations(jaxpr: Jaxpr, only_usual: bool, memo: dict[Jaxpr, int]) -> int:
    """Count scalar operations.

    The operations of a loop of known length are multiplied by that length; other loops count once. With ``only_usual``,
    a ``rare_cond`` counts as its usual branch; otherwise a conditional counts as the sum of its branches.
    """
    if jaxpr in memo:
        return memo[jaxpr]
    hints, total = {}, 0  # hints: the hint primitive that each marked boolean comes from
    for equation in jaxpr.eqns:
        name, operands = equation.primitive.name, equation.invars
        hint = hints.get(operands[0]) if operands and not isinstance(operands[0], Literal) else None
        if equation.primitive in (rare_p, in_kernel_p):
            hints[equation.outvars[0]] = equation.primitive
        elif name == "convert_element_type" and hint is not None:
            hints[equation.outvars[0]] = hint
        inner = _inner(equation, 0 if only_usual and hint is rare_p else 1 if hint is in_kernel_p else None)
        if inner:
            total += equation.params.get("length", 1) * sum(_operations(x, only_usual, memo) for x in inner)
        elif name == "dot_general":
            (summed, _), _ = equation.params["dimension_numbers"]
            total += 2 * _aval(equation.outvars[0]).size * int(np.prod([_aval(operands[0]).shape[i] for i in summed]))
        elif name.startswith("reduce"):
            total += _aval(operands[0]).size
        elif name not in MOVING:
            total += max((_aval(x).size for x in equation.outvars), default=0)
    memo[jaxpr] = total
    return total


def _aval(atom: Any) -> Any:
    return atom.aval


def _inner(equation, branch):
    """The jaxprs that an equation executes; for a conditional the one with number ``branch``, or all if None."""
    name, parameters = equation.primitive.name, equation.params
    if name == "cond":
        inner = parameters["branches"] if branch is None else parameters["branches"][branch : branch + 1]
    elif name == "while":
        inner = parameters["cond_jaxpr"], parameters["body_jaxpr"]
    elif name == "custom_linear_solve":
        inner = (parameters["jaxprs"].solve,)
    else:
        inner = (parameters.get("jaxpr" if name == "scan" else CALLED_JAXPR.get(name)),)
    return [x.jaxpr if isinstance(x, ClosedJaxpr) else x for x in inner if x is not None]
