"""A choice of which one case is rare."""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array, Bool


def rarely(pred: Bool[Array, ""], rare: Callable[..., Any], usual: Callable[..., Any], *operands: Any) -> Any:
    """``lax.cond(pred, rare, usual, *operands)``, where ``pred`` holds for few members of a batch, or none.

    A choice written out is made for all members at once: each does the ``usual`` case, and only if ``pred`` holds for
    one of them is all done again with both. What is usual is no property of a ``lax.cond``, so its false case is taken
    for it (the first of its branches): this is the name of that order. Results are the same either way.
    """
    return jax.lax.cond(pred, rare, usual, *operands)
