"""The operations that may stand in a graph, and how NumPy does them on values that are known already."""

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

BOOL = np.dtype(bool)
PREDICATES = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "is_finite"})
IDENTITIES = frozenset({"copy", "copy_p", "name", "stop_gradient", "optimization_barrier"})
ELEMENTWISE = {
    "add": operator.add,
    "add_any": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "rem": np.fmod,
    "neg": operator.neg,
    "abs": abs,
    "sign": np.sign,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "cbrt": np.cbrt,
    "square": np.square,
    "one_minus_square": lambda x: (1 - x) * (1 + x),  # from jax 0.12 on, in the derivatives of tanh, asin, acos, atanh
    "pow": np.power,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "max": np.maximum,
    "min": np.minimum,
    "floor": np.floor,
    "ceil": np.ceil,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "is_finite": np.isfinite,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "not": operator.invert,
    "integer_pow": None,
    "select_n": None,
}
"""By the name of the primitive; those of None take more than values. Python's operators give the same as the functions
of NumPy, and are several times faster on a single number."""

OPERATORS = {name: ELEMENTWISE[name] for name in "add add_any sub mul eq ne lt le gt ge and or xor".split()}
"""Of two numbers of one type, all of it that there is to their operation."""


def fold(name: str, parameters: dict[str, Any], values: Sequence[Any]) -> Any:
    """An elementwise operation on known values, numbers or arrays. NumPy's warnings are for the caller to silence."""
    if name == "integer_pow":
        return values[0] ** parameters["y"]
    if name == "select_n":
        which, *cases = values
        return cases[int(which)] if which.ndim == 0 else np.choose(which.astype(int), cases).astype(cases[0].dtype)
    kind = values[0].dtype
    if name == "div" and kind.kind in "iu":
        return np.trunc(np.divide(*values)).astype(kind)
    result = ELEMENTWISE[name](*values)
    if name in PREDICATES:
        kind = BOOL
    return result if result.dtype == kind else result.astype(kind)
