"""Floating-point precision: float64 is recommended, float32 needs an explicit choice, because it is JAX's default."""

import functools
import math
import numbers
import warnings
from collections.abc import Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

from ._errors import InputError
from ._flatten import Flat, ask_all
from ._jaxpr.tracing import is_traced, is_tracing

Numbers = ArrayLike | Sequence[Any]
"""Type of array arguments: an array, a number, or a list."""


def enable_float64() -> None:
    """Enable double precision in JAX. Call it once, before the first array is made.

    It is equivalent to ``jax.config.update("jax_enable_x64", True)`` or ``JAX_ENABLE_X64=1`` in the environment.
    Importing ukjax does not change this global setting.
    """
    jax.config.update("jax_enable_x64", True)


Tree = TypeVar("Tree")


def as_float(x: Any, beside: Array | None = None, name: str = "what is given") -> Array:
    """Convert ``x`` to a floating-point array. Raises ``InputError`` if it is not an array of numbers.

    The precision is that of ``x``, or JAX's default if it has none. If ``beside`` is given, the precision is that of
    ``beside``, or float64 if ``x`` has it.
    """
    x = _as_array(name, x)
    if beside is not None:
        dtype = x.dtype if jnp.iscomplexobj(x) or _is(np.float64, x) else beside.dtype
        return x if x.dtype == dtype else x.astype(dtype)
    return x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(float)


def as_constant(x: float) -> Array:
    """Return ``as_float(x)``. Arrays of recent numbers are reused, since JAX is slow to make one."""
    if is_tracing():
        return as_float(x)
    default_device = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    return _constant(x, math.copysign(1.0, x), is_double_allowed(), default_device)


@functools.lru_cache(maxsize=256)
def _constant(x, sign, double, device):
    return as_float(x)


def as_real(name: str, x: Any, scalar: bool = False) -> Array:
    """Convert the argument ``name`` to a float32 or float64 array. Raises ``InputError`` if that is not possible."""
    array = as_float(x, name=name)
    if array.dtype not in (jnp.float32, jnp.float64):
        raise InputError(f"{name} must be real numbers in float32 or float64, got {array.dtype}")
    if scalar and array.ndim:
        raise InputError(f"{name} must be one number, got shape {array.shape}")
    return array


def _as_array(name, x):
    if isinstance(x, jax.Array):
        return _from_objects(name, x) if jnp.issubdtype(x.dtype, jax.dtypes.extended) else x
    if np.ma.is_masked(x):
        raise InputError(f"{name} has masked entries: fill them, or leave them out")
    try:
        return jnp.asarray(x)
    except (TypeError, ValueError, OverflowError):
        return _from_objects(name, x)


def _from_objects(name, x):
    """Convert Python numbers such as fractions, or floats of higher precision. Raises ``InputError`` for others."""
    try:
        objects = np.asarray(x)
        is_real = objects.dtype.kind == "f" or all(isinstance(number, numbers.Real) for number in objects.flat)
    except (TypeError, ValueError):
        is_real = False
    if not is_real:
        text = repr(x)
        text = text if len(text) <= 60 else text[:57] + "..."
        raise InputError(f"{name} must be a number, an array or a list of numbers, got {type(x).__name__} {text}")
    return jnp.asarray(np.asarray(x, float))


def widest(*trees: Any) -> np.dtype:
    """Return the precision of the widest floating-point array in ``trees``.

    Python numbers and weakly typed arrays are ignored. Without other arrays, the result is JAX's default.
    """
    types = set().union(*ask_all(_strong_types, *trees))
    single = np.dtype(np.float32) in types and np.dtype(np.float64) not in types
    return np.dtype(np.float32 if single or not is_double_allowed() else np.float64)


def _strong_types(flat: Flat) -> set[np.dtype]:
    """Types of all arrays that are not weakly typed."""
    arrays = (x for x in flat.leaves if hasattr(x, "dtype"))
    return {x.dtype for x in arrays if not _is_weak(x)}


def _real_types(flat: Flat) -> set[tuple[np.dtype, bool]]:
    """Types of all arrays of real numbers, and whether they are weak."""
    return {(x.dtype, _is_weak(x)) for x in flat.leaves if _is_real(x)}


def _is_real(x):
    return eqx.is_inexact_array(x) and jnp.issubdtype(x.dtype, jnp.floating)


def _is_weak(x):
    return getattr(getattr(x, "aval", x), "weak_type", False)


def is_double_allowed() -> bool:
    """Whether double precision is enabled in JAX."""
    return jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]


def _is(dtype, x):
    """Whether x has this dtype and is not weakly typed."""
    return getattr(x, "dtype", None) == dtype and not _is_weak(x)


def in_precision(tree: Tree, dtype: np.dtype) -> Tree:
    """Convert all floating-point arrays in ``tree`` to ``dtype``, also weakly typed ones.

    A weakly typed array, from a Python number, would need separate programs.
    """
    wanted = np.dtype(dtype), False
    if not set().union(*ask_all(_real_types, tree)) - {wanted}:
        return tree
    leaves, structure = jax.tree.flatten(tree)
    changed = [i for i, x in enumerate(leaves) if _is_real(x) and (x.dtype, _is_weak(x)) != wanted]
    concrete = [i for i in changed if not is_traced(leaves[i])]
    # Concrete arrays are converted by NumPy: JAX would compile a program for each shape.
    arrays = jax.device_put([np.asarray(leaves[i], dtype) for i in concrete])
    converted = dict(zip(concrete, arrays, strict=True))
    for i in changed:
        leaves[i] = converted[i] if i in converted else jax.lax.convert_element_type(leaves[i], dtype)
    return structure.unflatten(leaves)


def warn_if_single(dtype: jnp.dtype) -> None:
    """Warn if float32 is used only because it is JAX's default. The message says how to change it."""
    if dtype == jnp.float32 and not is_double_allowed():
        warnings.warn(
            "computing in float32, JAX's default: for float64, the reference precision, call ukjax.enable_float64() "
            "before any array is created; if float32 is intended, pass rtol=...",
            stacklevel=3,
        )
