"""What a user may write where a function of (t, q) or (t, q, v) is wanted: that function, or a constant array."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._check import check_function
from ._precision import as_float


class Constant(eqx.Module):
    """A function of anything that returns ``value``."""

    value: Array

    def __call__(self, *_: Any) -> Array:
        return self.value


def as_function(name: str, value: Any, arguments: str) -> Callable:
    """``value`` if it is a function of ``arguments`` (``"t, q"``), a constant function if it is an array."""
    if value is None or isinstance(value, str) or not (callable(value) or eqx.is_array_like(value) or _is_rows(value)):
        raise ValueError(f"{name} must be a function {name}({arguments}) or a constant array, got {value!r}")
    if callable(value):
        check_function(name, value, arguments)
        return value
    return Constant(as_float(value, name=name))


def vector(name: str, value: Any, q: Float[Array, " n"]) -> Float[Array, " m"]:
    """What a user's function returned at q, as a vector: a number counts as one row, a list of numbers as several."""
    value = jnp.atleast_1d(as_float(value, q, name))
    if value.ndim != 1:
        raise ValueError(f"{name} must return a vector of shape (m,), one entry per row, got shape {value.shape}")
    return value


def _is_rows(value: Any) -> bool:
    return isinstance(value, list | tuple)
