"""A choice of which one case is rare."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir
from jaxtyping import Array, Bool

rare_p = Primitive("seldom")
"""A truth value as it is, of which is said that it seldom holds."""

rare_p.def_impl(lambda x: x)
rare_p.def_abstract_eval(lambda x: ShapedArray(x.shape, np.dtype(bool)))
mlir.register_lowering(rare_p, lambda _, x: [x])
batching.defvectorized(rare_p)


def rare_cond(pred: Bool[Array, ""], rare: Callable[..., Any], usual: Callable[..., Any], *operands: Any) -> Any:
    """``lax.cond(pred, rare, usual, *operands)``, where ``pred`` holds for few members of a batch, or none.

    A kernel has the ``usual`` case alone, which makes it shorter. Where ``pred`` holds for a member, another kernel,
    with both cases, does that member again: it is compiled when it is needed first. A function that returns
    ``wrongly_assumed()`` does something about such members itself.
    """
    return jax.lax.cond(rare_p.bind(pred), rare, usual, *operands)
