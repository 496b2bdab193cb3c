"""What a function of one member becomes in a compiled program: loops over the batch, or what JAX would do."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun
from jax.interpreters import mlir

from .alone import alone
from .graph import Graph, TooLarge
from .kernel import evaluate, spread, unpack
from .plainly import plain
from .primitive import as_is, holds, per_member_p, size_of
from .refusal import Unsupported, refuse_length, report
from .unroll import refuse_keys, unroll

FEW = 128
"""Less than this many members are not worth the time of compiling, where each is done once."""

MOST = 40_000
"""How many operations are written out: compiling takes half a millisecond to two for each. What has more is done in the
pieces it is made of, if those are functions of one member too, or else one member after the other."""

MOST_WITH_CHOICES = 5_000
"""The same with what is rare: a singular mass matrix, redundant rows."""


def _written_out(*arguments, jaxpr, mapped, how):
    """In loops over the batch; a single member is a batch of one.

    Where the function has choices, the usual case alone is done first; only if a member chose another is all done again
    with every case. Then the members that did are given what that finds, and the others stay as they are: two programs
    may round differently, and what befalls one member is not to change another.
    """
    members = size_of(arguments, mapped) or 1
    if how.alone is not None and not any(mapped):
        found = alone(arguments, jaxpr, how.alone)
        if found is not None:
            return found
    if how.few is None or not isinstance(members, int) or members < how.few:  # symbolic, where it is exported
        return as_is(*arguments, jaxpr=jaxpr, mapped=mapped, how=how)
    size = spread(members)
    try:
        results, unusual = _loops(arguments, jaxpr, mapped, size, True, MOST)
    except TooLarge:
        if how.strict:
            refuse_length(MOST, how)
        return (as_is if holds(jaxpr, _is_piece) else _one_by_one)(*arguments, jaxpr=jaxpr, mapped=mapped, how=how)
    except Unsupported as refusal:
        report(refusal, how)
        return as_is(*arguments, jaxpr=jaxpr, mapped=mapped, how=how)
    if unusual is None:
        return results

    def again():
        try:
            found = _loops(arguments, jaxpr, mapped, size, False, MOST_WITH_CHOICES)[0]
        except (Unsupported, TooLarge):
            found = as_is(*arguments, jaxpr=plain(jaxpr), mapped=mapped, how=how)
        return [jnp.where(unusual, new, old) for new, old in zip(found, results, strict=True)]

    return jax.lax.cond(jnp.any(unusual), again, lambda: results)


def _loops(arguments, jaxpr, mapped, size, usual, most):
    """The results of ``jaxpr``, and which members made another choice than the ``usual`` one: None if there is no
    choice."""
    refuse_keys(jaxpr.jaxpr.invars)
    graph, single = Graph(most, usual), not any(mapped)
    members = size_of(arguments, mapped)
    own, packed, inputs = {}, {}, []
    for x, aval, per in zip(arguments, jaxpr.in_avals, mapped, strict=True):
        entries = graph.inputs(aval.shape, aval.dtype)
        if per:
            rows = x.reshape(entries.size, members)
            own |= {entry.index: row for entry, row in zip(entries.flat, rows, strict=True)}
        elif entries.size:
            packed.setdefault(aval.dtype, []).append((entries.ravel(), x))
        inputs.append(entries)
    results = unroll(graph, jaxpr, inputs, "cpu")
    numbers = [_entries(x, aval) for x, aval in zip(results, jaxpr.out_avals, strict=True)]
    flat = [x for part in numbers for x in part]

    own = {i: jnp.pad(row, (0, size - members), mode="edge") for i, row in own.items()}
    common = {}
    for parts in packed.values():
        values = unpack(jnp.concatenate([x.ravel() for _, x in parts]))
        common |= {entry.index: x for entry, x in zip(np.concatenate([e for e, _ in parts]), values, strict=True)}
    if single:
        own, common = {i: x[None] for i, x in common.items()}, {}
    unusual = graph.wrongly_assumed(graph.told)
    *found, unusual = evaluate(graph, [*flat, unusual], common, own, size)
    out, batch = [], () if single else (members,)
    for part, aval in zip(numbers, jaxpr.out_avals, strict=True):
        rows, found = found[: len(part)], found[len(part) :]
        rows = [jnp.broadcast_to(x.astype(aval.dtype), (size,))[: members or 1] for x in rows]
        empty = jnp.zeros((*aval.shape, *batch), aval.dtype)
        out.append(jnp.stack(rows).reshape(empty.shape) if rows else empty)
    if len(graph.assumed_zero) == graph.told:
        return out, None
    return out, jnp.broadcast_to(unusual, (size,))[: members or 1].reshape(batch)


def _is_piece(equation):
    """Whether it is a function of one member that is done well in a batch by itself."""
    return equation.primitive is per_member_p and equation.params["how"].few is not None


def _entries(x, aval):
    return list(x.ravel()) if x.dtype == object else [aval.dtype.type(value) for value in np.asarray(x).ravel()]


def _one_by_one(*arguments, jaxpr, mapped, how):
    """As JAX does it for one member after the other: their matrices are large enough to keep a core busy, stay in its
    caches, and a choice is made by the member alone."""
    own = [jnp.moveaxis(x, -1, 0) for x, per in zip(arguments, mapped, strict=True) if per]

    def member(own):
        own = iter(own)
        return jaxpr_as_fun(jaxpr)(*(next(own) if per else x for x, per in zip(arguments, mapped, strict=True)))

    return [jnp.moveaxis(x, 0, -1) for x in jax.lax.map(member, own)]


mlir.register_lowering(per_member_p, mlir.lower_fun(as_is, multiple_results=True))
mlir.register_lowering(per_member_p, mlir.lower_fun(_written_out, multiple_results=True), platform="cpu")
