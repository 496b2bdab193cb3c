"""What was assumed so far, for a function that sees to it itself."""

import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import mlir
from jaxtyping import Array, Bool

assumption_failed_p = Primitive("assumed")
assumption_failed_p.def_abstract_eval(lambda: ShapedArray((), np.dtype(bool)))
assumption_failed_p.def_impl(lambda: jnp.asarray(False))
mlir.register_lowering(assumption_failed_p, mlir.lower_fun(lambda: jnp.asarray(False), multiple_results=False))


def assumption_failed() -> Bool[Array, ""]:
    """Whether a choice by ``rarely`` before this was not the usual one. False where all cases are compiled.

    To be called last in a function and returned by it. Then a kernel has the usual cases alone: it is for the caller to
    do something about a member that needs another one.
    """
    return assumption_failed_p.bind()
