"""The numbers that operations of a graph are done with."""

from typing import Any, final

import numpy as np


@final
class Number:
    """A number that is known only when the program runs: the result of operation ``index`` of its graph, computed in a
    block of this ``depth``."""

    __slots__ = ("depth", "dtype", "index")

    def __init__(self, index: int, dtype: np.dtype, depth: int):
        self.index, self.dtype, self.depth = index, dtype, depth


Operand = Number | np.generic
"""A number that is not known yet, or a constant, which is a scalar of NumPy."""


def identity(x: Operand) -> Any:
    """Equal for equal numbers. Of 0, which has a sign, and NaN, which does not equal itself, the bits decide."""
    if type(x) is Number:
        return x.index
    return (type(x), x) if x and x == x else (type(x), x.tobytes())


def same(x: Operand, y: Operand) -> bool:
    return identity(x) == identity(y)
