"""A computation as a list of scalar operations, with constant folding and common-subexpression elimination.

Structural zeros (a block-diagonal mass matrix, a coordinate that does not enter a constraint) cost nothing, and the
sine of an angle is computed once however often it occurs.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from .fold import BOOL, CONVERSIONS, IDENTITIES, PREDICATES, fold
from .number import Number, Operand, identity, same
from .simplify import SIMPLIFICATIONS


class Operation(NamedTuple):
    """A ``jax.lax`` primitive, by name, and its operands. ``INPUT`` is a number given from outside, ``LOAD`` reads a
    memory."""

    name: str
    parameters: dict[str, Any]
    operands: tuple[Operand, ...]


INPUT, LOAD = "input", "load"
INDEX = np.dtype(np.int64)


class Memory:
    """An array of numbers of one type that is addressed by index.

    Attributes
    ----------
    size, dtype
        Number of entries and their type.
    depth
        Nesting depth of the block that creates it.
    source
        Index of the argument that contains the entries, or None.
    values
        Constant entries, or None.
    version
        Number of stores so far; loads of the same version can be shared.
    is_constant
        Whether no more values are stored in it.
    """

    __slots__ = ("depth", "dtype", "is_constant", "size", "source", "values", "version")

    def __init__(self, size: int, dtype: np.dtype, depth: int, source: int | None = None, values: Any = None):
        self.size, self.dtype, self.depth = size, np.dtype(dtype), depth
        self.source, self.values, self.version = source, values, 0
        self.is_constant = source is not None or values is not None


class Store(NamedTuple):
    """Statement: store ``value`` at ``index`` + ``offset`` of a memory, for members for which all ``masks`` hold."""

    memory: Memory
    index: Operand | None
    offset: int
    value: Operand
    masks: tuple[Operand, ...]


class Fill(NamedTuple):
    """Statement: set ``size`` entries of ``memory``, from ``place`` on.

    The entries are copied from ``source``, from ``begin`` on, or are all one constant. None stands for index 0.
    """

    memory: Memory
    place: Operand | None
    source: "Memory | np.generic"
    begin: Operand | None
    size: int


class Loop(NamedTuple):
    """Statement: run ``block`` repeatedly.

    Attributes
    ----------
    block
        Body of the loop.
    carried
        Loop-carried numbers.
    begin, following
        Their values before the first and after each iteration.
    results
        Their values after the last iteration.
    counter
        If ``length`` is given: the number of completed iterations. Otherwise: the carried truth value that must hold
        for the next iteration to start.
    length
        Number of iterations; None if it is known at run time only.
    """

    block: "Block"
    carried: list["Number"]
    begin: list[Operand]
    following: list[Operand]
    results: list["Number"]
    counter: "Number"
    length: int | None


class Choice(NamedTuple):
    """Statement: run each block of ``cases`` for the members for which its mask holds.

    ``outcomes[k]`` are the values that case k gives to the ``results``.
    """

    masks: list[Operand]
    cases: list["Block"]
    outcomes: list[list[Operand]]
    results: list["Number"]


class Block:
    """Statements in order, and a memo table for common subexpressions.

    Attributes
    ----------
    statements
        Operations (by index), stores, fills, loops and choices.
    memo
        Results of operations, by operation and operands.
    """

    __slots__ = ("memo", "statements")

    def __init__(self) -> None:
        self.statements: list[int | Store | Fill | Loop | Choice] = []
        self.memo: dict[Any, Any] = {}


COMMUTATIVE = {"add": "add", "add_any": "add", "mul": "mul"}
"""Commutative operations, and the name under which they are recorded."""

KEY_PARAMETERS = frozenset({"new_dtype", "of", "rounding_method", "y"})
"""Parameters that change the value of an operation. JAX's other parameters (sharding, accuracy) are dropped."""

MAX_RECORDED_PER_NEEDED = 2
"""Operations that may be recorded for each needed one; unneeded operations cost little."""


class TooLarge(Exception):
    """The graph has more operations than are worth compiling."""


class Graph:
    """Operations in an order in which they can be executed.

    Attributes
    ----------
    limit
        Maximum number of needed operations; beyond it ``TooLarge`` is raised.
    usual_only
        Whether only the first (usual) case of every rare choice is recorded.
    assumed_zero
        Numbers that are 0 where these first cases are the right ones.
    num_checked
        How many leading entries of ``assumed_zero`` the traced function tests itself.
    seldom
        Indices of truth values that are declared to be rarely true.
    operations, dtypes
        The operations and the types of their results.
    blocks
        Open blocks, from the outermost to the innermost.
    floor
        Depth of the innermost conditional block; operations in it are not moved out of it.
    masks
        Truth values that hold for the members for which the innermost block runs.
    """

    def __init__(self, limit: int, usual_only: bool):
        self.usual_only = usual_only
        self.assumed_zero: list[Operand] = []
        self.rarely_true: set[int] = set()
        self.num_checked = 0
        self.operations: list[Operation] = []
        self.dtypes: list[np.dtype] = []
        self.blocks = [Block()]
        self.floor = 0
        self.masks: list[Operand] = []
        self.limit = limit

    def failed_assumption(self, first: int = 0) -> Operand:
        """Return whether any assumption, from the one with index ``first`` on, is wrong."""
        wrong: Operand = np.bool_(False)
        for value in self.assumed_zero[first:]:
            wrong = self.apply("or", (wrong, self.apply("ne", (value, value.dtype.type(0)))))
        return wrong

    def depth_of(self, operands: Iterable[Operand]) -> int:
        """Return the depth of the innermost block that computes one of the operands."""
        deepest = 0
        for x in operands:
            if type(x) is Number and x.depth > deepest:
                deepest = x.depth
        return deepest

    @contextlib.contextmanager
    def block(self, mask: Operand | None = None, conditional: bool = False) -> Iterator[Block]:
        """Open a block within the innermost one, for members for which ``mask`` holds.

        Operations of a ``conditional`` block are not moved out of it, even where they could be.
        """
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
        """Add a number of the innermost block whose value is set by a loop or a choice."""
        return self._append(Operation(INPUT, {}, ()), np.dtype(dtype), len(self.blocks) - 1, False)

    def state(self, statement: "Store | Fill | Loop | Choice") -> None:
        """Append a statement to the innermost block."""
        self.blocks[-1].statements.append(statement)

    def memory(self, entries: np.ndarray, dtype: np.dtype) -> Memory:
        """Create a writable memory with these initial entries."""
        memory = Memory(entries.size, dtype, len(self.blocks) - 1)
        if entries.dtype == object or not entries.size:
            for k, value in enumerate(entries.flat):
                self.state(Store(memory, None, k, value, ()))
            return memory
        first = entries.ravel()[0]
        is_uniform = np.all((entries == first) | (entries != entries) & (first != first))
        source = first if is_uniform else Memory(entries.size, dtype, 0, values=entries.ravel())
        self.state(Fill(memory, None, source, None, memory.size))
        return memory

    def copy(self, source: Memory, begin: Operand | None, size: int) -> Memory:
        """Create a writable memory that is initialised from entries of ``source``, from ``begin`` on."""
        memory = Memory(size, source.dtype, len(self.blocks) - 1)
        self.state(Fill(memory, None, source, begin, size))
        return memory

    def constant_memory(self, entries: np.ndarray, dtype: np.dtype) -> Memory:
        """Create a read-only memory with these entries, in the outermost block in which they are known."""
        memory = Memory(entries.size, dtype, max(self.depth_of(entries.flat), self.floor))
        for k, value in enumerate(entries.flat):
            self.blocks[memory.depth].statements.append(Store(memory, None, k, value, ()))
        memory.is_constant = True
        return memory

    def load(self, memory: Memory, index: Operand | None, offset: int) -> Number:
        """Read the current entry at ``index`` + ``offset``."""
        if isinstance(index, np.generic):
            index, offset = None, offset + int(index)
        operands = () if index is None else (index,)
        operation = Operation(LOAD, {"memory": memory, "offset": offset}, operands)
        depth = None if memory.is_constant else len(self.blocks) - 1
        min_depth = memory.depth
        return self._share(operation, (id(memory), memory.version, offset), memory.dtype, depth, min_depth)

    def store(self, memory: Memory, index: Operand | None, offset: int, value: Operand, *masks: Operand) -> None:
        """Store ``value`` at ``index`` + ``offset``, for members for which the masks hold."""
        if isinstance(index, np.generic):
            index, offset = None, offset + int(index)
        self.state(Store(memory, index, offset, value, (*self.masks, *masks)))
        memory.version += 1

    def input(self, dtype: np.dtype) -> Number:
        """Add a number that is given from outside."""
        return self._append(Operation(INPUT, {}, ()), np.dtype(dtype), 0, True)

    def inputs(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Add an array of numbers that are given from outside."""
        entries = np.empty(int(np.prod(shape, dtype=int)), object)
        for i in range(entries.size):
            entries[i] = self.input(dtype)
        return entries.reshape(shape)

    def apply(self, name: str, operands: Sequence[Operand], parameters: dict[str, Any] | None = None) -> Operand:
        """Return the result of the elementwise operation ``name``; its type follows from the operands."""
        if name in IDENTITIES:
            return operands[0]
        parameters = {k: x for k, x in parameters.items() if k in KEY_PARAMETERS} if parameters else {}
        if name in CONVERSIONS:
            new_dtype = np.dtype(parameters["new_dtype"])
            if isinstance(operands[0], np.generic):
                return CONVERSIONS[name](operands[0], new_dtype)
            if operands[0].dtype == new_dtype:
                return operands[0]
            return self._share(Operation(name, parameters, tuple(operands)), (str(new_dtype),), new_dtype)
        for x in operands:
            if type(x) is Number:
                break
        else:
            return fold(name, parameters, operands)
        simplify = SIMPLIFICATIONS.get(name)
        if simplify is not None and (result := simplify(self, operands, parameters)) is not None:
            return result
        if name in COMMUTATIVE:
            # Canonical order, so that a + b and b + a are shared: a constant first, else the earlier number.
            name, (a, b) = COMMUTATIVE[name], operands
            if type(b) is not Number or (type(a) is Number and b.index < a.index):
                operands = b, a
        key = tuple(sorted((k, str(x)) for k, x in parameters.items())) if parameters else ()
        # The cases of a selection follow its index; a power has the type of its base.
        typed = operands[0] if name == "pow" else operands[-1]
        dtype = BOOL if name in PREDICATES else typed.dtype
        return self._share(Operation(name, parameters, tuple(operands)), key, dtype)

    def negated(self, x):
        """Return y if x is −y, else None."""
        inner = self.operations[x.index] if type(x) is Number else None
        return inner.operands[0] if inner is not None and inner.name == "neg" else None

    def is_rarely_true(self, x: Number) -> bool:
        """Return whether x, or the truth value it was converted from, was declared to be rarely true."""
        operation = self.operations[x.index]
        origin = operation.operands[0] if operation.name == "convert_element_type" else x
        return isinstance(origin, Number) and origin.index in self.rarely_true

    def is_difference_of_equals(self, x: Number) -> bool:
        """Return whether x is y − y."""
        inner = self.operations[x.index]
        return inner.name == "sub" and same(*inner.operands)

    def _share(self, operation, key, dtype, depth=None, min_depth=0):
        """Return the number of an operation; equal operations are recorded once.

        It is placed at ``depth``, or else as far out as its operands, ``min_depth`` and ``floor`` allow.
        """
        name, _, operands = operation
        earliest, parts = min_depth, [name, key]
        for x in operands:
            if type(x) is Number:
                parts.append(x.index)
                if x.depth > earliest:
                    earliest = x.depth
            else:
                parts.append(identity(x))
        if depth is None:
            depth = self.floor if self.floor > earliest else earliest
        key = tuple(parts)
        for k in range(earliest, depth + 1):
            number = self.blocks[k].memo.get(key)
            if number is not None:
                return number
        number = self.blocks[depth].memo[key] = self._append(operation, dtype, depth, True)
        return number

    def memoised(self, key: Any, operands: Iterable[Operand], make: Callable[[], Any]) -> Any:
        """Return ``make()``, which depends on the operands alone; it is called once for each ``key``."""
        earliest = self.depth_of(operands)
        depth = max(earliest, self.floor)
        for block in self.blocks[earliest : depth + 1]:
            if key in block.memo:
                return block.memo[key]
        value = self.blocks[depth].memo[key] = make()
        return value

    def _append(self, operation, dtype, depth, is_statement):
        """Record an operation, as a statement of the block at ``depth`` if ``is_statement``."""
        if len(self.operations) >= MAX_RECORDED_PER_NEEDED * self.limit:
            raise TooLarge
        number = Number(len(self.operations), dtype, depth)
        self.operations.append(operation)
        self.dtypes.append(dtype)
        if is_statement:
            self.blocks[depth].statements.append(number.index)
        return number
