"""A quicker way for what is usual, where it costs nothing to have both."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import mlir
from jaxtyping import Array, Bool

from .rarely import rarely

written_out_p = Primitive("written_out")
"""True in what ``per_member`` writes out, False in any other program."""

written_out_p.def_abstract_eval(lambda: ShapedArray((), np.dtype(bool)))
written_out_p.def_impl(lambda: jnp.asarray(False))
mlir.register_lowering(written_out_p, mlir.lower_fun(lambda: jnp.asarray(False), multiple_results=False))


def shortcut(doubtful: Bool[Array, ""], always: Callable[[], Any], usual: Callable[[], Any]) -> Any:
    """``always()``, or ``usual()``, which is quicker and as good unless ``doubtful``.

    Where JAX runs the function there is no shortcut: to compile both, and in a batch to do both, would cost more than
    it saves. Written out, the usual case alone is done for all members, and the other only if one of them needs it.
    """
    return jax.lax.cond(written_out_p.bind(), lambda: rarely(doubtful, always, usual), always)
