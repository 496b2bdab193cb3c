"""What a function of one member becomes in a compiled program: a kernel, or what JAX would do."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.interpreters import mlir

from .._run.compile import has_room_for_kernels
from .cost import operation_count
from .graph.fold import refuse_type
from .graph.graph import Graph, Memory, TooLarge
from .llvm.deferred import registered_rarely
from .llvm.ffi_call import Buffer, called, handler_of, registered
from .llvm.machine import is_available, warn_no_compiler, warn_no_room
from .llvm.program import Program
from .primitive import as_is, holds, kept_with_jaxpr, per_member_p, size_of
from .unroll.entries import Stored, array_of
from .unroll.interpreter import refuse_keys, unroll
from .unroll.loops import repeats
from .unsupported import Unsupported, refuse_length, report

MOST = 300_000
"""How many operations are compiled: it takes some 0.1 ms for each. What has more is done in the pieces it is made of,
if those are functions of one member too, or else one member after the other."""

MOST_ONCE = 10_000
"""The same for one member where nothing is repeated often: XLA compiles larger matrices sooner, and calls LAPACK."""

MOST_WITH_EVERY_CASE = MOST
"""The same, by estimate, where no case is left out. What has more is done by JAX where a case is rare."""

LARGE = 512
"""Arguments of more numbers are read where they are needed."""


def kernels_available() -> bool:
    """Whether functions of one member are compiled so: on a CPU, if there is a compiler for it."""
    return is_available() and jax.default_backend() == "cpu"


def _compiled(*arguments, jaxpr, mapped, how):
    """By a kernel; a single member is a batch of one."""
    members = size_of(arguments, mapped)
    if how.as_by_jax or not isinstance(members, int | None):  # symbolic, where it is exported
        return as_is(*arguments, jaxpr=jaxpr, mapped=mapped, how=how)
    if not is_available():
        warn_no_compiler()
        return as_is(*arguments, jaxpr=jaxpr, mapped=mapped, how=how)
    if not has_room_for_kernels():
        warn_no_room()
        return as_is(*arguments, jaxpr=jaxpr, mapped=mapped, how=how)
    try:
        kernel = kernel_of(jaxpr, mapped, MOST if any(mapped) or how.strict or repeats(jaxpr) else MOST_ONCE)
    except TooLarge:
        if how.strict:
            refuse_length(MOST, how)
        return (as_is if holds(jaxpr, _is_piece) or not any(mapped) else _one_by_one)(
            *arguments, jaxpr=jaxpr, mapped=mapped, how=how
        )
    except Unsupported as refusal:
        report(refusal, how)
        return as_is(*arguments, jaxpr=jaxpr, mapped=mapped, how=how)
    *results, needs_fallback = _called(kernel, arguments, mapped)
    if needs_fallback is None:
        return results

    def again():
        if kernel.with_every_case is None:
            found = (_one_by_one if any(mapped) else as_is)(*arguments, jaxpr=jaxpr, mapped=mapped, how=how)
        else:
            *found, _ = _called(kernel.with_every_case, arguments, mapped)
        return [jnp.where(needs_fallback, new, old) for new, old in zip(found, results, strict=True)]

    return jax.lax.cond(jnp.any(needs_fallback), again, lambda: results)


class Kernel(NamedTuple):
    """The ``name`` of one, and its ``results``; those that are ``known`` without it, where not None, are none of it.

    If it ``leaves_out`` choices that are seldom made, its last result says whether a member made one. That member is to
    be done again by the kernel ``with_every_case``, which is compiled when it is called; or by JAX, if that is None.
    """

    name: str
    results: list[jax.ShapeDtypeStruct]
    known: list[np.ndarray | None]
    leaves_out: bool = False
    with_every_case: "Kernel | None" = None


def _called(kernel, arguments, mapped):
    """The results of a kernel, and where choices are not the usual ones; None if there are none."""
    batch = arguments[mapped.index(True)].shape[-1:] if any(mapped) else ()
    shapes = [jax.ShapeDtypeStruct((*x.shape, *batch), x.dtype) for x in kernel.results]
    found = called(kernel.name, arguments, shapes) if shapes else []
    needs_fallback = found.pop() if kernel.leaves_out else None
    each = iter(found)
    known = lambda x: jnp.broadcast_to(jnp.asarray(x)[(..., *(None,) * len(batch))], (*x.shape, *batch))
    return [*(next(each) if x is None else known(x) for x in kernel.known), needs_fallback]


@kept_with_jaxpr
def kernel_of(jaxpr: ClosedJaxpr, mapped: tuple[bool, ...], most: int) -> Kernel:
    """The kernel of a function of one member, compiled. Raises ``TooLarge`` if it needs more operations."""
    refuse_keys(jaxpr.jaxpr.invars)
    for aval in jaxpr.in_avals:
        refuse_type(aval.dtype)
    graph, inputs, results = _graph_of(jaxpr, most, True)
    avals = list(jaxpr.out_avals)
    known = [None if x.dtype == object else np.asarray(x, aval.dtype) for x, aval in zip(results, avals, strict=True)]
    left = [(x, aval) for x, aval, value in zip(results, avals, known, strict=True) if value is None]
    needs_fallback = graph.wrongly_assumed(graph.told)
    has_choices = len(graph.assumed_zero) > graph.told  # of which nobody but this asks
    if has_choices:
        left.append((array_of([needs_fallback], ()), ShapedArray((), np.dtype(bool))))
    if not left:
        return Kernel("", [], known)
    name = registered(*_ready(graph, inputs, left, jaxpr, mapped))
    is_small = has_choices and len(graph.operations) * operation_count(jaxpr) <= MOST_WITH_EVERY_CASE
    every = _with_every_case(name, jaxpr, mapped) if is_small else None
    return Kernel(name, [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for _, aval in left], known, has_choices, every)


def _with_every_case(name, jaxpr, mapped):
    """The kernel in which no case is left out."""

    def make():
        graph, inputs, results = _graph_of(jaxpr, 10 * MOST, False)  # the estimate may be too low
        return handler_of(*_ready(graph, inputs, list(zip(results, jaxpr.out_avals, strict=True)), jaxpr, mapped))

    shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in jaxpr.out_avals]
    return Kernel(registered_rarely(name, jaxpr, make), shapes, [None] * len(shapes))


def _ready(graph, inputs, results, jaxpr, mapped):
    """A program with these results, and what is given to it and taken from it."""
    program = Program(graph, [x for x, _ in results], [aval.dtype for _, aval in results], inputs, mapped)
    ins = [Buffer(aval.shape, aval.dtype, own) for aval, own in zip(jaxpr.in_avals, mapped, strict=True)]
    return program, ins, [Buffer(aval.shape, aval.dtype, any(mapped)) for _, aval in results]


def _graph_of(jaxpr, most, usual):
    graph = Graph(most, usual)
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
