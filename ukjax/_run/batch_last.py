"""Batching along the last axis, so that the members of a batch are neighbours in memory."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array


def members_last(function: Callable[..., tuple[Array, ...]]) -> Callable[..., tuple[Array, ...]]:
    """Decorate ``function`` so that ``vmap`` appends the batch axis to its arguments as the last axis.

    ``function`` must accept any number of further axes at the end of its arguments; they have length 1 if an argument
    is shared by all members. Results cannot be differentiated.
    """
    kernel = jax.custom_batching.custom_vmap(function)

    @kernel.def_vmap
    def _(size, batched, *arrays):
        last = [
            jnp.moveaxis(x, 0, -1) if is_batched else x[..., None]
            for x, is_batched in zip(arrays, batched, strict=True)
        ]
        results = members_last(function)(*last)
        is_batched = tuple(x.shape[-1] == size for x in results)
        return tuple(
            jnp.moveaxis(x, -1, 0) if is_batched else x[..., 0]
            for x, is_batched in zip(results, is_batched, strict=True)
        ), is_batched

    return kernel
