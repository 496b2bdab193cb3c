"""Arrays of numbers where all are known, of objects (``Number`` or NumPy scalars) where some are not."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .number import Number, Operand
from .refusal import Unsupported

OBJECT = np.dtype(object)


def are_known(*arrays: np.ndarray) -> bool:
    """Whether all entries are known before the program runs."""
    for x in arrays:
        if x.dtype is OBJECT:
            return False
    return True


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


def numbers_in(*arrays: np.ndarray) -> list[Number]:
    """The numbers among their entries, each once."""
    return list({x.index: x for array in arrays for x in array.flat if isinstance(x, Number)}.values())


def alike(*arrays: np.ndarray) -> list[np.ndarray]:
    """The same arrays, all of objects if one of them is."""
    return list(arrays) if are_known(*arrays) else [objects(x) for x in arrays]


def tidy(result: Any, dtype: np.dtype) -> np.ndarray:
    """Back to plain values where all turned out to be known."""
    result = np.asarray(result)
    if result.dtype is not OBJECT:
        return result
    entries = result.ravel().tolist()
    for x in entries:
        if type(x) is Number:
            return result
    return np.array(entries, dtype=dtype).reshape(result.shape)


def known(indices: np.ndarray) -> np.ndarray:
    """The same ``indices``, if they are known before the program runs."""
    if indices.dtype is OBJECT:
        raise Unsupported("an index depends on what is computed: take all entries and choose by jnp.where")
    return indices
