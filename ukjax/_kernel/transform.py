"""JAX transformations of ``per_member``: batching, differentiation and dead-code elimination.

The result of each is again one ``per_member`` operation.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.interpreters import ad, batching
from jax.interpreters import partial_eval as pe

from .._jaxpr.tracing import is_unknown
from .primitive import cached_per_jaxpr, per_member_p


def _batch(arguments, axes, *, jaxpr, mapped, options):
    if options.without_kernel and not any(mapped):  # inline the jaxpr
        return jax.vmap(jaxpr_as_fun(jaxpr), in_axes=axes)(*arguments), [0] * len(jaxpr.out_avals)
    new_size = next(x.shape[axis] for x, axis in zip(arguments, axes, strict=True) if axis is not None)
    is_batched = any(mapped)
    size = (
        next(
            (np.delete(x.shape, axis)[-1] if axis is not None else x.shape[-1])
            for x, axis, was_mapped in zip(arguments, axes, mapped, strict=True)
            if was_mapped or not is_batched
        )
        if is_batched
        else None
    )
    operands, new_mapped = [], []
    for x, axis, was_mapped in zip(arguments, axes, mapped, strict=True):
        is_new = axis is not None
        if is_new:
            x = jnp.moveaxis(x, axis, -1)
        if not is_batched:
            operands.append(x)
        elif is_new or was_mapped:  # merge two batch axes into one: (..., size, new_size)
            if not was_mapped:
                x = jnp.broadcast_to(x[..., None, :], (*x.shape[:-1], size, new_size))
            elif not is_new:
                x = jnp.broadcast_to(x[..., None], (*x.shape, new_size))
            operands.append(x.reshape(*x.shape[:-2], size * new_size))
        else:
            operands.append(x)
        new_mapped.append(is_new or was_mapped)
    results = per_member_p.bind(*operands, jaxpr=jaxpr, mapped=tuple(new_mapped), options=options)
    if is_batched:
        results = [x.reshape(*x.shape[:-1], size, new_size) for x in results]
    new_axes: list[int | None] = [x.ndim - 1 for x in results]
    arguments_before, results_before = options.primal
    if all(axis is None for axis in axes[:arguments_before]):  # the results are equal for all tangents
        for i in range(results_before):
            results[i], new_axes[i] = results[i][..., 0], None
    return results, new_axes


batching.primitive_batchers[per_member_p] = _batch


def _is_float(aval):
    return jnp.issubdtype(aval.dtype, jnp.floating)


@cached_per_jaxpr
def _jvp_jaxpr(jaxpr, active, with_results):
    """The jaxpr ``(*primals, *tangents) -> tangents of the float results``, and the indices of these results.

    ``active``: indices of the arguments that have a tangent; ``with_results``: the results come first.
    """
    function = jaxpr_as_fun(jaxpr)
    outputs = [i for i, aval in enumerate(jaxpr.out_avals) if _is_float(aval)]

    def jvp(*arguments):
        count = len(jaxpr.in_avals)
        primals, tangents = arguments[:count], arguments[count:]

        def of_active(*values):
            inputs = list(primals)
            for i, value in zip(active, values, strict=True):
                inputs[i] = value
            results = function(*inputs)
            return [results[i] for i in outputs], results

        _, values, results = jax.jvp(of_active, tuple(primals[i] for i in active), tuple(tangents), has_aux=True)
        return [*results, *values] if with_results else values

    avals = [*jaxpr.in_avals, *(jaxpr.in_avals[i] for i in active)]
    return jax.make_jaxpr(jvp)(*map(_shape, avals)), outputs


def _shape(aval):
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def _jvp(primals, tangents, *, jaxpr, mapped, options):
    active = tuple(i for i, tangent in enumerate(tangents) if type(tangent) is not ad.Zero)
    if options.without_kernel and not any(mapped):
        return _jvp_inlined(primals, tangents, active, jaxpr)
    is_joint = options.joint_jvp and active and not any(is_unknown(tangents[i]) for i in active)
    results = [] if is_joint else per_member_p.bind(*primals, jaxpr=jaxpr, mapped=mapped, options=options)
    values, outputs = [], []
    if active:
        derivative, outputs = _jvp_jaxpr(jaxpr, active, is_joint)
        values = per_member_p.bind(
            *primals,
            *(tangents[i] for i in active),
            jaxpr=derivative,
            mapped=(*mapped, *(mapped[i] for i in active)),
            options=options._replace(
                joint_jvp=False, primal=(len(primals), len(jaxpr.out_avals)) if is_joint else (0, 0)
            ),
        )
    if is_joint:
        results, values = values[: len(jaxpr.out_avals)], values[len(jaxpr.out_avals) :]
    result_tangents = [ad.Zero(jax.typeof(x).to_tangent_aval()) for x in results]
    for i, value in zip(outputs, values, strict=True):
        result_tangents[i] = value
    return results, result_tangents


def _jvp_inlined(primals, tangents, active, jaxpr):
    """JVP of the function itself; no ``per_member`` operation remains."""
    outputs = [i for i, aval in enumerate(jaxpr.out_avals) if _is_float(aval)]

    def of_active(*values):
        inputs = list(primals)
        for i, value in zip(active, values, strict=True):
            inputs[i] = value
        results = jaxpr_as_fun(jaxpr)(*inputs)
        return [results[i] for i in outputs], results

    active_values = [tuple(values[i] for i in active) for values in (primals, tangents)]
    _, float_tangents, results = jax.jvp(of_active, *active_values, has_aux=True)
    result_tangents = [ad.Zero(jax.typeof(x).to_tangent_aval()) for x in results]
    for i, value in zip(outputs, float_tangents, strict=True):
        result_tangents[i] = value
    return results, result_tangents


ad.primitive_jvps[per_member_p] = _jvp


@cached_per_jaxpr
def _transpose_jaxpr(jaxpr, linear):
    """The jaxpr ``(*residuals, *cotangents) -> cotangents of the arguments in linear``.

    ``residuals`` are the arguments that are not in ``linear``.
    """
    function = jaxpr_as_fun(jaxpr)
    nonlinear = [i for i in range(len(jaxpr.in_avals)) if i not in linear]

    def transposed(*arguments):
        residuals, cotangents = arguments[: len(nonlinear)], arguments[len(nonlinear) :]

        def of_linear(*values):
            inputs: list[Any] = [None] * len(jaxpr.in_avals)
            for i, value in (*zip(nonlinear, residuals, strict=True), *zip(linear, values, strict=True)):
                inputs[i] = value
            return function(*inputs)

        return jax.linear_transpose(of_linear, *(_shape(jaxpr.in_avals[i]) for i in linear))(list(cotangents))

    avals = [*(jaxpr.in_avals[i] for i in nonlinear), *jaxpr.out_avals]
    return jax.make_jaxpr(transposed)(*map(_shape, avals))


def _transpose(cotangents, *arguments, jaxpr, mapped, options):
    linear = tuple(i for i, x in enumerate(arguments) if ad.is_undefined_primal(x))
    nonlinear = [i for i in range(len(arguments)) if i not in linear]
    cotangents = [ad.instantiate_zeros(x) for x in cotangents]
    is_batched = any(mapped)
    transposed = _transpose_jaxpr(jaxpr, linear)
    values = per_member_p.bind(
        *(arguments[i] for i in nonlinear),
        *cotangents,
        jaxpr=transposed,
        mapped=(*(mapped[i] for i in nonlinear), *(is_batched for _ in cotangents)),
        options=options._replace(primal=(0, 0)),
    )
    results: list[Any] = [None] * len(arguments)
    for i, x in zip(linear, values, strict=True):
        results[i] = jnp.sum(x, axis=-1) if is_batched and not mapped[i] else x
    return results


ad.primitive_transposes[per_member_p] = _transpose


@cached_per_jaxpr
def eliminate_dead_code(jaxpr, used):
    """``jaxpr`` with only the results that are ``used``, and a flag for each argument whether these need it."""
    live, needed = pe.dce_jaxpr(jaxpr.jaxpr, list(used), instantiate=False)
    return ClosedJaxpr(live, jaxpr.consts), needed


def _dce_rule(used, *rest):
    equation = rest[-1]  # some versions of JAX pass more arguments before it
    if not any(used):
        return [False] * len(equation.invars), None
    live, needed = eliminate_dead_code(equation.params["jaxpr"], tuple(used))
    mapped = tuple(x for x, is_needed in zip(equation.params["mapped"], needed, strict=True) if is_needed)
    if any(equation.params["mapped"]) and not any(mapped):
        return [True] * len(equation.invars), equation
    arguments_before, results_before = equation.params["options"].primal
    primal = sum(needed[:arguments_before]), sum(used[:results_before])
    live_equation = equation.replace(
        invars=[x for x, is_needed in zip(equation.invars, needed, strict=True) if is_needed],
        outvars=[x for x, is_used in zip(equation.outvars, used, strict=True) if is_used],
        params=equation.params
        | {"jaxpr": live, "mapped": mapped, "options": equation.params["options"]._replace(primal=primal)},
    )
    return needed, live_equation


pe.dce_rules[per_member_p] = _dce_rule
