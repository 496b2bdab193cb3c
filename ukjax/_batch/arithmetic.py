"""The operations that may stand in a graph, and how NumPy does them on values that are known already."""

from collections.abc import Sequence
from typing import Any

import numpy as np

PREDICATES = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "is_finite"})
IDENTITIES = frozenset({"copy", "copy_p", "name", "stop_gradient", "optimization_barrier"})
ELEMENTWISE = {
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "rem": np.fmod,
    "neg": np.negative,
    "abs": np.abs,
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
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "is_finite": np.isfinite,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "integer_pow": None,
    "select_n": None,
}
"""By the name of the primitive; those of None take more than values."""


def fold(name: str, parameters: dict[str, Any], values: Sequence[Any]) -> Any:
    """An elementwise operation on known values, numbers or arrays."""
    if name == "integer_pow":
        return values[0] ** parameters["y"]
    if name == "select_n":
        return np.choose(np.asarray(values[0]).astype(int), values[1:]).astype(values[1].dtype)[()]
    with np.errstate(all="ignore"):
        if name == "div" and np.issubdtype(np.asarray(values[0]).dtype, np.integer):
            return np.trunc(np.divide(*values)).astype(values[0].dtype)
        result = ELEMENTWISE[name](*values)
    kind = np.dtype(bool) if name in PREDICATES else np.asarray(values[0]).dtype
    return np.asarray(result).astype(kind)[()]
