"""Bad input, said once, in the user's words. Values are looked at only where they are known: never under ``jit``."""

import inspect
import operator
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._names import did_you_mean
from ._precision import as_float
from ._run.compile import is_tracing

MAX_FIXED_STEPS = 100_000_000
"""Steps of fixed length that are taken without being asked for by number: minutes to hours."""


def is_concrete(*trees: Any) -> bool:
    """Whether every array in ``trees`` has values now, rather than being traced by ``jit``, ``grad`` or ``vmap``."""
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(trees))


def is_eager(*trees: Any) -> bool:
    """Whether operations on the arrays in ``trees`` are executed now and give values.

    Within ``jit``, ``scan`` or ``while_loop`` JAX traces every operation, those on arrays from outside, too: an array
    made there is a tracer. ``vmap`` and derivatives trace only what depends on their own arguments.
    """
    return is_concrete(*trees) and not is_tracing()


def without_derivatives(tree: Any) -> Any:
    """``tree`` of values that have no derivatives: within ``jax.grad`` they are known."""
    if is_concrete(tree):
        return tree
    return jax.tree.map(lambda x: _as_jax(jax.lax.stop_gradient(x)) if isinstance(x, jax.core.Tracer) else x, tree)


def _as_jax(x):
    """An array, too, where JAX differentiates by a number of Python's."""
    return x if isinstance(x, jax.Array) else jnp.asarray(x)


# --- what was given, in words ---------------------------------------------------------------------------------------


def repr_of(value: Any) -> str:
    """``value`` as an error shows it: on one line, and not all of something long."""
    if isinstance(value, type):
        return kind_of(value)
    if isinstance(value, jax.core.Tracer):
        return f"an array of shape {value.shape}"
    if not is_concrete(value):
        return f"{type(value).__name__} of arrays"
    if isinstance(value, np.ndarray | jax.Array) and value.ndim and value.size > 6:
        return f"an array of shape {value.shape}"
    shown = " ".join((str(value) if isinstance(value, np.generic | np.ndarray | jax.Array) else repr(value)).split())
    return shown if len(shown) <= 80 else f"{shown[:60]}... ({type(value).__name__})"


def kind_of(value: Any) -> str:
    """What sort of thing ``value`` is; of a class, how to make one."""
    if isinstance(value, type):
        return f"the class {value.__name__}: write {value.__name__}(...)"
    return type(value).__name__


# --- numbers --------------------------------------------------------------------------------------------------------


def as_numbers(name: str, value: Any, **limits: float | int) -> Array:
    """``value`` as an array of real numbers, or ``ValueError`` for what has none, and for those that are NaN or outside
    the ``limits``: ``above`` and ``below`` exclude themselves, ``least`` and ``most`` do not."""
    array = as_array(name, value)
    if limits and is_concrete(array):
        _check_limits(name, np.asarray(array), limits, "numbers" if array.ndim else "a number")
    return array


def as_number(name: str, value: Any, unit: str = "", **limits: float | int) -> Array:
    """``value`` as one number: see ``as_numbers``. ``unit`` is the one it is wanted in."""
    what = f"one number{f' [{unit}]' if unit else ''}"
    if type(value) in (int, float):  # at the cost of a comparison, since steps are short
        if not _obeys(value, limits):
            raise ValueError(f"{name} must be {what}{_within(limits)}, got {value!r}")
        return as_float(value)
    array = as_array(name, value, what)
    if array.ndim:
        raise ValueError(f"{name} must be {what}{_within(limits)}, got shape {array.shape}")
    if is_concrete(array):
        _check_limits(name, np.asarray(array), limits, what)
    return array


def as_array(name: str, value: Any, what: str = "numbers", verb: str = "be") -> Array:
    """``value`` as an array of real numbers, in its own precision, or ``ValueError``: ``name`` must be, or ``verb``,
    ``what``."""
    try:
        first = value[0] if isinstance(value, list | tuple) and value else value
        if isinstance(first, str | bytes) or first is None or callable(value):
            raise TypeError  # NumPy would try to read words as types
        array = as_float(value)
    except (TypeError, ValueError, OverflowError, DeprecationWarning):
        raise ValueError(f"{name} must {verb} {what}, got {_parts(value) or repr_of(value)}") from None
    if array.dtype not in (jnp.float32, jnp.float64):
        raise ValueError(f"{name} must {verb} {what}, real and in float32 or float64, got {array.dtype}")
    return array


def as_numpy(name: str, value: Any, what: str = "numbers") -> np.ndarray:
    """The same as an array of NumPy's in double precision, whatever JAX's is: for what was measured."""
    as_array(name, value, what)
    return np.asarray(value, float)


def check_finite(name: str, value: Array | np.ndarray) -> None:
    """Nothing in ``value`` is NaN or infinite, or ``ValueError``, where that is known."""
    if is_concrete(value) and not np.all(np.isfinite(value)):
        x = np.asarray(value)
        at = tuple(int(i) for i in np.argwhere(~np.isfinite(x))[0])
        where = f"{name}{list(at)} = {x[at]}" if at else f"{x}"
        raise ValueError(f"{name} must be finite, got {where}")


def check_definite(name: str, value: Array) -> None:
    """A number, a diagonal or a square matrix is positive definite, or ``ValueError``, where that is known."""
    if not is_concrete(value):
        return
    matrix = np.asarray(value)
    wanted = f"{name} must be positive: a number, one per row, or a symmetric positive definite matrix"
    if matrix.ndim > 2 or matrix.ndim == 2 and matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{wanted}, got shape {matrix.shape}")
    if not np.all(np.isfinite(matrix)):
        raise ValueError(f"{wanted}, got {repr_of(matrix)}")
    if matrix.ndim < 2:
        if not np.all(matrix > 0):
            raise ValueError(f"{wanted}, got {repr_of(matrix)}")
        return
    diagonal = np.diagonal(matrix)
    if not np.all(diagonal > 0):
        raise ValueError(f"{wanted}, got {float(diagonal.min()):.6g} on its diagonal")
    unit = 1 / np.sqrt(diagonal)  # in which all of these are 1: entries may have different units
    scaled = unit[:, None] * matrix * unit
    if np.max(np.abs(scaled - scaled.T), initial=0) > 1e-6:
        raise ValueError(f"{wanted}, got one that is not symmetric")
    if np.linalg.eigvalsh(scaled).min(initial=np.inf) <= 0:
        least = float(np.linalg.eigvalsh(matrix).min())
        raise ValueError(f"{wanted}, got one whose smallest eigenvalue is {least:.6g}")


def as_integer(name: str, value: Any, least: int = 0) -> int:
    """``value`` as a whole number from ``least`` on, or ``ValueError``."""
    try:
        if isinstance(value, bool):
            raise TypeError
        found = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number from {least} on, got {repr_of(value)}") from None
    if found < least:
        raise ValueError(f"{name} must be a whole number from {least} on, got {found}")
    return found


def check_flag(name: str, value: Any) -> None:
    """``value`` is True or False, or ``ValueError``."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {repr_of(value)}")


def check_word(name: str, value: Any, words: Iterable[str]) -> None:
    """``value`` is one of the ``words``, or ``ValueError`` with the one that may have been meant."""
    words = tuple(words)
    if not isinstance(value, str) or value not in words:
        listed = " or ".join((", ".join(map(repr, words[:-1])), repr(words[-1])))
        meant = did_you_mean(value, words).rstrip(".") if isinstance(value, str) else ""
        raise ValueError(f"{name} must be {listed}, got {repr_of(value)}{meant}")


def _check_limits(name, x, limits, what):
    if not np.all(_obeys(x, limits)):
        raise ValueError(f"{name} must be {what}{_within(limits)}, got {repr_of(x if x.ndim else x[()])}")


LIMITS = {"above": operator.gt, "least": operator.ge, "below": operator.lt, "most": operator.le}


def _obeys(x, limits):
    """Whether x, a number or an array of them, is none of NaN and within the limits."""
    good = x == x
    for key, limit in limits.items():
        good = good & LIMITS[key](x, limit)
    return good


def _within(limits):
    words = {"above": "above {:g}", "least": "not below {:g}", "below": "below {:g}", "most": "not above {:g}"}
    said = [words[key].format(limit) for key, limit in limits.items() if np.isfinite(limit)]
    finite = ["finite"] if float("inf") in limits.values() else []
    return "".join(f" {part}" if i == 0 else f" and {part}" for i, part in enumerate(said + finite))


def _parts(value):
    """What is wrong with a list that makes no array, if its parts are arrays themselves."""
    if not isinstance(value, list | tuple):
        return ""
    lengths = list(dict.fromkeys(size_of(part) for part in value))
    return f"parts of different shapes, {', '.join(map(str, lengths))}" if len(lengths) > 1 else ""


# --- times, and what they would take --------------------------------------------------------------------------------


def check_times(name: str, ts: Array | np.ndarray) -> None:
    """At least two times that increase, or ``ValueError``: their shape always, their values where they are known."""
    if ts.ndim != 1 or ts.size < 2:
        raise ValueError(f"{name} must be at least two times in one row, shape (samples,), got shape {ts.shape}")
    if not is_concrete(ts):
        return
    check_finite(name, ts)
    ts = np.asarray(ts)
    wrong = np.flatnonzero(np.diff(ts) <= 0)
    if wrong.size:
        i = int(wrong[0])
        twice = ", the same time twice" if ts[i] == ts[i + 1] else ""
        raise ValueError(
            f"{name} must increase strictly, got {name}[{i}] = {ts[i]:g} and then {name}[{i + 1}] = "
            f"{ts[i + 1]:g}{twice}"
        )


def check_step(dt: Any, ts: Any, most: int = MAX_FIXED_STEPS, otherwise: str = "") -> None:
    """Fixed steps ``dt`` [s] that lead through the times ``ts`` in no more steps than ``most``, or ``ValueError``,
    where both are known. ``otherwise`` is what else can be done about too many."""
    step = as_number("dt", dt, "s", above=0)
    if ts is None or not is_concrete(step, ts):
        return
    length, span = float(step), float(ts[-1] - ts[0])
    if length > span:
        raise ValueError(f"dt must be no longer than the whole time, {span:g} s, got {length:g}")
    if span / length > most:
        raise ValueError(
            f"dt = {length:g} s would take {span / length:.3g} steps for {span:g} s, which is more than "
            f"{most:g}: take longer steps, or less time{otherwise}"
        )


def check_memory(name: str, value: Any, count: int) -> None:
    """``count`` numbers, what is saved because of the argument ``name``, fit into this machine, or ``ValueError``."""
    if count < 2**24:
        return
    needed, there = 8 * count / 2**30, memory() / 2**30
    if needed > there:
        raise ValueError(
            f"{name} of shape {size_of(value)} asks for {count:.3g} numbers to be kept, {needed:.3g} GiB, but "
            f"there are {there:.3g} GiB of memory: ask for fewer samples or starts, or do them in parts"
        )


def size_of(value: Any) -> tuple[int, ...]:
    """The shape of ``value`` without making an array of what can be large; () for what is none."""
    if isinstance(value, range):
        return (len(value),)
    if hasattr(value, "shape"):
        return tuple(value.shape)
    return (len(value), *size_of(value[0])) if isinstance(value, list | tuple) and value else ()


def memory() -> float:
    """Bytes of memory of the device that computes."""
    device = jax.devices()[0]
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return float(stats["bytes_limit"])
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # not on every system
        return float("inf")


# --- files ----------------------------------------------------------------------------------------------------------


def as_path(value: Any) -> Path:
    """``value`` as the path of a file, or ``ValueError``."""
    if not isinstance(value, str | os.PathLike) or not str(value):
        raise ValueError(f"path must be the name of a file, got {repr_of(value)}")
    return Path(value)


# --- functions ------------------------------------------------------------------------------------------------------

VALUES_WANTED = (
    jax.errors.TracerArrayConversionError,
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)
"""What JAX raises in a function that asks for the value of a traced argument."""


def check_function(name: str, function: Any, arguments: str) -> None:
    """``function`` must be callable with the given arguments, written as in the documentation: ``"t, q, v"``."""
    if not callable(function) or isinstance(function, type):
        raise ValueError(f"{name} must be a function {name}({arguments}), got {repr_of(function)}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # built-in functions may have none to look at
    try:
        signature.bind(*arguments.split(", "))
    except TypeError:
        raise ValueError(f"{name} must take ({arguments}), got a function of {signature}") from None


def call(name: str, function: Callable, *arguments: Any) -> Any:
    """What a user's function gives while it is traced. One that wants numbers there and then gets a ``ValueError``."""
    try:
        return function(*arguments)
    except VALUES_WANTED as error:
        raise ValueError(
            f"{name} must be made of jax.numpy and work for any values: it asks for the value of an argument, by "
            "NumPy or math (write jnp.sin for np.sin), float(...), or an if (write jnp.where)"
        ) from error
