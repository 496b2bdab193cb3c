"""A computation as a list of operations on numbers: what is known is computed at once, what is repeated is shared.

Zeros that are there by structure (a block-diagonal mass matrix, a constraint that some coordinates do not enter) cost
nothing in such a list, and one angle has one sine however often it is written.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .arithmetic import BOOL, IDENTITIES, PREDICATES, fold
from .number import Number, Operand, identity, same
from .simplify import SIMPLER


class Operation(NamedTuple):
    """A function of ``jax.lax``, by the name of its primitive, on numbers; ``INPUT`` is a number given from outside."""

    name: str
    parameters: dict[str, Any]
    operands: tuple[Operand, ...]


INPUT = "input"

COMMUTATIVE = {"add": "add", "add_any": "add", "mul": "mul"}
"""Operations whose operands may change places, and the name under which they are noted."""

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
        parameters = {k: x for k, x in parameters.items() if k in ("new_dtype", "y")} if parameters else {}
        if name == "convert_element_type":
            to = np.dtype(parameters["new_dtype"])
            if isinstance(operands[0], np.generic):
                return to.type(operands[0])
            if operands[0].dtype == to:
                return operands[0]
            return self._share(Operation(name, parameters, tuple(operands)), (str(to),), to)
        for x in operands:
            if type(x) is Number:
                break
        else:
            return fold(name, parameters, operands)
        simpler = SIMPLER.get(name)
        if simpler is not None and (found := simpler(self, operands, parameters)) is not None:
            return found
        if name in COMMUTATIVE:  # one name for a + b and b + a: a constant is first, or else the earlier number
            name, (a, b) = COMMUTATIVE[name], operands
            if type(b) is not Number or (type(a) is Number and b.index < a.index):
                operands = b, a
        key = tuple(sorted((k, str(x)) for k, x in parameters.items())) if parameters else ()
        like = operands[0] if name == "pow" else operands[-1]  # what is chosen comes after the choice, a power first
        dtype = BOOL if name in PREDICATES else like.dtype
        return self._share(Operation(name, parameters, tuple(operands)), key, dtype)

    def negated(self, x):
        """y if x is −y."""
        inner = self.operations[x.index] if type(x) is Number else None
        return inner.operands[0] if inner is not None and inner.name == "neg" else None

    def is_difference_of_equals(self, x: Number) -> bool:
        """Whether x is y − y."""
        inner = self.operations[x.index]
        return inner.name == "sub" and same(*inner.operands)

    def _share(self, operation, key, dtype):
        key = (operation.name, key, tuple(map(identity, operation.operands)))
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
