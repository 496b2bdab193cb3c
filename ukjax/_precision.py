"""float64 is the reference; float32 is a choice. JAX starts in float32, so the choice is made aloud."""

import warnings
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike

Numbers = ArrayLike | Sequence[Any]
"""What a user may give for an array: an array, a number, or a list."""


def enable_float64() -> None:
    """Let JAX compute in double precision. Call it once, before the first array is made.

    The same as ``jax.config.update("jax_enable_x64", True)`` or ``JAX_ENABLE_X64=1`` in the environment.
    Importing ukjax never does this by itself: the switch is global and belongs to the program.
    """
    jax.config.update("jax_enable_x64", True)


def as_float(x: Numbers) -> Array:
    """``x`` as a floating-point array: its own precision if it has one, JAX's present default otherwise."""
    x = jnp.asarray(x)
    return x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(float)


def warn_if_single(dtype: jnp.dtype) -> None:
    """One warning, with the line that mends it, when float32 is used only because nobody chose."""
    if dtype == jnp.float32 and not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        warnings.warn(
            "computing in float32, JAX's default: call ukjax.enable_float64() before making any array for the "
            "reference precision, or pass rtol=... to say that float32 is meant",
            stacklevel=3,
        )
