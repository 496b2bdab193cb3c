"""Batches, derivatives and what is not used of a function of one member: each is such an operation again."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.interpreters import ad, batching
from jax.interpreters import partial_eval as pe

from .primitive import kept_with_jaxpr, per_member_p


def _batch(arguments, axes, *, jaxpr, mapped, how):
    if how.as_by_jax and not any(mapped):  # one operation no longer
        return jax.vmap(jaxpr_as_fun(jaxpr), in_axes=axes)(*arguments), [0] * len(jaxpr.out_avals)
    added = next(x.shape[axis] for x, axis in zip(arguments, axes, strict=True) if axis is not None)
    present = any(mapped)
    size = (
        next(
            (np.delete(x.shape, axis)[-1] if axis is not None else x.shape[-1])
            for x, axis, own in zip(arguments, axes, mapped, strict=True)
            if own or not present
        )
        if present
        else None
    )
    moved, now = [], []
    for x, axis, own in zip(arguments, axes, mapped, strict=True):
        new = axis is not None
        if new:
            x = jnp.moveaxis(x, axis, -1)
        if not present:
            moved.append(x)
        elif new or own:  # two batches become one: (..., size, added) in one axis
            if not own:
                x = jnp.broadcast_to(x[..., None, :], (*x.shape[:-1], size, added))
            elif not new:
                x = jnp.broadcast_to(x[..., None], (*x.shape, added))
            moved.append(x.reshape(*x.shape[:-2], size * added))
        else:
            moved.append(x)
        now.append(new or own)
    results = per_member_p.bind(*moved, jaxpr=jaxpr, mapped=tuple(now), how=how)
    if present:
        results = [x.reshape(*x.shape[:-1], size, added) for x in results]
    return results, [x.ndim - 1 for x in results]


batching.primitive_batchers[per_member_p] = _batch


def _is_float(aval):
    return jnp.issubdtype(aval.dtype, jnp.floating)


@kept_with_jaxpr
def _tangent(jaxpr, moving):
    """The derivative of ``jaxpr``, as a function of all its arguments and of the changes of those in ``moving``."""
    function = jaxpr_as_fun(jaxpr)
    outputs = [i for i, aval in enumerate(jaxpr.out_avals) if _is_float(aval)]

    def change(*arguments):
        count = len(jaxpr.in_avals)
        primals, changes = arguments[:count], arguments[count:]

        def of_moving(*values):
            whole = list(primals)
            for i, value in zip(moving, values, strict=True):
                whole[i] = value
            results = function(*whole)
            return [results[i] for i in outputs]

        return jax.jvp(of_moving, tuple(primals[i] for i in moving), tuple(changes))[1]

    avals = [*jaxpr.in_avals, *(jaxpr.in_avals[i] for i in moving)]
    return jax.make_jaxpr(change)(*map(_shape, avals)), outputs


def _shape(aval):
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def _jvp(primals, tangents, *, jaxpr, mapped, how):
    moving = tuple(i for i, tangent in enumerate(tangents) if type(tangent) is not ad.Zero)
    if how.as_by_jax and not any(mapped):
        return _jvp_in_place(primals, tangents, moving, jaxpr)
    results = per_member_p.bind(*primals, jaxpr=jaxpr, mapped=mapped, how=how)
    changes = [ad.Zero(jax.typeof(x).to_tangent_aval()) for x in results]
    if moving:
        derivative, outputs = _tangent(jaxpr, moving)
        found = per_member_p.bind(
            *primals,
            *(tangents[i] for i in moving),
            jaxpr=derivative,
            mapped=(*mapped, *(mapped[i] for i in moving)),
            how=how,
        )
        for i, value in zip(outputs, found, strict=True):
            changes[i] = value
    return results, changes


def _jvp_in_place(primals, tangents, moving, jaxpr):
    """The same, one operation no longer."""
    outputs = [i for i, aval in enumerate(jaxpr.out_avals) if _is_float(aval)]

    def of_moving(*values):
        whole = list(primals)
        for i, value in zip(moving, values, strict=True):
            whole[i] = value
        results = jaxpr_as_fun(jaxpr)(*whole)
        return [results[i] for i in outputs], results

    values = [tuple(each[i] for i in moving) for each in (primals, tangents)]
    _, found, results = jax.jvp(of_moving, *values, has_aux=True)
    changes = [ad.Zero(jax.typeof(x).to_tangent_aval()) for x in results]
    for i, value in zip(outputs, found, strict=True):
        changes[i] = value
    return results, changes


ad.primitive_jvps[per_member_p] = _jvp


@kept_with_jaxpr
def _transposed(jaxpr, linear):
    """The transpose of ``jaxpr`` in its arguments ``linear``, as a function of the others and of the cotangents."""
    function = jaxpr_as_fun(jaxpr)
    known = [i for i in range(len(jaxpr.in_avals)) if i not in linear]

    def back(*arguments):
        given, cotangents = arguments[: len(known)], arguments[len(known) :]

        def of_linear(*values):
            whole: list[Any] = [None] * len(jaxpr.in_avals)
            for i, value in (*zip(known, given, strict=True), *zip(linear, values, strict=True)):
                whole[i] = value
            return function(*whole)

        zeros = [jnp.zeros(jaxpr.in_avals[i].shape, jaxpr.in_avals[i].dtype) for i in linear]
        return jax.vjp(of_linear, *zeros)[1](list(cotangents))

    avals = [*(jaxpr.in_avals[i] for i in known), *jaxpr.out_avals]
    return jax.make_jaxpr(back)(*map(_shape, avals))


def _transpose(cotangents, *arguments, jaxpr, mapped, how):
    linear = tuple(i for i, x in enumerate(arguments) if ad.is_undefined_primal(x))
    known = [i for i in range(len(arguments)) if i not in linear]
    cotangents = [ad.instantiate_zeros(x) for x in cotangents]
    own = any(mapped)
    back = _transposed(jaxpr, linear)
    found = per_member_p.bind(
        *(arguments[i] for i in known),
        *cotangents,
        jaxpr=back,
        mapped=(*(mapped[i] for i in known), *(own for _ in cotangents)),
        how=how,
    )
    results: list[Any] = [None] * len(arguments)
    for i, x in zip(linear, found, strict=True):
        results[i] = jnp.sum(x, axis=-1) if own and not mapped[i] else x
    return results


ad.primitive_transposes[per_member_p] = _transpose


@kept_with_jaxpr
def smaller(jaxpr, used):
    """``jaxpr`` with the results that are ``used`` alone, and which of its arguments they need."""
    fewer, needed = pe.dce_jaxpr(jaxpr.jaxpr, list(used), instantiate=False)
    return ClosedJaxpr(fewer, jaxpr.consts), needed


def _without_unused(used, *rest):
    equation = rest[-1]  # some versions of JAX say more before it
    if not any(used):
        return [False] * len(equation.invars), None
    fewer, needed = smaller(equation.params["jaxpr"], tuple(used))
    mapped = tuple(own for own, keep in zip(equation.params["mapped"], needed, strict=True) if keep)
    if any(equation.params["mapped"]) and not any(mapped):
        return [True] * len(equation.invars), equation
    kept = equation.replace(
        invars=[x for x, keep in zip(equation.invars, needed, strict=True) if keep],
        outvars=[x for x, keep in zip(equation.outvars, used, strict=True) if keep],
        params=equation.params | {"jaxpr": fewer, "mapped": mapped},
    )
    return needed, kept


pe.dce_rules[per_member_p] = _without_unused
