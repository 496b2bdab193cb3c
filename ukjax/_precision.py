"""float64 is the reference; float32 is a choice. JAX starts in float32, so the choice is made aloud."""

import numbers
import warnings
from collections.abc import Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

Numbers = ArrayLike | Sequence[Any]
"""What a user may give for an array: an array, a number, or a list."""


def enable_float64() -> None:
    """Let JAX compute in double precision. Call it once, before the first array is made.

    The same as ``jax.config.update("jax_enable_x64", True)`` or ``JAX_ENABLE_X64=1`` in the environment.
    Importing ukjax never does this by itself: the switch is global and belongs to the program.
    """
    jax.config.update("jax_enable_x64", True)


Tree = TypeVar("Tree")


def as_float(x: Any, beside: Array | None = None, name: str = "what is given") -> Array:
    """``x`` as a floating-point array: its own precision if it has one, JAX's present default otherwise; and at least
    that of what it stands ``beside``. Raises ``ValueError`` for what is no array of numbers."""
    x = _as_array(name, x)
    if beside is not None:
        dtype = x.dtype if jnp.iscomplexobj(x) or _is(np.float64, x) else beside.dtype
        return x if x.dtype == dtype else x.astype(dtype)
    return x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(float)


def as_real(name: str, x: Any, scalar: bool = False) -> Array:
    """What a user gave as ``name``, as a float32 or float64 array, or ``ValueError``."""
    array = as_float(x, name=name)
    if array.dtype not in (jnp.float32, jnp.float64):
        raise ValueError(f"{name} must be real numbers in float32 or float64, got {array.dtype}")
    if scalar and array.ndim:
        raise ValueError(f"{name} must be one number, got shape {array.shape}")
    return array


def _as_array(name, x):
    if isinstance(x, jax.Array):
        return _from_objects(name, x) if jnp.issubdtype(x.dtype, jax.dtypes.extended) else x
    if np.ma.is_masked(x):
        raise ValueError(f"{name} has masked entries: fill them, or leave them out")
    try:
        return jnp.asarray(x)
    except (TypeError, ValueError, OverflowError):
        return _from_objects(name, x)


def _from_objects(name, x):
    """An array of Python's numbers, as fractions are, or of more digits than JAX has; or ``ValueError``."""
    try:
        objects = np.asarray(x)
        is_real = objects.dtype.kind == "f" or all(isinstance(each, numbers.Real) for each in objects.flat)
    except (TypeError, ValueError):
        is_real = False
    if not is_real:
        shown = repr(x)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        raise ValueError(f"{name} must be a number, an array or a list of numbers, got {type(x).__name__} {shown}")
    return jnp.asarray(np.asarray(x, float))


def widest(*trees: Any) -> np.dtype:
    """The precision of the widest floating-point array in ``trees``, float32 at least. Numbers of Python's, and arrays
    that JAX makes of them, have none of their own, and by themselves JAX's present default."""
    leaves = jax.tree.leaves(trees)
    single = any(_is(np.float32, leaf) for leaf in leaves) and not any(_is(np.float64, leaf) for leaf in leaves)
    return np.dtype(np.float32 if single or not is_double_allowed() else np.float64)


def is_double_allowed() -> bool:
    """Whether JAX computes in double precision where it is asked to."""
    return jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]


def _is(dtype, x):
    """Whether x has this precision of its own."""
    return getattr(x, "dtype", None) == dtype and not getattr(getattr(x, "aval", x), "weak_type", False)


def in_precision(tree: Tree, dtype: np.dtype) -> Tree:
    """``tree`` with every floating-point array in one precision."""
    other = lambda x: eqx.is_inexact_array(x) and jnp.issubdtype(x.dtype, jnp.floating) and x.dtype != dtype
    if not any(map(other, jax.tree.leaves(tree))):
        return tree
    # By NumPy where values are known: JAX would compile it for every shape.
    change = lambda x: x.astype(dtype) if isinstance(x, jax.core.Tracer) else jax.device_put(np.asarray(x, dtype))
    return jax.tree.map(lambda x: change(x) if other(x) else x, tree)


def warn_if_single(dtype: jnp.dtype) -> None:
    """One warning, with the line that mends it, when float32 is used only because nobody chose."""
    if dtype == jnp.float32 and not is_double_allowed():
        warnings.warn(
            "computing in float32, JAX's default: call ukjax.enable_float64() before making any array for the "
            "reference precision, or pass rtol=... to say that float32 is meant",
            stacklevel=3,
        )
