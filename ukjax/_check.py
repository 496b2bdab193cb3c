"""Checks of arguments, with errors in the terms of the user. Values are checked if they are concrete, never under
jit."""

import inspect
import math
import operator
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FunctionType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._errors import InputError
from ._jaxpr.tracing import is_concrete, is_traced
from ._names import did_you_mean
from ._precision import as_constant, as_float

MAX_FIXED_STEPS = 100_000_000
"""Largest number of fixed steps that a ``dt`` may imply: minutes to hours of run time."""


# --- values in error messages ---------------------------------------------------------------------------------------


def repr_of(value: Any) -> str:
    """Format ``value`` for an error message: one line, shortened if long."""
    if isinstance(value, type):
        return kind_of(value)
    if is_traced(value):
        return f"an array of shape {value.shape}"
    if not is_concrete(value):
        return f"{type(value).__name__} of arrays"
    if isinstance(value, np.ndarray | jax.Array) and value.ndim and value.size > 6:
        return f"an array of shape {value.shape}"
    text = " ".join((str(value) if isinstance(value, np.generic | np.ndarray | jax.Array) else repr(value)).split())
    return text if len(text) <= 80 else f"{text[:60]}... ({type(value).__name__})"


def kind_of(value: Any) -> str:
    """Return the type name of ``value``; for a class, how to make an instance."""
    if isinstance(value, type):
        return f"the class {value.__name__}: write {value.__name__}(...)"
    return type(value).__name__


# --- numbers --------------------------------------------------------------------------------------------------------


def as_numbers(name: str, value: Any, infinite: bool = False, **limits: float | int) -> Array:
    """Convert ``value`` to an array of real numbers.

    Raises ``InputError`` if that is not possible, or if a concrete entry is NaN, infinite (unless ``infinite``), or
    outside the ``limits``: ``above``, ``below`` (exclusive), ``least``, ``most`` (inclusive).
    """
    if type(value) is float and math.isfinite(value) and _within_limits(value, limits):
        return as_constant(value)  # systems make their constraints anew on each access
    array = as_array(name, value)
    if is_concrete(array):
        _check_values(name, np.asarray(array), limits, "numbers" if array.ndim else "a number", infinite)
    return array


def as_number(name: str, value: Any, unit: str = "", infinite: bool = False, **limits: float | int) -> Array:
    """Convert ``value`` to one real number, as ``as_numbers``. ``unit`` is the expected unit, for the message."""
    value = check_number(name, value, unit, infinite, **limits)
    return as_float(value) if type(value) in (int, float) else value


def check_number(name: str, value: Any, unit: str = "", infinite: bool = False, **limits: float | int) -> Any:
    """Check ``value`` as ``as_number`` does. A Python number is returned as it is, anything else as an array."""
    expected = f"one number{f' [{unit}]' if unit else ''}"
    if type(value) in (int, float):  # fast path: this runs in every step
        if limits and not _within_limits(value, limits):
            raise InputError(f"{name} must be {expected}{_limits_in_words(limits)}, got {value!r}")
        if type(value) is float and not infinite:
            check_finite(name, value)
        return value
    array = as_array(name, value, expected)
    if array.ndim:
        raise InputError(f"{name} must be {expected}{_limits_in_words(limits)}, got shape {array.shape}")
    if is_concrete(array):
        _check_values(name, np.asarray(array), limits, expected, infinite)
    return array


def as_array(name: str, value: Any, what: str = "numbers", verb: str = "be") -> Array:
    """Convert ``value`` to an array of real numbers in its own precision.

    Raises ``InputError`` with the message "``name`` must ``verb`` ``what``" if that is not possible.
    """
    try:
        first = value[0] if isinstance(value, list | tuple) and value else value
        if isinstance(first, str | bytes) or first is None or callable(value):
            raise TypeError  # NumPy would interpret a string as a type
        array = as_float(value)
    except (TypeError, ValueError, OverflowError, DeprecationWarning):
        raise InputError(f"{name} must {verb} {what}, got {_shape_mismatch(value) or repr_of(value)}") from None
    if array.dtype not in (jnp.float32, jnp.float64):
        raise InputError(f"{name} must {verb} {what}, real and in float32 or float64, got {array.dtype}")
    return array


def as_numpy(name: str, value: Any, what: str = "numbers") -> np.ndarray:
    """Convert ``value`` to a float64 NumPy array, in any JAX precision; used for measured data."""
    if type(value) not in (int, float):
        as_array(name, value, what)
    return np.asarray(value, float)


def check_finite(name: str, value: Array | np.ndarray | float | int) -> None:
    """Raise ``InputError`` if a concrete ``value`` has NaN or infinite entries."""
    if not is_traced(value) and not np.isfinite(value).all():
        x = np.asarray(value)
        at = tuple(int(i) for i in np.argwhere(~np.isfinite(x))[0])
        where = f"{name}{list(at)} = {x[at]}" if at else f"{x}"
        raise InputError(f"{name} must be finite, got {where}")


def check_definite(name: str, value: Array) -> None:
    """Raise ``InputError`` if a concrete ``value`` (a number, a diagonal or a matrix) is not positive definite."""
    if not is_concrete(value):
        return
    matrix = np.asarray(value)
    requirement = f"{name} must be positive: a number, one per row, or a symmetric positive definite matrix"
    if matrix.ndim > 2 or matrix.ndim == 2 and matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"{requirement}, got shape {matrix.shape}")
    if not np.all(np.isfinite(matrix)):
        raise InputError(f"{requirement}, got {repr_of(matrix)}")
    if matrix.ndim < 2:
        if not np.all(matrix > 0):
            raise InputError(f"{requirement}, got {repr_of(matrix)}")
        return
    diagonal = np.diagonal(matrix)
    if not np.all(diagonal > 0):
        raise InputError(f"{requirement}, got {float(diagonal.min()):.6g} on its diagonal")
    unit = 1 / np.sqrt(diagonal)  # scales the diagonal to 1: entries may have different units
    scaled = unit[:, None] * matrix * unit
    if np.max(np.abs(scaled - scaled.T), initial=0) > 1e-6:
        raise InputError(f"{requirement}, got one that is not symmetric")
    if np.linalg.eigvalsh(scaled).min(initial=np.inf) <= 0:
        least = float(np.linalg.eigvalsh(matrix).min())
        raise InputError(f"{requirement}, got one whose smallest eigenvalue is {least:.6g}")


def as_integer(name: str, value: Any, least: int = 0) -> int:
    """Convert ``value`` to an integer. Raises ``InputError`` if it is not an integer or is below ``least``."""
    try:
        if isinstance(value, bool):
            raise TypeError
        integer = operator.index(value)
    except TypeError:
        raise InputError(f"{name} must be a whole number from {least} on, got {repr_of(value)}") from None
    if integer < least:
        raise InputError(f"{name} must be a whole number from {least} on, got {integer}")
    return integer


def check_flag(name: str, value: Any) -> None:
    """Raise ``InputError`` unless ``value`` is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name} must be True or False, got {repr_of(value)}")


def check_word(name: str, value: Any, words: Iterable[str]) -> None:
    """Raise ``InputError`` unless ``value`` is one of ``words``. The message suggests a similar word."""
    words = tuple(words)
    if not isinstance(value, str) or value not in words:
        listed = " or ".join((", ".join(map(repr, words[:-1])), repr(words[-1])))
        suggestion = did_you_mean(value, words).rstrip(".") if isinstance(value, str) else ""
        raise InputError(f"{name} must be {listed}, got {repr_of(value)}{suggestion}")


def _check_values(name, x, limits, what, infinite):
    if limits and not np.all(_within_limits(x, limits)):
        raise InputError(f"{name} must be {what}{_limits_in_words(limits)}, got {repr_of(x if x.ndim else x[()])}")
    if not infinite:
        check_finite(name, x)


LIMITS = {"above": operator.gt, "least": operator.ge, "below": operator.lt, "most": operator.le}


def _within_limits(x, limits):
    """Whether x is not NaN and within the limits, elementwise."""
    valid = x == x
    for key, limit in limits.items():
        valid = valid & LIMITS[key](x, limit)
    return valid


def _limits_in_words(limits):
    words = {"above": "above {:g}", "least": "not below {:g}", "below": "below {:g}", "most": "not above {:g}"}
    parts = [words[key].format(limit) for key, limit in limits.items() if np.isfinite(limit)]
    finite = ["finite"] if float("inf") in limits.values() else []
    if finite and not parts:
        return " that is finite"
    return "".join(f" {part}" if i == 0 else f" and {part}" for i, part in enumerate(parts + finite))


def _shape_mismatch(value):
    """Describe the shapes of the items of a list if they differ, else return ""."""
    if not isinstance(value, list | tuple):
        return ""
    lengths = list(dict.fromkeys(size_of(part) for part in value))
    return f"parts of different shapes, {', '.join(map(str, lengths))}" if len(lengths) > 1 else ""


# --- times, steps and memory --------------------------------------------------------------------------------


def check_times(name: str, ts: Array | np.ndarray) -> None:
    """Raise ``InputError`` unless ``ts`` has shape (samples,), samples ≥ 2, and, if concrete, increases strictly."""
    if ts.ndim != 1 or ts.size < 2:
        raise InputError(f"{name} must be at least two times in one row, shape (samples,), got shape {ts.shape}")
    if not is_concrete(ts):
        return
    check_finite(name, ts)
    ts = np.asarray(ts)
    wrong = np.flatnonzero(np.diff(ts) <= 0)
    if wrong.size:
        i = int(wrong[0])
        twice = ", the same time twice" if ts[i] == ts[i + 1] else ""
        raise InputError(
            f"{name} must increase strictly, got {name}[{i}] = {ts[i]:g} and then {name}[{i + 1}] = "
            f"{ts[i + 1]:g}{twice}"
        )


def check_step(dt: Any, ts: Any, most: int = MAX_FIXED_STEPS, otherwise: str = "") -> None:
    """Raise ``InputError`` if concrete ``dt`` [s] is longer than the interval ``ts`` or needs more than ``most`` steps.

    ``otherwise`` is appended to the message as advice for too many steps.
    """
    step = check_number("dt", dt, "s", above=0)
    if ts is None or not is_concrete(step, ts):
        return
    length, span = float(step), float(ts[-1] - ts[0])
    if length > span:
        raise InputError(f"dt must be no longer than the whole time, {span:g} s, got {length:g}")
    if span / length > most:
        raise InputError(
            f"dt = {length:g} s would take {span / length:.3g} steps for {span:g} s, which is more than "
            f"{most:g}: take longer steps, or a shorter time{otherwise}"
        )


def check_memory(name: str, value: Any, count: int) -> None:
    """Raise ``InputError`` if ``count`` numbers, saved because of the argument ``name``, exceed the memory."""
    if count < 2**24:
        return
    needed, available = 8 * count / 2**30, memory() / 2**30
    if needed > available:
        raise InputError(
            f"{name} of shape {size_of(value)} needs memory for {count:.3g} numbers, {needed:.3g} GiB, but "
            f"{available:.3g} GiB are available: use fewer samples or starts, or compute them in parts"
        )


def size_of(value: Any) -> tuple[int, ...]:
    """Return the shape of ``value`` without converting it to an array; () for a scalar."""
    if isinstance(value, range):
        return (len(value),)
    if hasattr(value, "shape"):
        return tuple(value.shape)
    return (len(value), *size_of(value[0])) if isinstance(value, list | tuple) and value else ()


def memory() -> float:
    """Return the memory of the default device in bytes."""
    device = jax.devices()[0]
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return float(stats["bytes_limit"])
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # not available on every system
        return float("inf")


# --- files ----------------------------------------------------------------------------------------------------------


def as_path(value: Any) -> Path:
    """Convert ``value`` to a path. Raises ``InputError`` if it is not a path."""
    if not isinstance(value, str | os.PathLike) or not str(value):
        raise InputError(f"path must be the name of a file, got {repr_of(value)}")
    return Path(value)


# --- functions ------------------------------------------------------------------------------------------------------

CONCRETIZATION_ERRORS = (
    jax.errors.TracerArrayConversionError,
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)
"""Errors that JAX raises if a function needs the concrete value of a traced argument."""


def check_function(name: str, function: Any, arguments: str) -> None:
    """Raise ``InputError`` unless ``function`` is callable with ``arguments``, written as ``"t, q, v"``."""
    if not callable(function) or isinstance(function, type):
        raise InputError(f"{name} must be a function {name}({arguments}), got {repr_of(function)}")
    if _takes(function, arguments.count(", ") + 1):
        return
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # built-in functions may have no signature
    try:
        signature.bind(*arguments.split(", "))
    except TypeError:
        raise InputError(f"{name} must take ({arguments}), got a function of {signature}") from None


def _takes(function, count):
    """Whether a plain function takes ``count`` arguments; False if its signature has to be examined."""
    if type(function) is not FunctionType or hasattr(function, "__wrapped__"):
        return False
    code, optional = function.__code__, len(function.__defaults__ or ())
    return code.co_argcount - optional <= count <= code.co_argcount and not code.co_kwonlyargcount


def call(name: str, function: Callable, *arguments: Any) -> Any:
    """Call a user's function, perhaps under tracing. Raises ``InputError`` if it needs concrete values."""
    try:
        return function(*arguments)
    except CONCRETIZATION_ERRORS as error:
        raise InputError(
            f"{name} must be a function that JAX can trace: it uses the value of an argument, in NumPy or math "
            "(write jnp.sin for np.sin), in float(...), or in an if (write jnp.where)"
        ) from error
