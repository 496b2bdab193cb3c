"""Loops of JAX over arrays whose last axes are the members: their entries are neighbours in memory."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array


def members_last(function: Callable[..., tuple[Array, ...]]) -> Callable[..., tuple[Array, ...]]:
    """``function`` of arrays, written for any number of further axes at the end of all of them, which are 1 long where
    members have an array in common: a batch is one more. No derivative is taken of its results."""
    kernel = jax.custom_batching.custom_vmap(function)

    @kernel.def_vmap
    def _(size, batched, *arrays):
        last = [jnp.moveaxis(x, 0, -1) if own else x[..., None] for x, own in zip(arrays, batched, strict=True)]
        found = members_last(function)(*last)
        own = tuple(x.shape[-1] == size for x in found)
        return tuple(jnp.moveaxis(x, -1, 0) if own else x[..., 0] for x, own in zip(found, own, strict=True)), own

    return kernel
