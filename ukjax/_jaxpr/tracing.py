"""The state of the trace that JAX is in."""

from typing import Any

import equinox as eqx
import jax
import jax.core


@jax.custom_vjp
def _reverse_mode_only(x):
    return x


_reverse_mode_only.defvjp(lambda x: (x, None), lambda _, change: (change,))


def is_forward_mode(*trees: Any) -> bool:
    """Whether an array in ``trees`` is being differentiated in forward mode, by ``jax.jvp`` or ``jax.jacfwd``.

    JAX has no question for this. It raises ``TypeError`` where a function with a ``custom_vjp`` is differentiated in
    forward mode, so such a function, the identity, is called.
    """
    for x in jax.tree.leaves(trees):
        if isinstance(x, jax.core.Tracer) and eqx.is_inexact_array(x):
            try:
                _reverse_mode_only(x)
            except TypeError:
                return True
    return False
