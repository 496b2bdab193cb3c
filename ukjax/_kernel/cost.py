"""How many operations on numbers a function may need, before it is unrolled."""

from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from .primitive import kept_with_jaxpr
from .rarely import rare_p
from .shortcut import in_kernel_p
from .unroll.control import INNER

MOVING = frozenset(
    "broadcast_in_dim concatenate convert_element_type copy dynamic_slice dynamic_update_slice gather iota pad reshape "
    "rev scatter slice squeeze transpose".split()
)
"""Primitives that only move numbers."""


@kept_with_jaxpr
def operation_count(jaxpr: ClosedJaxpr) -> float:
    """How many times as many operations a function has with every case as with the usual ones alone.

    Zeros that are there by structure are counted as other numbers, in both.
    """
    usual, every = (_operations(jaxpr.jaxpr, only, {}) for only in (True, False))
    return every / max(1, usual)


def _operations(jaxpr: Jaxpr, usual: bool, known: dict[Jaxpr, int]) -> int:
    """Loops of known length count as often as they run, others once; of a choice that is ``seldom`` made, if only the
    ``usual`` cases count, the first case, otherwise all."""
    if jaxpr in known:
        return known[jaxpr]
    said, total = {}, 0  # what is said of truth values: that they hold seldom, or in a kernel
    for equation in jaxpr.eqns:
        name, operands = equation.primitive.name, equation.invars
        of = said.get(operands[0]) if operands and not isinstance(operands[0], Literal) else None
        if equation.primitive in (rare_p, in_kernel_p):
            said[equation.outvars[0]] = equation.primitive
        elif name == "convert_element_type" and of is not None:
            said[equation.outvars[0]] = of
        inner = _inner(equation, 0 if usual and of is rare_p else 1 if of is in_kernel_p else None)
        if inner:
            total += equation.params.get("length", 1) * sum(_operations(x, usual, known) for x in inner)
        elif name == "dot_general":
            (summed, _), _ = equation.params["dimension_numbers"]
            total += 2 * _aval(equation.outvars[0]).size * int(np.prod([_aval(operands[0]).shape[i] for i in summed]))
        elif name.startswith("reduce"):
            total += _aval(operands[0]).size
        elif name not in MOVING:
            total += max(_aval(x).size for x in equation.outvars)
    known[jaxpr] = total
    return total


def _aval(atom: Any) -> Any:
    return atom.aval


def _inner(equation, case):
    """The functions that it does: of a choice one ``case``, or all if that is None."""
    name, parameters = equation.primitive.name, equation.params
    if name == "cond":
        found = parameters["branches"] if case is None else parameters["branches"][case : case + 1]
    elif name == "while":
        found = parameters["cond_jaxpr"], parameters["body_jaxpr"]
    elif name == "custom_linear_solve":
        found = (parameters["jaxprs"].solve,)
    else:
        found = (parameters.get("jaxpr" if name == "scan" else INNER.get(name)),)
    return [x.jaxpr if isinstance(x, ClosedJaxpr) else x for x in found if x is not None]
