"""Arrays of numbers where all are known, of objects (``Number`` or NumPy scalars) where some are not."""

from typing import Any

import numpy as np

from .graph import Number
from .refusal import Unsupported


def objects(x: np.ndarray) -> np.ndarray:
    """The same array with every entry an object: a Number, or a NumPy scalar that remembers its type."""
    if x.dtype == object:
        return x
    result = np.empty(x.size, object)
    for i, value in enumerate(x.ravel()):
        result[i] = value
    return result.reshape(x.shape)


def numbers_in(*arrays: np.ndarray) -> list[Number]:
    """The numbers among their entries, each once."""
    return list({x.index: x for array in arrays for x in array.flat if isinstance(x, Number)}.values())


def alike(*arrays: np.ndarray) -> list[np.ndarray]:
    """The same arrays, all of objects if one of them is."""
    return [objects(x) for x in arrays] if any(x.dtype == object for x in arrays) else list(arrays)


def tidy(result: Any, dtype: np.dtype) -> np.ndarray:
    """Back to plain values where all turned out to be known."""
    result = np.asarray(result)
    if result.dtype != object or any(isinstance(x, Number) for x in result.flat):
        return result
    return np.array(list(result.flat), dtype=dtype).reshape(result.shape)


def known(indices: np.ndarray) -> np.ndarray:
    """The same ``indices``, if they are known before the program runs."""
    if indices.dtype == object:
        raise Unsupported("an index depends on what is computed: take all entries and choose by jnp.where")
    return indices
