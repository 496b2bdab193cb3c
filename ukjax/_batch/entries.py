"""Arrays of numbers where all are known, of objects (``Number`` or NumPy scalars) where some are not."""

from typing import Any

import numpy as np

from .graph import Graph, Memory, Number
from .refusal import Unsupported


class Stored:
    """An array of a graph's numbers that is in a memory, whose entries are loaded where they are needed."""

    dtype = np.dtype(object)

    def __init__(self, memory: Memory, shape: tuple[int, ...], version: int | None = None):
        self.memory, self.shape = memory, shape
        self.version = memory.version if version is None else version

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

    def at(self, graph: Graph, index: Any, places: np.ndarray) -> np.ndarray:
        """The entries at ``index`` + each of the ``places``."""
        if not self.is_current:
            raise Unsupported("an array in a loop is used after an entry of it has changed")
        result = np.empty(places.shape, object)
        for at, k in np.ndenumerate(places):
            result[at] = graph.load(self.memory, index, int(k))
        return result

    def entries(self, graph: Graph) -> np.ndarray:
        """All of them."""
        return self.at(graph, None, np.arange(self.size).reshape(self.shape))


def loaded(graph: Graph, x: Any) -> np.ndarray:
    """The entries of an array, all objects."""
    return x.entries(graph) if isinstance(x, Stored) else objects(x)


def objects(x: np.ndarray) -> np.ndarray:
    """The same array with every entry an object: a Number, or a NumPy scalar that remembers its type."""
    if x.dtype == object:
        return x
    result = np.empty(x.size, object)
    for i, value in enumerate(x.ravel()):
        result[i] = value
    return result.reshape(x.shape)


def alike(*arrays: np.ndarray) -> list[np.ndarray]:
    """The same arrays, all of objects if one of them is."""
    return [objects(x) for x in arrays] if any(x.dtype == object for x in arrays) else list(arrays)


def tidy(result: Any, dtype: np.dtype) -> Any:
    """Back to plain values where all turned out to be known."""
    if isinstance(result, Stored):
        return result
    result = np.asarray(result)
    if result.dtype != object or any(isinstance(x, Number) for x in result.flat):
        return result
    return np.array(list(result.flat), dtype=dtype).reshape(result.shape)


def known(indices: np.ndarray) -> np.ndarray:
    """The same ``indices``, if they are known before the program runs."""
    if indices.dtype == object:
        raise Unsupported("an index depends on what is computed: take all entries and choose by jnp.where")
    return indices
