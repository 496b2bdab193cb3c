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
from .machine import is_available
from .plainly import plain
from .primitive import as_is, holds, kept_with_jaxpr, per_member_p, size_of
from .program import Program
from .refusal import Unsupported, refuse_length, report
from .unroll import refuse_keys, unroll

FEW = 1

MOST = 300_000
"""How many operations are compiled: it takes some 0.1 ms for each. What has more is done in the pieces it is made of,
if those are functions of one member too, or else one member after the other."""

LARGE = 512
"""Arguments of more numbers are read where they are needed."""


def does_kernels() -> bool:
    """Whether functions of one member are compiled so: on a CPU, if there is a compiler for it."""
    return is_available() and jax.default_backend() == "cpu"


def _compiled(*arguments, jaxpr, mapped, how):
    """By a kernel; a single member is a batch of one.

    Where the function has choices that are seldom made, the usual case alone is done first; only if a member chose
    another is all done again with every case, and such members are given what that finds.
    """
    members = size_of(arguments, mapped)
    if not is_available() or not isinstance(members, int | None) or how.few is None:  # symbolic, where it is exported
        return as_is(*arguments, jaxpr=jaxpr, mapped=mapped, how=how)
    try:
        *results, unusual = _by_kernel(arguments, jaxpr, mapped, True)
    except TooLarge:
        if how.strict:
            refuse_length(MOST, how)
        return (as_is if holds(jaxpr, _is_piece) or not any(mapped) else _one_by_one)(
            *arguments, jaxpr=jaxpr, mapped=mapped, how=how
        )
    except Unsupported as refusal:
        report(refusal, how)
        return as_is(*arguments, jaxpr=jaxpr, mapped=mapped, how=how)
    if unusual is None:
        return results

    def again():
        try:
            *found, _ = _by_kernel(arguments, jaxpr, mapped, False)
        except (Unsupported, TooLarge):
            found = as_is(*arguments, jaxpr=plain(jaxpr), mapped=mapped, how=how)
        return [jnp.where(unusual, new, old) for new, old in zip(found, results, strict=True)]

    return jax.lax.cond(jnp.any(unusual), again, lambda: results)


def _by_kernel(arguments, jaxpr, mapped, usual):
    """The results of ``jaxpr``, and which members made another choice than the usual one: None if there is no
    choice."""
    kernel = kernel_of(jaxpr, mapped, usual)
    batch = arguments[mapped.index(True)].shape[-1:] if any(mapped) else ()
    shapes = [jax.ShapeDtypeStruct((*x.shape, *batch), x.dtype) for x in kernel.results]
    found = called(kernel.name, [arguments[k] for k in kernel.arguments], shapes) if shapes else []
    unusual = found.pop() if kernel.has_choices else None
    given = iter(found)
    known = lambda x: jnp.broadcast_to(jnp.asarray(x)[(..., *(None,) * len(batch))], (*x.shape, *batch))
    return [*(next(given) if x is None else known(x) for x in kernel.known), unusual]


class Kernel(NamedTuple):
    """The ``name`` of one, which of the ``arguments`` it takes, and its ``results``, the last of which says where a
    choice was not the usual one, if it ``has_choices``. What is ``known`` without it is no result."""

    name: str
    arguments: list[int]
    results: list[jax.ShapeDtypeStruct]
    known: list[np.ndarray | None]
    has_choices: bool


@kept_with_jaxpr
def kernel_of(jaxpr: ClosedJaxpr, mapped: tuple[bool, ...], usual: bool) -> Kernel:
    """The kernel of a function of one member, compiled."""
    refuse_keys(jaxpr.jaxpr.invars)
    graph = Graph(MOST, usual)
    inputs = []
    for k, aval in enumerate(jaxpr.in_avals):
        if aval.size > LARGE:
            inputs.append(Stored(Memory(aval.size, aval.dtype, 0, source=k), aval.shape))
        else:
            inputs.append(graph.inputs(aval.shape, aval.dtype))
    results = unroll(graph, jaxpr, inputs, "cpu")
    avals = list(jaxpr.out_avals)
    unusual = graph.wrongly_assumed(graph.told)
    has_choices = len(graph.assumed_zero) > graph.told
    if has_choices:
        results, avals = [*results, _scalar(unusual)], [*avals, jax.core.ShapedArray((), np.dtype(bool))]
    known = [None if x.dtype == object else np.asarray(x, aval.dtype) for x, aval in zip(results, avals, strict=True)]
    if has_choices:
        known.pop()
    left = [(x, aval) for x, aval, value in zip(results, avals, [*known, None], strict=False) if value is None]
    program = Program(graph, [x for x, _ in left], [aval.dtype for _, aval in left], inputs, mapped)
    ins = [Buffer(aval.shape, aval.dtype, own) for aval, own in zip(jaxpr.in_avals, mapped, strict=True)]
    outs = [Buffer(aval.shape, aval.dtype, any(mapped)) for _, aval in left]
    name = registered(program, ins, outs) if left else ""
    shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for _, aval in left]
    return Kernel(name, list(range(len(ins))), shapes, known, has_choices)


def _scalar(x):
    array = np.empty((), object)
    array[()] = x
    return array


def _is_piece(equation):
    """Whether it is a function of one member that is done well in a batch by itself."""
    return equation.primitive is per_member_p and equation.params["how"].few is not None


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
