"""Lower ``per_member`` to a kernel on a CPU, and to ``jax.vmap`` where no kernel can be compiled."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.interpreters import mlir

from .._run.compile import has_room_for_kernels
from .cost import branch_cost_ratio
from .graph.fold import refuse_type
from .graph.graph import Graph, Memory, TooLarge
from .llvm.deferred import register_deferred
from .llvm.ffi_call import Buffer, call_kernel, handler_address, register_kernel
from .llvm.machine import is_available, warn_no_compiler, warn_no_room
from .llvm.program import Program
from .primitive import any_equation, batch_size, by_vmap, cached_per_jaxpr, per_member_p
from .unroll.entries import Stored, object_array
from .unroll.interpreter import reject_keys, unroll
from .unroll.loops import has_kept_loop
from .unsupported import Unsupported, raise_too_large, report

MAX_OPERATIONS = 300_000
"""Largest kernel, in operations; compilation takes some 0.1 ms for each. A larger function is executed by the
``per_member`` functions that it calls, or else member by member."""

MAX_OPERATIONS_UNBATCHED = 10_000
"""Largest kernel for one member without long loops. Above it matrices are large: XLA compiles faster, with LAPACK."""

MAX_OPERATIONS_ALL_BRANCHES = MAX_OPERATIONS
"""Largest estimated size of a kernel with all branches. Above it, JAX executes the members that take a rare branch."""

MAX_UNPACKED_SIZE = 512
"""Arguments with more entries stay arrays in memory, and entries are loaded where they are used."""


def kernels_available() -> bool:
    """Whether ``per_member`` compiles kernels: on a CPU, if llvmlite is installed."""
    return is_available() and jax.default_backend() == "cpu"


def _by_kernel(*arguments, jaxpr, mapped, options):
    """Call a kernel; a single member is a batch of one."""
    members = batch_size(arguments, mapped)
    if options.without_kernel or not isinstance(members, int | None):  # the size is symbolic in jax.export
        return by_vmap(*arguments, jaxpr=jaxpr, mapped=mapped, options=options)
    if not is_available():
        warn_no_compiler()
        return by_vmap(*arguments, jaxpr=jaxpr, mapped=mapped, options=options)
    if not has_room_for_kernels():
        warn_no_room()
        return by_vmap(*arguments, jaxpr=jaxpr, mapped=mapped, options=options)
    try:
        kernel = build_kernel(
            jaxpr,
            mapped,
            MAX_OPERATIONS if any(mapped) or options.strict or has_kept_loop(jaxpr) else MAX_OPERATIONS_UNBATCHED,
        )
    except TooLarge:
        if options.strict:
            raise_too_large(MAX_OPERATIONS, options)
        return (by_vmap if any_equation(jaxpr, _is_nested_kernel) or not any(mapped) else _member_by_member)(
            *arguments, jaxpr=jaxpr, mapped=mapped, options=options
        )
    except Unsupported as error:
        report(error, options)
        return by_vmap(*arguments, jaxpr=jaxpr, mapped=mapped, options=options)
    *results, needs_fallback = _call(kernel, arguments, mapped)
    if needs_fallback is None:
        return results

    def fallback():
        if kernel.with_all_branches is None:
            complete = (_member_by_member if any(mapped) else by_vmap)(
                *arguments, jaxpr=jaxpr, mapped=mapped, options=options
            )
        else:
            *complete, _ = _call(kernel.with_all_branches, arguments, mapped)
        return [jnp.where(needs_fallback, new, old) for new, old in zip(complete, results, strict=True)]

    return jax.lax.cond(jnp.any(needs_fallback), fallback, lambda: results)


class Kernel(NamedTuple):
    """A compiled kernel.

    name: name of its FFI target.
    results: shapes of its results, for one member.
    constants: one entry per result of the function: its value if known at compile time, which the kernel then does not
        compute, else None.
    omits_rare_branches: the kernel contains usual branches only. Its last result is a flag for each member that takes
        a rare branch and must be computed again.
    with_all_branches: the kernel for these members, compiled when it is first called; None: JAX computes them.
    """

    name: str
    results: list[jax.ShapeDtypeStruct]
    constants: list[np.ndarray | None]
    omits_rare_branches: bool = False
    with_all_branches: "Kernel | None" = None


def _call(kernel, arguments, mapped):
    """The results of a kernel, then the flags of members that take a rare branch, or None if it has no such flags."""
    batch = arguments[mapped.index(True)].shape[-1:] if any(mapped) else ()
    shapes = [jax.ShapeDtypeStruct((*x.shape, *batch), x.dtype) for x in kernel.results]
    results = call_kernel(kernel.name, arguments, shapes) if shapes else []
    needs_fallback = results.pop() if kernel.omits_rare_branches else None
    computed = iter(results)
    broadcast = lambda x: jnp.broadcast_to(jnp.asarray(x)[(..., *(None,) * len(batch))], (*x.shape, *batch))
    return [*(next(computed) if x is None else broadcast(x) for x in kernel.constants), needs_fallback]


@cached_per_jaxpr
def build_kernel(jaxpr: ClosedJaxpr, mapped: tuple[bool, ...], max_operations: int) -> Kernel:
    """Compile the kernel of a function of one member. Raises ``TooLarge`` above ``max_operations``."""
    reject_keys(jaxpr.jaxpr.invars)
    for aval in jaxpr.in_avals:
        refuse_type(aval.dtype)
    graph, inputs, results = _graph_of(jaxpr, max_operations, True)
    avals = list(jaxpr.out_avals)
    constants = [
        None if x.dtype == object else np.asarray(x, aval.dtype) for x, aval in zip(results, avals, strict=True)
    ]
    computed = [(x, aval) for x, aval, value in zip(results, avals, constants, strict=True) if value is None]
    needs_fallback = graph.failed_assumption(graph.num_checked)
    has_rare_branches = len(graph.assumed_zero) > graph.num_checked  # those that the function does not handle itself
    if has_rare_branches:
        computed.append((object_array([needs_fallback], ()), ShapedArray((), np.dtype(bool))))
    if not computed:
        return Kernel("", [], constants)
    name = register_kernel(*_program(graph, inputs, computed, jaxpr, mapped))
    is_small = has_rare_branches and len(graph.operations) * branch_cost_ratio(jaxpr) <= MAX_OPERATIONS_ALL_BRANCHES
    complete = _with_all_branches(name, jaxpr, mapped) if is_small else None
    return Kernel(
        name,
        [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for _, aval in computed],
        constants,
        has_rare_branches,
        complete,
    )


def _with_all_branches(name, jaxpr, mapped):
    """The kernel that contains all branches."""

    def make():
        graph, inputs, results = _graph_of(jaxpr, 10 * MAX_OPERATIONS, False)  # the estimate may be too low
        return handler_address(
            *_program(graph, inputs, list(zip(results, jaxpr.out_avals, strict=True)), jaxpr, mapped)
        )

    shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in jaxpr.out_avals]
    return Kernel(register_deferred(name, jaxpr, make), shapes, [None] * len(shapes))


def _program(graph, inputs, results, jaxpr, mapped):
    """The program with these ``results``, and the buffers of its arguments and results."""
    program = Program(graph, [x for x, _ in results], [aval.dtype for _, aval in results], inputs, mapped)
    ins = [Buffer(aval.shape, aval.dtype, is_mapped) for aval, is_mapped in zip(jaxpr.in_avals, mapped, strict=True)]
    return program, ins, [Buffer(aval.shape, aval.dtype, any(mapped)) for _, aval in results]


def _graph_of(jaxpr, max_operations, usual_only):
    """The scalar graph of a function, its inputs and its results; with ``usual_only``, usual branches only."""
    graph = Graph(max_operations, usual_only)
    in_memory = lambda k, aval: Stored(Memory(aval.size, aval.dtype, 0, source=k), aval.shape)
    inputs = [
        in_memory(k, aval) if aval.size > MAX_UNPACKED_SIZE else graph.inputs(aval.shape, aval.dtype)
        for k, aval in enumerate(jaxpr.in_avals)
    ]
    return graph, inputs, unroll(graph, jaxpr, inputs, "cpu")


def _is_nested_kernel(equation):
    """Whether an equation is a ``per_member`` call that is compiled as a kernel."""
    return equation.primitive is per_member_p and not equation.params["options"].without_kernel


def _member_by_member(*arguments, jaxpr, mapped, options):
    """Call the function for one member after the other, by ``lax.map``.

    The matrices are large enough to occupy a core and stay in its caches, and a conditional executes one branch only.
    """
    batched = [jnp.moveaxis(x, -1, 0) for x, is_mapped in zip(arguments, mapped, strict=True) if is_mapped]

    def member(batched):
        batched = iter(batched)
        return jaxpr_as_fun(jaxpr)(
            *(next(batched) if is_mapped else x for x, is_mapped in zip(arguments, mapped, strict=True))
        )

    return [jnp.moveaxis(x, 0, -1) for x in jax.lax.map(member, batched)]


mlir.register_lowering(per_member_p, mlir.lower_fun(by_vmap, multiple_results=True))


def _lower_on_cpu(context, *arguments, **parameters):
    exported = context.module_context.lowering_parameters.for_export
    function = by_vmap if exported else _by_kernel
    return mlir.lower_fun(function, multiple_results=True)(context, *arguments, **parameters)


mlir.register_lowering(per_member_p, _lower_on_cpu, platform="cpu")
