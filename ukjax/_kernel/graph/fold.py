"""The operations that may stand in a graph, and how NumPy does them on values that are known already."""

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import lax

from ..unsupported import Unsupported

BOOL = np.dtype(bool)
COMPILED = frozenset(map(np.dtype, "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64".split()))
"""Types of numbers that may stand in a graph."""

PREDICATES = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "is_finite"})
IDENTITIES = frozenset({"copy", "copy_p", "name", "stop_gradient", "optimization_barrier"})


def refuse_type(dtype: Any) -> None:
    """Refuse numbers that are not compiled."""
    if dtype not in COMPILED:
        raise Unsupported(f"numbers of type {dtype} are not compiled, those of float32 and float64 are")


def _each(function: Callable[[Any], float]) -> Callable[[Any], Any]:
    """A function of Python's ``math`` of every entry; infinite where it has a pole."""

    def of(x):
        try:
            return function(x)
        except (ValueError, OverflowError):
            return math.inf

    return lambda x: np.array([of(value) for value in x.ravel().tolist()], x.dtype).reshape(x.shape)[()]


def _unsigned(x):
    return x.view(np.dtype(f"u{x.dtype.itemsize}"))


def _signed(x):
    return x.view(np.dtype(f"i{x.dtype.itemsize}"))


def _shift(shifted: Callable, x: Any, by: Any, beyond: Any) -> Any:
    """``shifted(x, by)`` where there are so many bits; ``beyond`` where there are not, or ``by`` is negative."""
    inside = _unsigned(by) < 8 * x.dtype.itemsize
    return np.where(inside, shifted(x, np.where(inside, by, by.dtype.type(0))), beyond).astype(x.dtype)[()]


def _quotient(a, b):
    """Of whole numbers, towards zero; −1 or the largest where b is 0, as by XLA."""
    if a.dtype.kind == "f":
        return a / b
    by = np.where(b == 0, b.dtype.type(1), b)
    found = a // by
    found = found + ((found < 0) & (found * by != a))  # from the next below to the next above
    return np.where(b == 0, ~a.dtype.type(0), found)[()]


def _remainder(a, b):
    """The dividend where a whole number is divided by 0, as by XLA."""
    return np.fmod(a, b) if a.dtype.kind == "f" else np.where(b == 0, a, np.fmod(a, np.where(b == 0, 1, b)))[()]


ELEMENTWISE = {
    "add": operator.add,
    "add_any": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": _quotient,
    "rem": _remainder,
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
    "erf": _each(math.erf),
    "erfc": _each(math.erfc),
    "lgamma": _each(math.lgamma),
    "nextafter": np.nextafter,
    "shift_left": lambda x, by: _shift(np.left_shift, x, by, 0),
    "shift_right_logical": lambda x, by: _shift(np.right_shift, _unsigned(x), _unsigned(by), 0),
    "shift_right_arithmetic": lambda x, by: _shift(
        np.right_shift, _signed(x), _signed(by), np.where(_signed(x) < 0, -1, 0)
    ),
    "population_count": lambda x: np.bitwise_count(_unsigned(x)),
    "clz": lambda x: _each(lambda value: 8 * x.dtype.itemsize - int(value).bit_length())(_unsigned(x)),
    "integer_pow": None,
    "round": None,
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
    if name == "round":
        (x,) = values
        even = parameters["rounding_method"] == lax.RoundingMethod.TO_NEAREST_EVEN
        return np.rint(x) if even else np.trunc(x + np.copysign(np.nextafter(x.dtype.type(0.5), x.dtype.type(0)), x))
    kind = values[0].dtype
    result = ELEMENTWISE[name](*values)
    if name in PREDICATES:
        kind = BOOL
    return result if result.dtype == kind else result.astype(kind)


def converted(x: Any, to: np.dtype) -> Any:
    """Known numbers of another type. A whole number is the nearest that the type has, 0 for NaN, as by XLA."""
    if x.dtype.kind != "f" or to.kind not in "iu":
        return x.astype(to)
    limits = np.iinfo(to)
    low, high = x.dtype.type(limits.min), x.dtype.type(limits.max)
    found = np.where((x > low) & (x < high), x, 0).astype(to)
    return np.where(x <= low, to.type(limits.min), np.where(x >= high, to.type(limits.max), found))[()]


OF_TYPE: dict[str, Callable[[Any, np.dtype], Any]] = {
    "convert_element_type": converted,
    "bitcast_convert_type": lambda x, to: x.view(to),
}
"""By the name of the primitive, what makes known numbers those of another type."""
