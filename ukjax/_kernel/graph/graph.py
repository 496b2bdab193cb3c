"""A computation as a list of operations on numbers: what is known is computed at once, what is repeated is shared.

Zeros that are there by structure (a block-diagonal mass matrix, a constraint that some coordinates do not enter) cost
nothing in such a list, and one angle has one sine however often it is written.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from .fold import BOOL, IDENTITIES, OF_TYPE, PREDICATES, fold
from .number import Number, Operand, identity, same
from .simplify import SIMPLER


class Operation(NamedTuple):
    """A function of ``jax.lax``, by the name of its primitive, on numbers; ``INPUT`` is a number given from outside,
    ``LOAD`` one from a memory."""

    name: str
    parameters: dict[str, Any]
    operands: tuple[Operand, ...]


INPUT, LOAD = "input", "load"
INDEX = np.dtype(np.int64)


class Memory:
    """Numbers of one type that stand side by side and are reached by index: an array in a loop. ``depth`` is that of
    the block in which it is made, ``version`` counts what was stored. What it has from the start: ``values`` that are
    known, or those of an argument, the one of number ``source``. It is ``lasting`` if nothing is stored in it any
    more."""

    __slots__ = ("depth", "dtype", "lasting", "size", "source", "values", "version")

    def __init__(self, size: int, dtype: np.dtype, depth: int, source: int | None = None, values: Any = None):
        self.size, self.dtype, self.depth = size, np.dtype(dtype), depth
        self.source, self.values, self.version = source, values, 0
        self.lasting = source is not None or values is not None


class Store(NamedTuple):
    """A statement: ``value`` goes to place ``index`` + ``offset`` of a memory, for members for which ``masks`` hold."""

    memory: Memory
    index: Operand | None
    offset: int
    value: Operand
    masks: tuple[Operand, ...]


class Fill(NamedTuple):
    """A statement: ``size`` numbers of a memory, from ``place`` on, become those of another one, from ``begin`` on, or
    all one number. What is None is 0."""

    memory: Memory
    place: Operand | None
    source: "Memory | np.generic"
    begin: Operand | None
    size: int


class Loop(NamedTuple):
    """A statement: ``block`` again and again.

    ``carried`` numbers have the values ``begin`` at first and ``following`` after a turn; after the last one they are
    the ``results``. It makes as many turns as its ``length``, with the number of turns before in ``counter``; or as
    many as the carried number ``counter``, a truth value, holds when a turn would begin (``length`` is None).
    """

    block: "Block"
    carried: list["Number"]
    begin: list[Operand]
    following: list[Operand]
    results: list["Number"]
    counter: "Number"
    length: int | None


class Choice(NamedTuple):
    """A statement: each of the blocks ``cases`` for members for which its mask holds. ``outcomes`` are what each gives
    for the ``results``."""

    masks: list[Operand]
    cases: list["Block"]
    outcomes: list[list[Operand]]
    results: list["Number"]


class Block:
    """Statements in order, the indices of operations among them; and the operations by what they are."""

    __slots__ = ("known", "statements")

    def __init__(self) -> None:
        self.statements: list[int | Store | Fill | Loop | Choice] = []
        self.known: dict[Any, Any] = {}


COMMUTATIVE = {"add": "add", "add_any": "add", "mul": "mul"}
"""Operations whose operands may change places, and the name under which they are noted."""

SAID = frozenset({"new_dtype", "of", "rounding_method", "y"})
"""Parameters that are about a single number; what else JAX notes of an operation (sharding, accuracy) is not."""

NOTED_PER_NEEDED = 2
"""How many operations may be noted for each that may be needed in the end: those that are not cost little."""


class TooLarge(Exception):
    """The list would be longer than is worth compiling."""


class Graph:
    """Operations in the order in which they can be done.

    Of more than ``most`` that are needed, none is done.

    A graph of what is ``usual`` has the first case of every choice alone, and keeps in ``assumed_zero`` what these
    choices depend on: each is 0 where its first case is indeed the one.
    """

    def __init__(self, most: int, usual: bool):
        self.usual = usual
        self.assumed_zero: list[Operand] = []
        self.seldom: set[int] = set()  # truth values of which it is said that they seldom hold
        self.told = 0  # how many of these the function itself has asked for
        self.operations: list[Operation] = []
        self.dtypes: list[np.dtype] = []
        self.blocks = [Block()]  # those that are being written, each inside the one before
        self.floor = 0  # the innermost of them that runs on a condition: what is done there stays there
        self.masks: list[Operand] = []  # which members the innermost block is for: those for which all of these hold
        self.most = most

    def wrongly_assumed(self, first: int = 0) -> Operand:
        """Whether one of these choices, from the ``first`` on, is another."""
        wrong: Operand = np.bool_(False)
        for choice in self.assumed_zero[first:]:
            wrong = self.apply("or", (wrong, self.apply("ne", (choice, choice.dtype.type(0)))))
        return wrong

    def depth_of(self, operands: Iterable[Operand]) -> int:
        """The depth of the innermost block that one of the operands is computed in."""
        deepest = 0
        for x in operands:
            if type(x) is Number and x.depth > deepest:
                deepest = x.depth
        return deepest

    @contextlib.contextmanager
    def block(self, mask: Operand | None = None, conditional: bool = False) -> Iterator[Block]:
        """A block within the innermost one; for members for which ``mask`` holds. What a ``conditional`` one does is
        not moved before it, even where it could be."""
        block, floor, masks = Block(), self.floor, self.masks
        self.masks = masks if mask is None else [*masks, mask]
        self.floor = len(self.blocks) if conditional else floor
        self.blocks.append(block)
        try:
            yield block
        finally:
            self.blocks.pop()
            self.floor, self.masks = floor, masks

    def carried(self, dtype: np.dtype) -> Number:
        """A number of the innermost block that a loop or a choice gives its value."""
        return self._append(Operation(INPUT, {}, ()), np.dtype(dtype), len(self.blocks) - 1, False)

    def state(self, statement: "Store | Fill | Loop | Choice") -> None:
        """Enter a statement into the innermost block."""
        self.blocks[-1].statements.append(statement)

    def memory(self, entries: np.ndarray, dtype: np.dtype) -> Memory:
        """One that begins with these entries, and in which others may be stored."""
        made = Memory(entries.size, dtype, len(self.blocks) - 1)
        if entries.dtype == object or not entries.size:
            for k, x in enumerate(entries.flat):
                self.state(Store(made, None, k, x, ()))
            return made
        first = entries.ravel()[0]
        same = np.all((entries == first) | (entries != entries) & (first != first))
        source = first if same else Memory(entries.size, dtype, 0, values=entries.ravel())
        self.state(Fill(made, None, source, None, made.size))
        return made

    def copy(self, source: Memory, begin: Operand | None, size: int) -> Memory:
        """One that begins with what another one has, from place ``begin`` on, and in which others may be stored."""
        made = Memory(size, source.dtype, len(self.blocks) - 1)
        self.state(Fill(made, None, source, begin, size))
        return made

    def lasting_memory(self, entries: np.ndarray, dtype: np.dtype) -> Memory:
        """One that has these entries for good, made as early as can be."""
        made = Memory(entries.size, dtype, max(self.depth_of(entries.flat), self.floor))
        for k, x in enumerate(entries.flat):
            self.blocks[made.depth].statements.append(Store(made, None, k, x, ()))
        made.lasting = True
        return made

    def load(self, memory: Memory, index: Operand | None, offset: int) -> Number:
        """What is at place ``index`` + ``offset`` now."""
        if isinstance(index, np.generic):
            index, offset = None, offset + int(index)
        operands = () if index is None else (index,)
        operation = Operation(LOAD, {"memory": memory, "offset": offset}, operands)
        depth = None if memory.lasting else len(self.blocks) - 1
        least = memory.depth
        return self._share(operation, (id(memory), memory.version, offset), memory.dtype, depth, least)

    def store(self, memory: Memory, index: Operand | None, offset: int, value: Operand, *masks: Operand) -> None:
        """Put a value to place ``index`` + ``offset``, for members for which the masks hold."""
        if isinstance(index, np.generic):
            index, offset = None, offset + int(index)
        self.state(Store(memory, index, offset, value, (*self.masks, *masks)))
        memory.version += 1

    def input(self, dtype: np.dtype) -> Number:
        """One more number that is given from outside."""
        return self._append(Operation(INPUT, {}, ()), np.dtype(dtype), 0, True)

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
        parameters = {k: x for k, x in parameters.items() if k in SAID} if parameters else {}
        if name in OF_TYPE:
            to = np.dtype(parameters["new_dtype"])
            if isinstance(operands[0], np.generic):
                return OF_TYPE[name](operands[0], to)
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

    def is_seldom(self, x: Number) -> bool:
        """Whether x, or what it is made of, was said to be seldom true."""
        operation = self.operations[x.index]
        of = operation.operands[0] if operation.name == "convert_element_type" else x
        return isinstance(of, Number) and of.index in self.seldom

    def is_difference_of_equals(self, x: Number) -> bool:
        """Whether x is y − y."""
        inner = self.operations[x.index]
        return inner.name == "sub" and same(*inner.operands)

    def _share(self, operation, key, dtype, depth=None, least=0):
        """The number of an operation, as early as its operands allow, or at a ``depth``; the same for the same one."""
        name, _, operands = operation
        earliest, names = least, [name, key]
        for x in operands:
            if type(x) is Number:
                names.append(x.index)
                if x.depth > earliest:
                    earliest = x.depth
            else:
                names.append(identity(x))
        if depth is None:
            depth = self.floor if self.floor > earliest else earliest
        key = tuple(names)
        for k in range(earliest, depth + 1):
            found = self.blocks[k].known.get(key)
            if found is not None:
                return found
        found = self.blocks[depth].known[key] = self._append(operation, dtype, depth, True)
        return found

    def remembered(self, key: Any, operands: Iterable[Operand], make: Callable[[], Any]) -> Any:
        """What ``make()`` gives, which follows from the operands alone; made once."""
        earliest = self.depth_of(operands)
        depth = max(earliest, self.floor)
        for block in self.blocks[earliest : depth + 1]:
            if key in block.known:
                return block.known[key]
        found = self.blocks[depth].known[key] = make()
        return found

    def _append(self, operation, dtype, depth, stated):
        if len(self.operations) >= NOTED_PER_NEEDED * self.most:
            raise TooLarge
        number = Number(len(self.operations), dtype, depth)
        self.operations.append(operation)
        self.dtypes.append(dtype)
        if stated:
            self.blocks[depth].statements.append(number.index)
        return number
