"""Bad input, said once, in the user's words. Values are looked at only where they are known: never under ``jit``."""

import inspect
import operator
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._names import did_you_mean
from ._precision import as_float

MOST_EVEN_STEPS = 100_000_000
"""Steps of fixed length that are taken without being asked for by number: minutes to hours."""


def known(*trees: Any) -> bool:
    """Whether every array in ``trees`` has values now, rather than being traced by ``jit``, ``grad`` or ``vmap``."""
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(trees))


# --- what was given, in words ---------------------------------------------------------------------------------------


def seen(value: Any) -> str:
    """``value`` as an error shows it: on one line, and not all of something long."""
    if isinstance(value, type):
        return kind_of(value)
    if isinstance(value, jax.core.Tracer):
        return f"an array of shape {value.shape}"
    if not known(value):
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


def numbers(name: str, value: Any, **limits: float | int) -> Array:
    """``value`` as an array of real numbers, or ``ValueError`` for what has none, and for those that are NaN or outside
    the ``limits``: ``above`` and ``below`` exclude themselves, ``least`` and ``most`` do not."""
    array = as_array(name, value)
    if limits and known(array):
        _check_limits(name, np.asarray(array), limits, "numbers" if array.ndim else "a number")
    return array


def number(name: str, value: Any, unit: str = "", **limits: float | int) -> Array:
    """``value`` as one number: see ``numbers``. ``unit`` is the one it is wanted in."""
    what = f"one number{f' [{unit}]' if unit else ''}"
    if type(value) in (int, float):  # at the cost of a comparison, since steps are short
        if not _obeys(value, limits):
            raise ValueError(f"{name} must be {what}{_within(limits)}, got {value!r}")
        return as_float(value)
    array = as_array(name, value, what)
    if array.ndim:
        raise ValueError(f"{name} must be {what}{_within(limits)}, got shape {array.shape}")
    if known(array):
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
        raise ValueError(f"{name} must {verb} {what}, got {_parts(value) or seen(value)}") from None
    if array.dtype not in (jnp.float32, jnp.float64):
        raise ValueError(f"{name} must {verb} {what}, real and in float32 or float64, got {array.dtype}")
    return array


def as_numpy(name: str, value: Any, what: str = "numbers") -> np.ndarray:
    """The same as an array of NumPy's in double precision, whatever JAX's is: for what was measured."""
    as_array(name, value, what)
    return np.asarray(value, float)


def check_finite(name: str, value: Array | np.ndarray) -> None:
    """Nothing in ``value`` is NaN or infinite, or ``ValueError``, where that is known."""
    if known(value) and not np.all(np.isfinite(value)):
        x = np.asarray(value)
        at = tuple(int(i) for i in np.argwhere(~np.isfinite(x))[0])
        where = f"{name}{list(at)} = {x[at]}" if at else f"{x}"
        raise ValueError(f"{name} must be finite, got {where}")


def check_definite(name: str, value: Array) -> None:
    """A number, a diagonal or a square matrix is positive definite, or ``ValueError``, where that is known."""
    if not known(value):
        return
    matrix = np.asarray(value)
    wanted = f"{name} must be positive: a number, one per row, or a symmetric positive definite matrix"
    if matrix.ndim > 2 or matrix.ndim == 2 and matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{wanted}, got shape {matrix.shape}")
    if not np.all(np.isfinite(matrix)):
        raise ValueError(f"{wanted}, got {seen(matrix)}")
    if matrix.ndim < 2:
        if not np.all(matrix > 0):
            raise ValueError(f"{wanted}, got {seen(matrix)}")
        return
    if np.max(np.abs(matrix - matrix.T), initial=0) > 1e-6 * np.max(np.abs(matrix), initial=0):
        raise ValueError(f"{wanted}, got one that is not symmetric")
    least = float(np.linalg.eigvalsh(matrix).min(initial=np.inf))
    if least <= 0:
        raise ValueError(f"{wanted}, got one whose smallest eigenvalue is {least:.6g}")


def whole(name: str, value: Any, least: int = 0) -> int:
    """``value`` as a whole number from ``least`` on, or ``ValueError``."""
    try:
        if isinstance(value, bool):
            raise TypeError
        found = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number from {least} on, got {seen(value)}") from None
    if found < least:
        raise ValueError(f"{name} must be a whole number from {least} on, got {found}")
    return found


def check_flag(name: str, value: Any) -> None:
    """``value`` is True or False, or ``ValueError``."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {seen(value)}")


def check_word(name: str, value: Any, words: Iterable[str]) -> None:
    """``value`` is one of the ``words``, or ``ValueError`` with the one that may have been meant."""
    words = tuple(words)
    if not isinstance(value, str) or value not in words:
        listed = " or ".join((", ".join(map(repr, words[:-1])), repr(words[-1])))
        meant = did_you_mean(value, words).rstrip(".") if isinstance(value, str) else ""
        raise ValueError(f"{name} must be {listed}, got {seen(value)}{meant}")


def _check_limits(name, x, limits, what):
    if not np.all(_obeys(x, limits)):
        raise ValueError(f"{name} must be {what}{_within(limits)}, got {seen(x if x.ndim else x[()])}")


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
    if not known(ts):
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


def check_step(dt: Any, ts: Any, most: int = MOST_EVEN_STEPS, otherwise: str = "") -> None:
    """Fixed steps ``dt`` [s] that lead through the times ``ts`` in no more steps than ``most``, or ``ValueError``,
    where both are known. ``otherwise`` is what else can be done about too many."""
    step = number("dt", dt, "s", above=0)
    if not known(step, ts):
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
        raise ValueError(f"path must be the name of a file, got {seen(value)}")
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
        raise ValueError(f"{name} must be a function {name}({arguments}), got {seen(function)}")
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


# --- what a model says ----------------------------------------------------------------------------------------------


def check_terms(terms: Any, where: str = "", coordinates: Sequence[str] = ()) -> None:
    """M symmetric and positive semidefinite, and everything in ``Terms`` finite, or ``ValueError``. ``coordinates`` are
    their names, if they have any."""
    M = np.asarray(terms.M)
    for name in ("M", "Q", "A", "b", "c"):
        value = getattr(terms, name)
        if value is not None and not np.all(np.isfinite(value)):
            at = tuple(int(i) for i in np.argwhere(~np.isfinite(value))[0])
            raise ValueError(
                f"{name} is not finite{where}: {name}{list(at)} = {np.asarray(value)[at]}. Look for a division by "
                "zero or a root of a negative number in the function that makes it"
            )
    complaint = complaint_of_mass(M, where, coordinates)
    if complaint:
        raise ValueError(complaint)


def symmetric(M: Array) -> Array:
    """(M + Mᵀ) / 2, and NaN where that would hide that M is no mass matrix: ``check_terms``, for where values are not
    known. Of the signs only those on the diagonal are looked at: a factorisation sees the others."""
    each = np.eye(len(M), dtype=M.dtype)  # off the diagonal zeros remain known
    own, turned = each * M, M.T
    limit = 2 * jnp.finfo(M.dtype).eps ** 0.5 * jnp.max(own)  # no entry of a mass matrix is larger
    spoilt = jax.lax.select(jnp.any(M - turned - own > limit), *np.array([np.nan, 0], M.dtype))
    return (M + turned) / 2 + spoilt * each


def complaint_of_mass(M: np.ndarray, where: str = "", coordinates: Sequence[str] = ()) -> str:
    """Why M is no mass matrix, empty if it is one, or not finite."""
    if not M.size or not np.all(np.isfinite(M)):
        return ""
    eps, largest = float(np.finfo(M.dtype).eps), max(float(np.abs(M).max()), 1e-300)
    asymmetry = np.abs(M - M.T)
    if asymmetry.max() > eps**0.5 * largest:
        i, j = np.unravel_index(int(asymmetry.argmax()), M.shape)
        return (
            f"M must be symmetric{where}: M[{i}, {j}] = {M[i, j]:.6g} but M[{j}, {i}] = {M[j, i]:.6g}. "
            "A mass matrix is the Hessian of the kinetic energy in v, so both must be the same"
        )
    mass = np.diagonal(M)
    i = int(mass.argmin())
    if mass[i] < -len(M) * eps * largest:
        return (
            f"M must be positive semidefinite{where}: M[{i}, {i}] = {mass[i]:.6g}, the mass of "
            f"{_coordinate(i, coordinates)}, is negative. Check the signs of the masses and inertias"
        )
    unit = 1 / np.sqrt(np.where(mass > eps * largest, mass, largest))  # so that units do not decide
    size, axes = np.linalg.eigh(unit[:, None] * (M + M.T) * unit / 2)
    if size[0] < -(eps**0.5):
        return (
            f"M must be positive semidefinite{where}: its smallest eigenvalue is {np.linalg.eigvalsh(M)[0]:.6g}, most "
            f"of it along {_coordinate(int(np.abs(axes[:, 0]).argmax()), coordinates)}. Check the signs of the masses "
            "and inertias"
        )
    return ""


def _coordinate(i, names):
    return f"coordinate {names[i]!r}" if names else f"q[{i}]"


def check_unique(
    terms: Any, acceleration: np.ndarray, method: str, where: str = "", coordinates: Sequence[str] = ()
) -> None:
    """A finite acceleration, or the reason why there is none."""
    if np.all(np.isfinite(acceleration)):
        return
    M, A = np.asarray(terms.M), np.asarray(terms.A)
    n, m = M.shape[0], A.shape[0]
    complaint = complaint_of_freedom(M, A, where, coordinates)
    if complaint:
        raise ValueError(complaint)
    if method == "Orthogonal":  # it takes redundant rows and semidefinite M: only the numbers themselves are left
        sizes = np.abs(np.concatenate([np.asarray(x).ravel() for x in (terms.M, terms.Q, terms.A, terms.b)]))
        sizes = sizes[sizes > 0]
        raise ValueError(
            f"the acceleration is not finite{where}, although the terms are: their entries are from {sizes.min():.3g} "
            f"to {sizes.max():.3g} in size, too far apart for {terms.M.dtype}. Choose other units"
        )
    _, A = _in_units(M, A)
    independent = int(np.linalg.matrix_rank(A))
    if independent < m:
        raise ValueError(
            f"method {method!r} needs independent rows{where}: A has {m} rows of rank {independent}. "
            "Use the default method 'orthogonal', which takes redundant rows"
        )
    least = float(np.linalg.svd(A, compute_uv=False).min(initial=1))
    if least < (100 * (n + m) * np.finfo(A.dtype).eps) ** 0.5:
        raise ValueError(
            f"method {method!r} needs rows that are clearly independent{where}: those of A, scaled to unit length, "
            f"have the smallest singular value {least:.2g}. Use the default method 'orthogonal', which needs less"
        )
    raise ValueError(
        f"method {method!r} found no finite acceleration{where}: it needs a positive definite M. "
        "Use the default method 'orthogonal', which takes a semidefinite one"
    )


def complaint_of_freedom(M: np.ndarray, A: np.ndarray, where: str = "", coordinates: Sequence[str] = ()) -> str:
    """What neither mass nor rows say, empty if there is nothing, or where M and A are not finite."""
    if not np.all(np.isfinite(M)) or not np.all(np.isfinite(A)):
        return ""
    n, together = len(M), np.concatenate(_in_units(M, A))
    rank = int(np.linalg.matrix_rank(together))
    if rank == n:
        return ""
    free = int(np.abs(np.linalg.svd(together)[2][-1]).argmax())
    return (
        f"the motion is not unique{where}: rank [M; A] = {rank}, but there are n = {n} coordinates. A direction "
        f"without mass, here that of {_coordinate(free, coordinates)}, must be fixed by a constraint: add the missing "
        "row of A, or give it a mass"
    )


def _in_units(M, A):
    """M and A in coordinates of unit mass, with rows of unit length: units do not decide."""
    mass = np.diagonal(M)
    coordinate = 1 / np.sqrt(np.where(mass > 0, mass, max(float(np.abs(mass).max(initial=0)), 1e-300)))
    A = A * coordinate
    return coordinate[:, None] * M * coordinate, A / np.maximum(np.linalg.norm(A, axis=1, keepdims=True), 1e-300)
