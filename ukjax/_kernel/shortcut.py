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

from .rarely import rare_cond

in_kernel_p = Primitive("in_kernel")
"""True in a kernel of ``per_member``, False in any other program."""

in_kernel_p.def_abstract_eval(lambda: ShapedArray((), np.dtype(bool)))
in_kernel_p.def_impl(lambda: jnp.asarray(False))
mlir.register_lowering(in_kernel_p, mlir.lower_fun(lambda: jnp.asarray(False), multiple_results=False))


def fast_branch(doubtful: Bool[Array, ""], always: Callable[[], Any], usual: Callable[[], Any]) -> Any:
    """``always()``, or ``usual()``, which is quicker and as good unless ``doubtful``.

    Where XLA compiles the function there is no shortcut: to compile both, and in a batch to do both, would cost more
    than it saves. In a kernel, members for which the usual case does are done by that.
    """
    return jax.lax.cond(in_kernel_p.bind(), lambda: rare_cond(doubtful, always, usual), always)
