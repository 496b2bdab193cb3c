"""Lower ``per_member`` to a kernel on a CPU or a GPU of NVIDIA, and to ``jax.vmap`` where none can be compiled."""

import contextlib
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.interpreters import mlir

from .._jaxpr.nested import any_equation
from .._run.compile import has_room_for_kernels
from .cost import branch_cost_ratio
from .graph.fold import refuse_type
from .graph.graph import Graph, Memory, TooLarge
from .llvm import stored
from .llvm.deferred import register_deferred
from .llvm.ffi_call import Buffer, call_kernel, code_of, handler_address, register_kernel
from .llvm.machine import is_available, warn_no_compiler, warn_no_room
from .llvm.program import Program
from .primitive import batch_size, by_vmap, cached_per_jaxpr, per_member_p
from .unroll.entries import Stored, object_array
from .unroll.interpreter import reject_keys, unroll
from .unroll.loops import has_kept_loop, has_while_loop
from .unsupported import Unsupported, raise_too_large, report

MAX_OPERATIONS = 300_000
"""Largest kernel, in operations; compilation takes some 0.1 ms for each. A larger function is executed by the
``per_member`` functions that it calls, or else member by member."""

MAX_OPERATIONS_UNBATCHED = 30_000
"""Largest kernel for one member without long loops. Above it matrices are large: XLA compiles faster, with LAPACK."""

MAX_OPERATIONS_ALL_BRANCHES = MAX_OPERATIONS
"""Largest estimated size of a kernel with all branches. Above it, JAX executes the members that take a rare branch."""

MAX_OPERATIONS_ON_GPU = 60_000
"""Largest kernel for a GPU, in operations: the driver needs some 0.5 ms for each."""

MAX_UNPACKED_SIZE = 512
"""Arguments with more entries stay arrays in memory, and entries are loaded where they are used."""


class Target(NamedTuple):
    """Settings that depend on the processor for which kernels are compiled.

    Attributes
    ----------
    platform
        JAX's name of the platform.
    max_operations
        Largest kernel, in operations.
    register
        Registers a kernel with its buffers, and returns its XLA target name.
    register_complete
        Registers the kernel for rare cases, whose program ``make()`` returns, beside the kernel ``name``; None if such
        members are computed by JAX.
    is_stored
        Whether kernels are stored on disk for later processes.
    """

    platform: str
    max_operations: int
    register: Callable[[Program, Sequence[Buffer], Sequence[Buffer]], str]
    register_complete: Callable[..., str | None]
    is_stored: bool


def _complete_on_cpu(name, jaxpr, ins, outs, make):
    return register_deferred(name, jaxpr, lambda: handler_address(make(), ins, outs))


CPU = Target("cpu", MAX_OPERATIONS, register_kernel, _complete_on_cpu, is_stored=True)


@functools.cache
def _cuda():
    """The target for GPUs of NVIDIA, imported where such a program is lowered."""
    from .cuda import launch

    return Target("cuda", MAX_OPERATIONS_ON_GPU, launch.register_kernel, launch.register_complete, is_stored=False)


def kernels_available() -> bool:
    """Whether ``per_member`` compiles kernels: on a CPU or a GPU of NVIDIA, if llvmlite is installed."""
    backend = jax.default_backend()
    return is_available() and (backend == "cpu" or backend == "gpu" and _is_cuda() and cuda_kernels_enabled())


def _is_cuda():
    """Whether the GPU is one of NVIDIA, rather than of AMD."""
    return "cuda" in jax.devices("gpu")[0].client.platform_version.lower()


def cuda_kernels_enabled() -> bool:
    """Whether kernels are compiled for GPUs: not if the environment variable ``UKJAX_CUDA_KERNELS`` is 0."""
    return os.environ.get("UKJAX_CUDA_KERNELS") != "0"


def _by_kernel(*arguments, jaxpr, mapped, options, target):
    """Call a kernel; a single member is a batch of one."""
    members = batch_size(arguments, mapped)
    plain = {"jaxpr": jaxpr, "mapped": mapped, "options": options}
    if options.without_kernel or not isinstance(members, int | None):  # the size is symbolic in jax.export
        return by_vmap(*arguments, **plain)
    if not is_available():
        warn_no_compiler()
        return by_vmap(*arguments, **plain)
    if not has_room_for_kernels():
        warn_no_room()
        return by_vmap(*arguments, **plain)
    # A GPU computes all members together, also if XLA compiles them.
    one_by_one = _member_by_member if any(mapped) and target.platform == "cpu" else by_vmap
    try:
        is_limited = not (any(mapped) or options.strict or has_kept_loop(jaxpr))
        kernel = build_kernel(jaxpr, mapped, MAX_OPERATIONS_UNBATCHED if is_limited else target.max_operations, target)
    except TooLarge:
        if options.strict:
            raise_too_large(target.max_operations, options)
        return (by_vmap if any_equation(jaxpr, _is_nested_kernel) else one_by_one)(*arguments, **plain)
    except Unsupported as error:
        report(error, options)
        return by_vmap(*arguments, **plain)
    *results, needs_fallback = _call(kernel, arguments, mapped)
    if needs_fallback is None:
        return results

    def fallback():
        if kernel.with_all_branches is None:
            complete = one_by_one(*arguments, **plain)
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
def build_kernel(jaxpr: ClosedJaxpr, mapped: tuple[bool, ...], max_operations: int, target: Target = CPU) -> Kernel:
    """Compile the kernel of a function of one member. Raises ``TooLarge`` above ``max_operations``.

    With JAX's compilation cache, a kernel that an earlier process compiled is loaded from disk.
    """
    stored_name = stored.name_of(jaxpr, mapped, max_operations) if target.is_stored else None
    if stored_name is not None and (found := stored.load(stored_name)) is not None:
        kernel, has_complete = found
        complete = _with_all_branches(kernel.name, jaxpr, mapped, target) if has_complete else None
        return kernel._replace(with_all_branches=complete)
    kernel = _built(jaxpr, mapped, max_operations, target)
    if stored_name is not None and kernel.name:
        found = kernel._replace(with_all_branches=None), kernel.with_all_branches is not None
        stored.store(stored_name, kernel.name, code_of(kernel.name), found)
    return kernel


def _built(jaxpr, mapped, max_operations, target):
    reject_keys(jaxpr.jaxpr.invars)
    for aval in jaxpr.in_avals:
        refuse_type(aval.dtype)
    graph, inputs, results = _graph_of(jaxpr, max_operations, True, target.platform)
    is_small = (
        _has_rare_branches(graph) and len(graph.operations) * branch_cost_ratio(jaxpr) <= MAX_OPERATIONS_ALL_BRANCHES
    )
    is_motion = not any(mapped) and has_while_loop(jaxpr) and target.platform == "cpu"
    if is_motion and _has_rare_branches(graph) and not is_small:
        # Otherwise XLA would compile the whole motion again. One member executes one branch only.
        with contextlib.suppress(TooLarge):
            graph, inputs, results = _graph_of(jaxpr, max_operations, False, target.platform)
    avals = list(jaxpr.out_avals)
    constants = [
        None if x.dtype == object else np.asarray(x, aval.dtype) for x, aval in zip(results, avals, strict=True)
    ]
    computed = [(x, aval) for x, aval, value in zip(results, avals, constants, strict=True) if value is None]
    needs_fallback = graph.failed_assumption(graph.num_checked)
    has_rare_branches = _has_rare_branches(graph)
    if has_rare_branches:
        computed.append((object_array([needs_fallback], ()), ShapedArray((), np.dtype(bool))))
    if not computed:
        return Kernel("", [], constants)
    name = target.register(*_program(graph, inputs, computed, jaxpr, mapped))
    complete = _with_all_branches(name, jaxpr, mapped, target) if is_small else None
    return Kernel(
        name,
        [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for _, aval in computed],
        constants,
        has_rare_branches,
        complete,
    )


def _has_rare_branches(graph):
    """Whether members that take a rare branch have to be computed again. A function may handle some branches itself."""
    return len(graph.assumed_zero) > graph.num_checked


def _with_all_branches(name, jaxpr, mapped, target):
    """The kernel that contains all branches."""

    def make():
        graph, inputs, results = _graph_of(jaxpr, 10 * MAX_OPERATIONS, False, target.platform)  # estimates may be low
        return _program(graph, inputs, list(zip(results, jaxpr.out_avals, strict=True)), jaxpr, mapped)[0]

    complete = target.register_complete(name, jaxpr, *_buffers(jaxpr, jaxpr.out_avals, mapped), make)
    shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in jaxpr.out_avals]
    return None if complete is None else Kernel(complete, shapes, [None] * len(shapes))


def _program(graph, inputs, results, jaxpr, mapped):
    """The program with these ``results``, and the buffers of its arguments and results."""
    program = Program(graph, [x for x, _ in results], [aval.dtype for _, aval in results], inputs, mapped)
    return program, *_buffers(jaxpr, [aval for _, aval in results], mapped)


def _buffers(jaxpr, results, mapped):
    """The buffers of the arguments of a function, and of these results."""
    ins = [Buffer(aval.shape, aval.dtype, is_mapped) for aval, is_mapped in zip(jaxpr.in_avals, mapped, strict=True)]
    return ins, [Buffer(aval.shape, aval.dtype, any(mapped)) for aval in results]


def _graph_of(jaxpr, max_operations, usual_only, platform):
    """The scalar graph of a function, its inputs and its results; with ``usual_only``, usual branches only."""
    graph = Graph(max_operations, usual_only)
    in_memory = lambda k, aval: Stored(Memory(aval.size, aval.dtype, 0, source=k), aval.shape)
    inputs = [
        in_memory(k, aval) if aval.size > MAX_UNPACKED_SIZE else graph.inputs(aval.shape, aval.dtype)
        for k, aval in enumerate(jaxpr.in_avals)
    ]
    return graph, inputs, unroll(graph, jaxpr, inputs, platform)


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
    return _lower(context, arguments, parameters, lambda: CPU)


def _lower_on_cuda(context, *arguments, **parameters):
    return _lower(context, arguments, parameters, _cuda if cuda_kernels_enabled() and is_available() else None)


def _lower(context, arguments, parameters, target):
    if context.module_context.lowering_parameters.for_export or target is None:
        return mlir.lower_fun(by_vmap, multiple_results=True)(context, *arguments, **parameters)
    function: Any = functools.partial(_by_kernel, target=target())
    return mlir.lower_fun(function, multiple_results=True)(context, *arguments, **parameters)


mlir.register_lowering(per_member_p, _lower_on_cpu, platform="cpu")
mlir.register_lowering(per_member_p, _lower_on_cuda, platform="cuda")
