"""What a function of one member becomes in a compiled program: a kernel, or what JAX would do."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.interpreters import mlir

from .call import Buffer, called, registered
from .entries import Stored
from .graph import Graph, Memory, TooLarge
from .machine import is_available, tell_of_no_compiler
from .primitive import as_is, holds, kept_with_jaxpr, per_member_p, size_of
from .program import Program
from .refusal import Unsupported, refuse_length, report
from .unroll import asks, refuse_keys, unroll

MOST = 300_000
"""How many operations are compiled: it takes some 0.1 ms for each. What has more is done in the pieces it is made of,
if those are functions of one member too, or else one member after the other."""

LARGE = 512
"""Arguments of more numbers are read where they are needed."""


def does_kernels() -> bool:
    """Whether functions of one member are compiled so: on a CPU, if there is a compiler for it."""
    return is_available() and jax.default_backend() == "cpu"


def _compiled(*arguments, jaxpr, mapped, how):
    """By a kernel; a single member is a batch of one."""
    members = size_of(arguments, mapped)
    if how.as_by_jax or not isinstance(members, int | None):  # symbolic, where it is exported
        return as_is(*arguments, jaxpr=jaxpr, mapped=mapped, how=how)
    if not is_available():
        tell_of_no_compiler()
        return as_is(*arguments, jaxpr=jaxpr, mapped=mapped, how=how)
    try:
        kernel = kernel_of(jaxpr, mapped)
    except TooLarge:
        if how.strict:
            refuse_length(MOST, how)
        return (as_is if holds(jaxpr, _is_piece) or not any(mapped) else _one_by_one)(
            *arguments, jaxpr=jaxpr, mapped=mapped, how=how
        )
    except Unsupported as refusal:
        report(refusal, how)
        return as_is(*arguments, jaxpr=jaxpr, mapped=mapped, how=how)
    batch = arguments[mapped.index(True)].shape[-1:] if any(mapped) else ()
    shapes = [jax.ShapeDtypeStruct((*x.shape, *batch), x.dtype) for x in kernel.results]
    found = iter(called(kernel.name, arguments, shapes) if shapes else [])
    known = lambda x: jnp.broadcast_to(jnp.asarray(x)[(..., *(None,) * len(batch))], (*x.shape, *batch))
    return [next(found) if x is None else known(x) for x in kernel.known]


class Kernel(NamedTuple):
    """The ``name`` of one, and its ``results``. Those that are ``known`` without it, where not None, are none of it."""

    name: str
    results: list[jax.ShapeDtypeStruct]
    known: list[np.ndarray | None]


@kept_with_jaxpr
def kernel_of(jaxpr: ClosedJaxpr, mapped: tuple[bool, ...]) -> Kernel:
    """The kernel of a function of one member, compiled."""
    refuse_keys(jaxpr.jaxpr.invars)
    graph, inputs, results = _graph_of(jaxpr, holds(jaxpr, asks))
    if len(graph.assumed_zero) > graph.told:  # nobody looks whether that is so
        graph, inputs, results = _graph_of(jaxpr, False)
    avals = jaxpr.out_avals
    known = [None if x.dtype == object else np.asarray(x, aval.dtype) for x, aval in zip(results, avals, strict=True)]
    left = [(x, aval) for x, aval, value in zip(results, avals, known, strict=True) if value is None]
    if not left:
        return Kernel("", [], known)
    program = Program(graph, [x for x, _ in left], [aval.dtype for _, aval in left], inputs, mapped)
    ins = [Buffer(aval.shape, aval.dtype, own) for aval, own in zip(jaxpr.in_avals, mapped, strict=True)]
    outs = [Buffer(aval.shape, aval.dtype, any(mapped)) for _, aval in left]
    shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for _, aval in left]
    return Kernel(registered(program, ins, outs), shapes, known)


def _graph_of(jaxpr, usual):
    graph = Graph(MOST, usual)
    large = lambda k, aval: Stored(Memory(aval.size, aval.dtype, 0, source=k), aval.shape)
    inputs = [
        large(k, aval) if aval.size > LARGE else graph.inputs(aval.shape, aval.dtype)
        for k, aval in enumerate(jaxpr.in_avals)
    ]
    return graph, inputs, unroll(graph, jaxpr, inputs, "cpu")


def _is_piece(equation):
    """Whether it is a function of one member that is done well in a batch by itself."""
    return equation.primitive is per_member_p and not equation.params["how"].as_by_jax


def _one_by_one(*arguments, jaxpr, mapped, how):
    """As JAX does it for one member after the other: their matrices are large enough to keep a core busy, stay in its
    caches, and a choice is made by the member alone."""
    own = [jnp.moveaxis(x, -1, 0) for x, per in zip(arguments, mapped, strict=True) if per]

    def member(own):
        own = iter(own)
        return jaxpr_as_fun(jaxpr)(*(next(own) if per else x for x, per in zip(arguments, mapped, strict=True)))

    return [jnp.moveaxis(x, 0, -1) for x in jax.lax.map(member, own)]


mlir.register_lowering(per_member_p, mlir.lower_fun(as_is, multiple_results=True))


def _on_cpu(context, *arguments, **parameters):
    exported = context.module_context.lowering_parameters.for_export
    done = as_is if exported else _compiled
    return mlir.lower_fun(done, multiple_results=True)(context, *arguments, **parameters)


mlir.register_lowering(per_member_p, _on_cpu, platform="cpu")
