"""Operations that a graph may contain, and constant folding with NumPy."""

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import lax

from ..unsupported import Unsupported

BOOL = np.dtype(bool)
COMPILED = frozenset(map(np.dtype, "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64".split()))
"""Types of numbers that a graph may contain."""

PREDICATES = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "is_finite"})
IDENTITIES = frozenset({"copy", "copy_p", "name", "stop_gradient", "optimization_barrier"})


def refuse_type(dtype: Any) -> None:
    """Raise ``Unsupported`` for types that are not compiled."""
    if dtype not in COMPILED:
        raise Unsupported(f"numbers of type {dtype} are not compiled, those of float32 and float64 are")


def _vectorise(function: Callable[[Any], float]) -> Callable[[Any], Any]:
    """Vectorise a function of Python's ``math``; the result is infinite at a pole."""

    def entry(x):
        try:
            return function(x)
        except (ValueError, OverflowError):
            return math.inf

    return lambda x: np.array([entry(value) for value in x.ravel().tolist()], x.dtype).reshape(x.shape)[()]


def _unsigned(x):
    """View integers as unsigned ones of the same size."""
    return x.view(np.dtype(f"u{x.dtype.itemsize}"))


def _signed(x):
    """View integers as signed ones of the same size."""
    return x.view(np.dtype(f"i{x.dtype.itemsize}"))


def _shift(shift: Callable, x: Any, count: Any, overflow: Any) -> Any:
    """Return ``shift(x, count)``; ``overflow`` where ``count`` is negative or at least the number of bits."""
    is_valid = _unsigned(count) < 8 * x.dtype.itemsize
    return np.where(is_valid, shift(x, np.where(is_valid, count, count.dtype.type(0))), overflow).astype(x.dtype)[()]


def _quotient(a, b):
    """Divide; integers are truncated towards zero. An integer divided by 0 is −1, or the largest unsigned one, as in
    XLA."""
    if a.dtype.kind == "f":
        return a / b
    divisor = np.where(b == 0, b.dtype.type(1), b)
    quotient = a // divisor
    # Floor division rounds down: correct quotients that are negative and not exact.
    quotient = quotient + ((quotient < 0) & (quotient * divisor != a))
    return np.where(b == 0, ~a.dtype.type(0), quotient)[()]


def _remainder(a, b):
    """Return the remainder; that of an integer divided by 0 is the dividend, as in XLA."""
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
    "one_minus_square": lambda x: (1 - x) * (1 + x),  # since jax 0.12, in derivatives of tanh, asin, acos and atanh
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
    "erf": _vectorise(math.erf),
    "erfc": _vectorise(math.erfc),
    "lgamma": _vectorise(math.lgamma),
    "nextafter": np.nextafter,
    "shift_left": lambda x, by: _shift(np.left_shift, x, by, 0),
    "shift_right_logical": lambda x, by: _shift(np.right_shift, _unsigned(x), _unsigned(by), 0),
    "shift_right_arithmetic": lambda x, by: _shift(
        np.right_shift, _signed(x), _signed(by), np.where(_signed(x) < 0, -1, 0)
    ),
    "population_count": lambda x: np.bitwise_count(_unsigned(x)),
    "clz": lambda x: _vectorise(lambda value: 8 * x.dtype.itemsize - int(value).bit_length())(_unsigned(x)),
    "integer_pow": None,
    "round": None,
    "select_n": None,
}
"""NumPy's function for each primitive; None if it needs parameters too (see ``fold``).

Python's operators give the same results as NumPy's functions, and are several times faster on a single number.
"""

OPERATORS = {name: ELEMENTWISE[name] for name in "add add_any sub mul eq ne lt le gt ge and or xor".split()}
"""Operations that are one call on two numbers of one type."""


def fold(name: str, parameters: dict[str, Any], values: Sequence[Any]) -> Any:
    """Apply an elementwise operation to constants, numbers or arrays. The caller silences NumPy's warnings."""
    if name == "integer_pow":
        return values[0] ** parameters["y"]
    if name == "select_n":
        index, *cases = values
        return cases[int(index)] if index.ndim == 0 else np.choose(index.astype(int), cases).astype(cases[0].dtype)
    if name == "round":
        (x,) = values
        to_even = parameters["rounding_method"] == lax.RoundingMethod.TO_NEAREST_EVEN
        return np.rint(x) if to_even else np.trunc(x + np.copysign(np.nextafter(x.dtype.type(0.5), x.dtype.type(0)), x))
    dtype = values[0].dtype
    result = ELEMENTWISE[name](*values)
    if name in PREDICATES:
        dtype = BOOL
    return result if result.dtype == dtype else result.astype(dtype)


def convert(x: Any, dtype: np.dtype) -> Any:
    """Convert constants to another type. A float becomes the nearest integer that the type has; NaN becomes 0, as in
    XLA."""
    if x.dtype.kind != "f" or dtype.kind not in "iu":
        return x.astype(dtype)
    limits = np.iinfo(dtype)
    low, high = x.dtype.type(limits.min), x.dtype.type(limits.max)
    inside = np.where((x > low) & (x < high), x, 0).astype(dtype)
    return np.where(x <= low, dtype.type(limits.min), np.where(x >= high, dtype.type(limits.max), inside))[()]


CONVERSIONS: dict[str, Callable[[Any, np.dtype], Any]] = {
    "convert_element_type": convert,
    "bitcast_convert_type": lambda x, to: x.view(to),
}
"""Functions that convert constants to another type, by primitive."""
