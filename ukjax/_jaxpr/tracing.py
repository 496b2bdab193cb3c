"""Queries of JAX's traces: which arrays are traced, and which values are known."""

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
from jax.extend.core import get_opaque_trace_state
from jax.interpreters.ad import JVPTracer
from jax.interpreters.partial_eval import JaxprTracer

from .._flatten import Flat, ask_all

_number = jax.jit(lambda: jnp.zeros(()))
_count = itertools.count()
_number_of_settings = jax.jit(lambda: next(_count))
"""JAX traces this function again for other settings, so that each setting has its own number."""


def is_traced(x: Any) -> bool:
    """Whether ``x`` is an array that JAX traces."""
    return isinstance(x, jax.core.Tracer)


def is_executed_at_once(x: Any) -> bool:
    """Return whether JAX executes operations on ``x`` immediately: ``x`` is an array, a member of one under ``vmap``,
    or a pair of a value and a tangent in forward mode."""
    if isinstance(x, JVPTracer):
        return is_executed_at_once(x.primal) and is_executed_at_once(x.tangent)
    if is_traced(x) and hasattr(x, "batch_dim"):  # JAX does not export the type of these tracers
        return is_executed_at_once(x.val)
    return not is_traced(x)


def trace_state() -> Any:
    """An object that is equal to another one only if JAX traces the same function now, or none."""
    return get_opaque_trace_state()


def is_tracing() -> bool:
    """Return whether JAX traces all operations now, as within ``jit`` or ``scan``, so that new arrays are tracers."""
    global _eager_state
    # To compare states takes a microsecond, to run a program twenty times as long.
    state = get_opaque_trace_state()
    if state == _eager_state:
        return False
    tracing = is_traced(_number())
    if not tracing:
        _eager_state = state
    return tracing


_eager_state = None  # the last state of JAX in which it did not trace


def settings_number() -> int:
    """Return a number that differs between any two settings of JAX under which programs may differ. Not for use while
    JAX is tracing."""
    return int(_number_of_settings())


def is_concrete(*trees: Any) -> bool:
    """Whether no array in ``trees`` is traced by ``jit``, ``grad`` or ``vmap``."""
    return not any(ask_all(_has_tracers, *trees))


def _has_tracers(flat: Flat) -> bool:
    return any(map(is_traced, flat.leaves))


def is_eager(*trees: Any) -> bool:
    """Whether operations on the arrays in ``trees`` are executed immediately.

    Inside ``jit``, ``scan`` or ``while_loop`` JAX traces every operation, also one on concrete arrays: its result is a
    tracer. ``vmap`` and derivatives trace only operations that depend on their own arguments.
    """
    return is_concrete(*trees) and not is_tracing()


def without_derivatives(tree: Any) -> Any:
    """Apply ``stop_gradient`` to ``tree``. Inside ``jax.grad`` the result is concrete."""
    if is_concrete(tree):
        return tree
    return jax.tree.map(lambda x: _as_jax(jax.lax.stop_gradient(x)) if is_traced(x) else x, tree)


def _as_jax(x):
    """Convert to an array: ``stop_gradient`` of the tracer of a Python number can return a Python number."""
    return x if isinstance(x, jax.Array) else jnp.asarray(x)


def is_forward_mode(*trees: Any) -> bool:
    """Whether an array in ``trees`` is being differentiated in forward mode, by ``jax.jvp`` or ``jax.jacfwd``.

    JAX has no function for this query. It calls the rule of a ``custom_jvp`` function with tangents: arrays, or tracers
    under ``jit``, in forward mode, but tracers of partial evaluation, whose values are not known, in reverse mode.
    """
    forward = []

    @jax.custom_jvp
    def identity(x):
        return x

    @identity.defjvp
    def _(primals, tangents):
        forward.append(not is_unknown(*tangents))
        return primals[0], tangents[0]

    for x in jax.tree.leaves(trees):
        if is_traced(x) and eqx.is_inexact_array(x):
            identity(x)
    return any(forward)


def is_unknown(x: Any) -> bool:
    """Whether ``x``, or the array of which it is a member under ``vmap``, is a tracer of partial evaluation."""
    while is_traced(of_batch := getattr(x, "val", None)):
        x = of_batch
    return isinstance(x, JaxprTracer)
