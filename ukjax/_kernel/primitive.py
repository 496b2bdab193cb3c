"""The operation of JAX that stands for a whole function of one member."""

import functools
import weakref
from collections.abc import Callable
from typing import Any

import jax
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Jaxpr, Primitive, jaxpr_as_fun

from .._run.compile import cached

per_member_p = Primitive("per_member")
"""``jaxpr`` on arguments of which those that are ``mapped`` have one entry per member along the last axis."""

per_member_p.multiple_results = True
# From jax 0.12 on: what JAX expands into other operations may stay in ``jaxpr`` until this one is lowered itself.
per_member_p.is_high = lambda *avals, **parameters: False


def holds(x: Any, such: Callable[[Any], bool], found: dict[Jaxpr, bool] | None = None) -> bool:
    """Whether there is ``such`` an equation in a jaxpr, or in any of some. ``found`` keeps what is found out, for more
    questions of the same kind."""
    if isinstance(x, ClosedJaxpr):
        x = x.jaxpr
    if not isinstance(x, Jaxpr):
        return any(holds(part, such, found) for part in x) if isinstance(x, list | tuple) else False
    found = {} if found is None else found
    if x not in found:
        found[x] = any(such(e) or any(holds(part, such, found) for part in e.params.values()) for e in x.eqns)
    return found[x]


def size_of(arguments, mapped):
    return next((x.shape[-1] for x, own in zip(arguments, mapped, strict=True) if own), None)


@per_member_p.def_abstract_eval
def _abstract(*avals, jaxpr, mapped, how):
    size = size_of(avals, mapped)
    batch = () if size is None else (size,)
    return [ShapedArray((*out.shape, *batch), out.dtype) for out in jaxpr.out_avals]


@per_member_p.def_impl
def _now(*arguments, jaxpr, mapped, how):
    """Outside of any ``jit``: where arguments have no hash, and in a gradient's way back."""
    if jax.config.jax_disable_jit:  # pyright: ignore[reportAttributeAccessIssue]
        return as_is(*arguments, jaxpr=jaxpr, mapped=mapped, how=how)
    bound = lambda *arguments: per_member_p.bind(*arguments, jaxpr=jaxpr, mapped=mapped, how=how)
    return cached((per_member_p, jaxpr, mapped, how), bound)(*arguments)


def as_is(*arguments, jaxpr, mapped, how):
    """As JAX does it, but for functions of one member in it if they are to be done well."""
    function = jaxpr_as_fun(jaxpr)
    if not any(mapped):
        return function(*arguments)
    return jax.vmap(function, in_axes=tuple(-1 if own else None for own in mapped), out_axes=-1)(*arguments)


def kept_with_jaxpr(function):
    """``function(jaxpr, ...)``, done once for each jaxpr and other arguments, and forgotten with the jaxpr."""
    known = weakref.WeakKeyDictionary()

    @functools.wraps(function)
    def remembered(jaxpr, *others):
        found = known.setdefault(jaxpr, {})
        if others not in found:
            found[others] = function(jaxpr, *others)
        return found[others]

    return remembered
