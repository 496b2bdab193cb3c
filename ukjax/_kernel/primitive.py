"""The JAX primitive that holds a whole function of one member."""

import functools
import weakref

import jax
from jax.core import ShapedArray
from jax.extend.core import Primitive, jaxpr_as_fun

from .._run.compile import cached

per_member_p = Primitive("per_member")
"""Applies ``jaxpr`` to each member.

Parameters
    jaxpr: the function of one member.
    mapped: which arguments have one entry per member; the members are along their last axis.
    options: ``KernelOptions``.
"""

per_member_p.multiple_results = True
# jax 0.12 and later: ``jaxpr`` may contain primitives that JAX expands later, at the lowering of this one.
per_member_p.is_high = lambda *avals, **parameters: False


def batch_size(arguments, mapped):
    """The number of members; None if no argument is mapped."""
    return next((x.shape[-1] for x, is_mapped in zip(arguments, mapped, strict=True) if is_mapped), None)


@per_member_p.def_abstract_eval
def _abstract(*avals, jaxpr, mapped, options):
    size = batch_size(avals, mapped)
    batch = () if size is None else (size,)
    return [ShapedArray((*out.shape, *batch), out.dtype) for out in jaxpr.out_avals]


@per_member_p.def_impl
def _impl(*arguments, jaxpr, mapped, options):
    """Compile and call outside of ``jit``: for arguments without a hash, and in reverse-mode differentiation."""
    if jax.config.jax_disable_jit:  # pyright: ignore[reportAttributeAccessIssue]
        return by_vmap(*arguments, jaxpr=jaxpr, mapped=mapped, options=options)
    bound = lambda *arguments: per_member_p.bind(*arguments, jaxpr=jaxpr, mapped=mapped, options=options)
    return cached((per_member_p, jaxpr, mapped, options), bound)(*arguments)


def by_vmap(*arguments, jaxpr, mapped, options):
    """Plain ``jax.vmap``; nested ``per_member`` calls keep their own lowering."""
    function = jaxpr_as_fun(jaxpr)
    if not any(mapped):
        return function(*arguments)
    return jax.vmap(function, in_axes=tuple(-1 if is_mapped else None for is_mapped in mapped), out_axes=-1)(*arguments)


def cached_per_jaxpr(function):
    """Decorator: cache ``function(jaxpr, ...)`` by its arguments; entries are dropped together with the jaxpr."""
    cache = weakref.WeakKeyDictionary()

    @functools.wraps(function)
    def wrapped(jaxpr, *others):
        results = cache.setdefault(jaxpr, {})
        if others not in results:
            results[others] = function(jaxpr, *others)
        return results[others]

    return wrapped
