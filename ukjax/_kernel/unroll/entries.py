"""Arrays during unrolling: NumPy arrays of constants, object arrays, and arrays in the memory of the kernel.

If all entries are constants, an array has its numeric dtype. Otherwise it is an object array, whose entries are
``Number`` or NumPy scalars, or a ``Stored`` array.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph.graph import Graph, Memory
from ..graph.number import Number, Operand
from ..unsupported import Unsupported

OBJECT = np.dtype(object)


def are_known(*arrays: np.ndarray) -> bool:
    """Whether all entries of all arrays are constants."""
    for x in arrays:
        if x.dtype is OBJECT:
            return False
    return True


class Stored:
    """An array in a memory of the graph; its entries are loaded where they are used.

    memory: the memory that contains it.
    shape: the shape of the array.
    version: version of the memory that the array refers to.
    begin: index of its first entry in the memory; None is 0.
    shared: a later operation reads this array too, so an update writes to a copy.
    """

    dtype = OBJECT

    def __init__(
        self, memory: Memory, shape: tuple[int, ...], version: int | None = None, begin: Operand | None = None
    ):
        self.memory, self.shape, self.begin = memory, shape, begin
        self.version = memory.version if version is None else version
        self.shared = False

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=int))

    @property
    def is_current(self) -> bool:
        """Whether the memory is unchanged since this version."""
        return self.version == self.memory.version

    @property
    def is_writable(self) -> bool:
        """Whether entries may be updated in place."""
        return self.is_current and not self.shared and not self.memory.is_constant and self.is_whole

    @property
    def is_whole(self) -> bool:
        """Whether the array is the whole memory."""
        return self.begin is None and self.size == self.memory.size

    def as_shared(self) -> "Stored":
        """This array for an operation that is not the last to read it."""
        other = Stored(self.memory, self.shape, self.version, self.begin)
        other.shared = True
        return other

    def reloaded(self) -> "Stored":
        """This array at a new version, since others, such as an earlier iteration of a loop, may have written to it."""
        self.memory.version += 1
        return Stored(self.memory, self.shape)

    def at(self, graph: Graph, index: Any, offsets: np.ndarray) -> np.ndarray:
        """Load the entries at ``index`` + each of the ``offsets``."""
        if not self.is_current:
            raise Unsupported("an array in a loop is used after an entry of it was updated")
        if self.begin is not None:
            index = self.begin if index is None else graph.apply("add", (self.begin, index))
        result = np.empty(offsets.shape, object)
        for position, k in np.ndenumerate(offsets):
            result[position] = graph.load(self.memory, index, int(k))
        return result

    def copy(self, graph: Graph) -> "Stored":
        """A copy of this array in a new memory."""
        if not self.is_current:
            raise Unsupported("an array in a loop is used after an entry of it was updated")
        return Stored(graph.copy(self.memory, self.begin, self.size), self.shape)

    def entries(self, graph: Graph) -> np.ndarray:
        """Load all entries."""
        return self.at(graph, None, np.arange(self.size).reshape(self.shape))


def loaded(graph: Graph, x: Any) -> np.ndarray:
    """The entries of an array, as an object array."""
    return x.entries(graph) if isinstance(x, Stored) else as_objects(x)


def shared(arrays: Sequence[Any]) -> list[Any]:
    """Mark ``Stored`` arrays as shared: later operations read them too."""
    return [x.as_shared() if isinstance(x, Stored) else x for x in arrays]


def as_objects(x: np.ndarray) -> np.ndarray:
    """An array as object array; constants become NumPy scalars, which keep their dtype."""
    return x if x.dtype is OBJECT else object_array(list(x.flat), x.shape)


def object_array(entries: Sequence[Operand], shape: tuple[int, ...]) -> np.ndarray:
    """An object array with these entries, in row-major order."""
    return np.fromiter(entries, OBJECT, len(entries)).reshape(shape)


def entry_list(x: np.ndarray) -> list[Operand]:
    """All entries, in row-major order."""
    return x.ravel().tolist() if x.dtype is OBJECT else list(x.flat)


def entry_rows(x: np.ndarray, count: int) -> list[list[Operand]]:
    """All entries, in row-major order, as ``count`` lists of equal length."""
    entries, length = entry_list(x), x.size // max(1, count)
    return [entries[i * length : (i + 1) * length] for i in range(count)]


def broadcast(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A copy broadcast to ``shape``; several times faster than ``numpy.broadcast_to`` for small arrays."""
    if x.shape == shape:
        return x
    result = np.empty(shape, x.dtype)
    result[...] = x
    return result


def with_common_dtype(*arrays: np.ndarray) -> list[np.ndarray]:
    """The arrays; if one is an object array, all become object arrays."""
    return list(arrays) if are_known(*arrays) else [as_objects(x) for x in arrays]


def unbox_constants(result: Any, dtype: np.dtype) -> Any:
    """Convert an object array to ``dtype`` if all entries are constants."""
    if type(result) is Stored:
        return result
    result = np.asarray(result)
    if result.dtype is not OBJECT:
        return result
    entries = result.ravel().tolist()
    for x in entries:
        if type(x) is Number:
            return result
    return np.array(entries, dtype=dtype).reshape(result.shape)
