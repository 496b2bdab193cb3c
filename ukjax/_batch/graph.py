"""A computation as a list of operations on numbers: what is known is computed at once, what is repeated is shared.

Zeros that are there by structure (a block-diagonal mass matrix, a constraint that some coordinates do not enter) cost
nothing in such a list, and one angle has one sine however often it is written.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .arithmetic import IDENTITIES, PREDICATES, fold


class Number:
    """A number that is known only when the program runs: the result of operation ``index`` of its graph."""

    __slots__ = ("dtype", "index")

    def __init__(self, index: int, dtype: np.dtype):
        self.index, self.dtype = index, dtype


Operand = Number | np.generic


class Operation(NamedTuple):
    """A function of ``jax.lax``, by the name of its primitive, on numbers; ``INPUT`` is a number given from outside."""

    name: str
    parameters: dict[str, Any]
    operands: tuple[Operand, ...]


INPUT = "input"


IDEMPOTENT = ("or", "and", "max", "min")

NOTED_PER_NEEDED = 2
"""How many operations may be noted for each that may be needed in the end: those that are not cost little."""


class TooLarge(Exception):
    """The list would be longer than is worth compiling."""


class Graph:
    """Operations in the order in which they can be done.

    Of more than ``most`` that are needed, none is done.

    A graph of what is ``usual`` has the first case of every choice alone, and keeps in ``assumed_zero`` what these
    choices depend on: each is 0 where its first case is indeed the one. With ``sines``, sine and cosine are arithmetic.
    """

    def __init__(self, most: int, usual: bool, sines: bool = True):
        self.usual, self.sines = usual, sines
        self.assumed_zero: list[Operand] = []
        self.told = 0  # how many of these the function itself has asked for
        self.operations: list[Operation] = []
        self.dtypes: list[np.dtype] = []
        self._known: dict[Any, Number] = {}
        self.most = most

    def wrongly_assumed(self, first: int = 0) -> Operand:
        """Whether one of these choices, from the ``first`` on, is another."""
        wrong: Operand = np.bool_(False)
        for choice in self.assumed_zero[first:]:
            wrong = self.apply("or", (wrong, self.apply("ne", (choice, choice.dtype.type(0)))))
        return wrong

    def following(self, numbers: Iterable[Number]) -> set[int]:
        """Which operations depend on any of these."""
        found = {x.index for x in numbers}
        for i, operation in enumerate(self.operations):
            if any(isinstance(x, Number) and x.index in found for x in operation.operands):
                found.add(i)
        return found

    def input(self, dtype: np.dtype) -> Number:
        """One more number that is given from outside."""
        return self._append(Operation(INPUT, {}, ()), np.dtype(dtype))

    def inputs(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """An array of such numbers."""
        entries = np.empty(int(np.prod(shape, dtype=int)), object)
        for i in range(entries.size):
            entries[i] = self.input(dtype)
        return entries.reshape(shape)

    def apply(self, name: str, operands: Sequence[Operand], parameters: dict[str, Any] | None = None) -> Operand:
        """The result of the elementwise operation ``name``, whose type follows from the operands."""
        if name in IDENTITIES:
            return operands[0]
        # What else JAX notes of an operation (sharding, accuracy) says nothing about a single number.
        parameters = {k: x for k, x in (parameters or {}).items() if k in ("new_dtype", "y")}
        if name == "convert_element_type":
            to = np.dtype(parameters["new_dtype"])
            if isinstance(operands[0], np.generic):
                return to.type(operands[0])
            if operands[0].dtype == to:
                return operands[0]
            return self._share(Operation(name, parameters, tuple(operands)), (str(to),), to)
        if all(isinstance(x, np.generic) for x in operands):
            return fold(name, parameters, operands)
        simple = self._simplify(name, parameters, operands)
        if simple is not None:
            return simple
        name = "add" if name == "add_any" else name
        if name in ("add", "mul"):  # one name for a + b and b + a
            operands = sorted(operands, key=_order)
            if isinstance(operands[1], np.generic):  # constants first
                operands = operands[::-1]
        key = tuple(sorted((k, str(x)) for k, x in parameters.items()))
        like = operands[0] if name == "pow" else operands[-1]  # what is chosen comes after the choice, a power first
        dtype = np.dtype(bool) if name in PREDICATES else like.dtype
        return self._share(Operation(name, parameters, tuple(operands)), key, dtype)

    def _simplify(self, name: str, parameters: dict[str, Any], operands: Sequence[Any]) -> Any:
        a = operands[0]
        b = operands[1] if len(operands) > 1 else a
        if name == "mul":
            if _is(a, 0) or _is(b, 1):
                return a
            if _is(b, 0) or _is(a, 1):
                return b
            if _is(a, -1):
                return self.apply("neg", (b,))
            if _is(b, -1):
                return self.apply("neg", (a,))
            if _is_power_of_two(a) and (inner := self._scaled(b)) is not None:
                return self.apply(name, (inner[0] * a, inner[1]))
            if _is_power_of_two(b):
                return self.apply(name, (b, a))
        elif name in ("add", "add_any") and _same(a, b):
            return self.apply("mul", (a.dtype.type(2), a))
        elif name == "or" and (_is(a, True) or _is(b, True)) and a.dtype == bool:
            return np.bool_(True)
        elif name in ("add", "add_any", "sub", "or"):
            if _is(b, 0):
                return a
            if _is(a, 0):
                return b if name != "sub" else self.apply("neg", (b,))
            if name == "sub" and _order(b) < _order(a):  # one name for a − b and −(b − a)
                return self.apply("neg", (self.apply(name, (b, a)),))
        elif name == "and" and (_is(a, False) or _is(b, True)):
            return a
        elif name == "and" and (_is(b, False) or _is(a, True)):
            return b
        elif name == "div":
            if _is(b, 1):
                return a
            if _is_power_of_two(b):
                return self.apply("mul", (1 / b, a))
        elif name in ("gt", "lt") and _same(a, b):
            return np.bool_(False)
        elif name == "neg":
            return self.negated(a)
        if name in IDEMPOTENT and (found := self._absorbed(name, a, b)) is not None:
            return found
        elif name in ("square", "integer_pow") and parameters.get("y", 2) == 2:
            return self.apply("mul", (a, a))
        elif name == "select_n":
            if isinstance(a, np.generic):
                return operands[1 + int(a)]
            if all(_same(case, b) for case in operands[2:]):
                return b
        return None

    def _absorbed(self, name, a, b):
        """x if this is max(x, x) or max(max(x, y), y), of which reductions over matrices full of zeros are made."""
        if _same(a, b):
            return a
        for x, y in ((a, b), (b, a)):
            inner = self.operations[x.index] if isinstance(x, Number) else None
            if inner is not None and inner.name == name and any(_same(y, operand) for operand in inner.operands):
                return x
        return None

    def negated(self, x):
        """y if x is −y."""
        inner = self.operations[x.index] if isinstance(x, Number) else None
        return inner.operands[0] if inner is not None and inner.name == "neg" else None

    def is_difference_of_equals(self, x: Number) -> bool:
        """Whether x is y − y."""
        inner = self.operations[x.index]
        return inner.name == "sub" and _same(*inner.operands)

    def _scaled(self, x):
        """(c, y) if x is c y with c a power of two."""
        inner = self.operations[x.index] if isinstance(x, Number) else None
        if inner is None or inner.name != "mul" or not _is_power_of_two(inner.operands[0]):
            return None
        return inner.operands

    def _share(self, operation, key, dtype):
        key = (operation.name, key, tuple(_identity(x) for x in operation.operands))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._append(operation, np.dtype(dtype))
        return found

    def _append(self, operation, dtype):
        if len(self.operations) >= NOTED_PER_NEEDED * self.most:
            raise TooLarge
        self.operations.append(operation)
        self.dtypes.append(dtype)
        return Number(len(self.operations) - 1, dtype)


def _is(x, value) -> bool:
    return isinstance(x, np.generic) and bool(x == value)


def _is_power_of_two(x) -> bool:
    """Whether multiplying by x is exact."""
    return isinstance(x, np.floating) and bool(abs(np.frexp(x)[0]) == 0.5)


def _same(x, y) -> bool:
    return _identity(x) == _identity(y)


def _identity(x):
    return x.index if isinstance(x, Number) else (str(x.dtype), x.tobytes())


def _order(x):
    return (0, x.index) if isinstance(x, Number) else (1, 0)
