"""What a user may write where a function of (t, q) or (t, q, v) is wanted: that function, or a constant array."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._check import as_array, call, check_finite, check_function, repr_of
from ._precision import as_float


class Constant(eqx.Module):
    """A function of anything that returns ``value``."""

    value: Array

    def __call__(self, *_: Any) -> Array:
        return self.value


class Zero(eqx.Module):
    """A vector of zeros of whatever length is wanted: see ``vector_of``."""


def as_vector_function(name: str, value: Any, arguments: str) -> Callable | Zero:
    """``as_function`` for a vector, of which the number 0 means that all entries are 0."""
    is_zero = type(value) in (int, float) and value == 0
    return Zero() if is_zero else as_function(name, value, arguments)


def as_function(name: str, value: Any, arguments: str) -> Callable:
    """``value`` if it is a function of ``arguments`` (``"t, q"``), a constant function if it is an array."""
    if value is None or isinstance(value, str) or not (callable(value) or eqx.is_array_like(value) or _is_rows(value)):
        raise ValueError(f"{name} must be a function {name}({arguments}) or a constant array, got {repr_of(value)}")
    if callable(value):
        check_function(name, value, arguments)
        return value
    constant = as_array(name, value, f"a function {name}({arguments}) or a constant array of numbers")
    check_finite(name, constant)
    return Constant(constant)


def array(name: str, function: Callable, t: Array, q: Array, *more: Any, what: str = "numbers") -> Array:
    """What a user's function returns at (t, q, ...), as an array of numbers in q's precision or its own, or
    ``ValueError``."""
    return as_float(as_array(name, call(name, function, t, q, *more), what, "return"), q)


def vector(name: str, function: Callable, t: Array, q: Array, *more: Any) -> Float[Array, " m"]:
    """What a user's function returns, as a vector: a number counts as one row, a list of numbers as several."""
    value = jnp.atleast_1d(array(name, function, t, q, *more))
    if value.ndim != 1:
        raise ValueError(f"{name} must return a vector of shape (m,), one entry per row, got shape {value.shape}")
    return value


def vector_of(
    size: int, each: str, name: str, function: Callable | Zero, t: Array, q: Array, *more: Any
) -> Float[Array, " size"]:
    """What a user's function returns, as a vector of ``size`` entries, one per ``each``. Raises ``ValueError`` for
    another number of entries: one number is never repeated."""
    if isinstance(function, Zero):
        return jnp.zeros(size, q.dtype)
    value = vector(name, function, t, q, *more)
    if value.size != size:
        seen = "one number" if value.size == 1 else f"shape {value.shape}"
        raise ValueError(f"{name} must have shape ({size},), one entry per {each}, got {seen}")
    return value


def two_arrays(name: str, what: str, given: Any) -> tuple[Array, Array]:
    """What a user's function returned for two arrays, or ``ValueError``."""
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise ValueError(f"{name} must return {what}, got {repr_of(given)}")
    first, second = given
    return as_array(name, first, what, "return"), as_array(name, second, what, "return")


def _is_rows(value: Any) -> bool:
    return isinstance(value, list | tuple)
