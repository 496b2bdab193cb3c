"""Operands of graph operations: run-time numbers and constants."""

from typing import Any, final

import numpy as np


@final
class Number:
    """A scalar that is computed when the program runs.

    Attributes
    ----------
    index
        Index of the operation in its graph that computes it.
    dtype
        NumPy data type.
    depth
        Nesting depth of the block that computes it; 0 is the outermost block.
    """

    __slots__ = ("depth", "dtype", "index")

    def __init__(self, index: int, dtype: np.dtype, depth: int):
        self.index, self.dtype, self.depth = index, dtype, depth


Operand = Number | np.generic
"""A number that is computed at run time, or a constant (NumPy scalar)."""


def identity(x: Operand) -> Any:
    """Return a hashable key, equal for equal operands. Zeros (signed) and NaN are compared by their bits."""
    if type(x) is Number:
        return x.index
    return (type(x), x) if x and x == x else (type(x), x.tobytes())


def same(x: Operand, y: Operand) -> bool:
    """Return whether two operands are the same number or the same constant."""
    return identity(x) == identity(y)
