"""Arrays of numbers where all are known, of objects (``Number`` or NumPy scalars) where some are not."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph.graph import Graph, Memory
from ..graph.number import Number, Operand
from ..unsupported import Unsupported

OBJECT = np.dtype(object)


def are_known(*arrays: np.ndarray) -> bool:
    """Whether all entries are known before the program runs."""
    for x in arrays:
        if x.dtype is OBJECT:
            return False
    return True


class Stored:
    """An array of a graph's numbers that is in a memory, from place ``begin`` on, whose entries are loaded where they
    are needed. One that is ``shared`` is used again later, and stays as it is: what changes an entry does so in a
    copy."""

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
        """Whether nothing was stored in the memory since."""
        return self.version == self.memory.version

    @property
    def may_change(self) -> bool:
        """Whether entries may be changed in place."""
        return self.is_current and not self.shared and not self.memory.lasting and self.is_whole

    @property
    def is_whole(self) -> bool:
        """Whether it is all that the memory has."""
        return self.begin is None and self.size == self.memory.size

    def as_shared(self) -> "Stored":
        """The same array for somebody who is not the last to use it."""
        other = Stored(self.memory, self.shape, self.version, self.begin)
        other.shared = True
        return other

    def as_others_leave_it(self) -> "Stored":
        """The same array where what others, such as an earlier turn of a loop, may have stored in it since."""
        self.memory.version += 1
        return Stored(self.memory, self.shape)

    def at(self, graph: Graph, index: Any, places: np.ndarray) -> np.ndarray:
        """The entries at ``index`` + each of the ``places``."""
        if not self.is_current:
            raise Unsupported("an array in a loop is used after an entry of it has changed")
        if self.begin is not None:
            index = self.begin if index is None else graph.apply("add", (self.begin, index))
        result = np.empty(places.shape, object)
        for at, k in np.ndenumerate(places):
            result[at] = graph.load(self.memory, index, int(k))
        return result

    def copied(self, graph: Graph) -> "Stored":
        """The same array in a memory that may change."""
        if not self.is_current:
            raise Unsupported("an array in a loop is used after an entry of it has changed")
        return Stored(graph.copy(self.memory, self.begin, self.size), self.shape)

    def entries(self, graph: Graph) -> np.ndarray:
        """All of them."""
        return self.at(graph, None, np.arange(self.size).reshape(self.shape))


def loaded(graph: Graph, x: Any) -> np.ndarray:
    """The entries of an array, all objects."""
    return x.entries(graph) if isinstance(x, Stored) else objects(x)


def shared(arrays: Sequence[Any]) -> list[Any]:
    """The same arrays for a turn of a loop, after which others need them."""
    return [x.as_shared() if isinstance(x, Stored) else x for x in arrays]


def objects(x: np.ndarray) -> np.ndarray:
    """The same array with every entry an object: a Number, or a NumPy scalar that remembers its type."""
    return x if x.dtype is OBJECT else array_of(list(x.flat), x.shape)


def array_of(entries: Sequence[Operand], shape: tuple[int, ...]) -> np.ndarray:
    """An array of objects."""
    return np.fromiter(entries, OBJECT, len(entries)).reshape(shape)


def listed(x: np.ndarray) -> list[Operand]:
    """All entries, in order."""
    return x.ravel().tolist() if x.dtype is OBJECT else list(x.flat)


def rows_of(x: np.ndarray, count: int) -> list[list[Operand]]:
    """All entries, in order, in ``count`` lists of one length."""
    entries, length = listed(x), x.size // max(1, count)
    return [entries[i * length : (i + 1) * length] for i in range(count)]


def spread(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """As ``numpy.broadcast_to`` does it, which for few entries takes several times longer."""
    if x.shape == shape:
        return x
    result = np.empty(shape, x.dtype)
    result[...] = x
    return result


def alike(*arrays: np.ndarray) -> list[np.ndarray]:
    """The same arrays, all of objects if one of them is."""
    return list(arrays) if are_known(*arrays) else [objects(x) for x in arrays]


def tidy(result: Any, dtype: np.dtype) -> Any:
    """Back to plain values where all turned out to be known."""
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
