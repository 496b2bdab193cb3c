"""Conversion of arguments that may be functions of (t, q) or (t, q, v) or constant arrays."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._check import as_array, call, check_finite, check_function, repr_of
from ._errors import InputError
from ._precision import as_float


class Constant(eqx.Module):
    """Constant function with the given ``value``."""

    value: Array

    def __call__(self, *_: Any) -> Array:
        return self.value


class Zero(eqx.Module):
    """Zero vector of any length; see ``vector_of``."""


def as_vector_function(name: str, value: Any, arguments: str) -> Callable | Zero:
    """``as_function`` for a vector. The number 0 stands for a vector of zeros."""
    is_zero = type(value) in (int, float) and value == 0
    return Zero() if is_zero else as_function(name, value, arguments)


def as_function(name: str, value: Any, arguments: str) -> Callable:
    """Return ``value`` if it is a function of ``arguments`` (``"t, q"``), or a constant function if it is an array."""
    if value is None or isinstance(value, str) or not (callable(value) or eqx.is_array_like(value) or _is_rows(value)):
        raise InputError(f"{name} must be a function {name}({arguments}) or a constant array, got {repr_of(value)}")
    if callable(value):
        check_function(name, value, arguments)
        return value
    constant = as_array(name, value, f"a function {name}({arguments}) or a constant array of numbers")
    check_finite(name, constant)
    return Constant(constant)


def array(name: str, function: Callable, t: Array, q: Array, *more: Any, what: str = "numbers") -> Array:
    """Evaluate a user's function at (t, q, ...) as an array in the precision of q, or float64 if the result has it.

    Raises ``InputError`` if the result is not an array of numbers.
    """
    return as_float(as_array(name, call(name, function, t, q, *more), what, "return"), q)


def vector(name: str, function: Callable, t: Array, q: Array, *more: Any) -> Float[Array, " m"]:
    """Evaluate a user's function as a vector: a number is one row, a list of numbers is several rows."""
    value = jnp.atleast_1d(array(name, function, t, q, *more))
    if value.ndim != 1:
        raise InputError(f"{name} must return a vector of shape (m,), one entry per row, got shape {value.shape}")
    return value


def vector_of(
    size: int, each: str, name: str, function: Callable | Zero, t: Array, q: Array, *more: Any
) -> Float[Array, " size"]:
    """Evaluate a user's function as a vector of ``size`` entries, one per ``each`` (a noun for the message).

    Raises ``InputError`` for any other number of entries; a single number is not broadcast.
    """
    if isinstance(function, Zero):
        return jnp.zeros(size, q.dtype)
    value = vector(name, function, t, q, *more)
    if value.size != size:
        shape = "one number" if value.size == 1 else f"shape {value.shape}"
        raise InputError(f"{name} must have shape ({size},), one entry per {each}, got {shape}")
    return value


def two_arrays(name: str, what: str, value: Any) -> tuple[Array, Array]:
    """Convert a function value to a pair of arrays. Raises ``InputError`` if it is not a pair."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise InputError(f"{name} must return {what}, got {repr_of(value)}")
    first, second = value
    return as_array(name, first, what, "return"), as_array(name, second, what, "return")


def _is_rows(value: Any) -> bool:
    return isinstance(value, list | tuple)
