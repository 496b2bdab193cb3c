"""Queries about the transformation that JAX is tracing."""

from typing import Any

import equinox as eqx
import jax
import jax.core


@jax.custom_vjp
def _reverse_mode_only(x):
    return x


_reverse_mode_only.defvjp(lambda x: (x, None), lambda _, cotangent: (cotangent,))


def is_forward_mode(*trees: Any) -> bool:
    """Whether an array in ``trees`` is being differentiated in forward mode, by ``jax.jvp`` or ``jax.jacfwd``.

    JAX has no function for this query. It raises ``TypeError`` if a function with a ``custom_vjp`` is differentiated in
    forward mode, so this calls such a function, the identity.
    """
    for x in jax.tree.leaves(trees):
        if isinstance(x, jax.core.Tracer) and eqx.is_inexact_array(x):
            try:
                _reverse_mode_only(x)
            except TypeError:
                return True
    return False
