"""``per_member(f)``: f itself, done well in a batch.

One operation of JAX stands for the whole function. ``vmap``, nested or not, only notes which arguments have one entry
per member, and the batch stays the last axis, where entries of different members are neighbours in memory; derivatives
are operations of the same kind, so the values of a factorisation are computed where they are used and never kept.
"""

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray, Tracer
from jax.extend.core import ClosedJaxpr, Jaxpr, Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir
from jax.interpreters import partial_eval as pe

from .graph import Graph, TooLarge
from .kernel import evaluate, spread, unpack
from .unroll import Unsupported, unroll

FEW = 128
"""Less than this many members are not worth the time of compiling, where each is done once."""

MOST = 24_000
"""How many operations are written out: compiling takes half a millisecond to two for each. What has more is done in the
pieces it is made of, if those are functions of one member too, or else one member after the other."""

MOST_WITH_CHOICES = 5_000
"""The same with what is rare: a singular mass matrix, redundant rows."""

per_member_p = Primitive("per_member")
per_member_p.multiple_results = True


def per_member(function: Callable, few: int = FEW) -> Callable:
    """``function`` of pytrees of arrays, with the same values and derivatives: made to be batched.

    It belongs inside ``jit``, as in ``jax.jit(jax.vmap(uk.per_member(f)))``. Called outside, it compiles itself, and
    the rules are those of ``jax.jit``: ``function`` is traced once for all arguments of like shapes and types, so what
    it takes from outside (a global, a field of an object) stays as it was then; Python numbers among the arguments are
    constants, each value a program of its own; keep what ``per_member`` returns, for what it compiled goes with it.

    What is written out must be pure arithmetic with loops of known length; anything else is done as JAX would, and so
    are less than ``few`` members. A zero known from the start times any number is 0, be that infinite or NaN.
    """

    # ``jit`` keeps what it traced and compiled for as long as the function that it is given, in its own caches, which
    # ``jax.clear_caches`` empties. Inlined, it leaves no trace in a program around it.
    @functools.partial(jax.jit, static_argnums=0, inline=True)
    def done(given: _Fixed, leaves: list[Any]) -> _Results:
        structure: Any = None

        def flat(*leaves):
            nonlocal structure
            results, fixed = eqx.partition(function(*given.arguments(leaves)), eqx.is_array)
            results, tree = jax.tree.flatten(results)
            structure = tree, fixed
            return results

        traced = jax.make_jaxpr(flat)(*leaves)
        if traced.effects:
            return _Results(*eqx.partition(function(*given.arguments(leaves)), eqx.is_array))
        closed, held = _without_closure(traced, leaves)
        results = per_member_p.bind(*held, *leaves, jaxpr=closed, mapped=(False,) * (len(held) + len(leaves)), few=few)
        tree, fixed = structure
        return _Results(jax.tree.unflatten(tree, results), fixed)

    @functools.wraps(function)
    def wrapped(*arguments: Any) -> Any:
        dynamic, static = eqx.partition(arguments, eqx.is_array)
        leaves, tree = jax.tree.flatten(dynamic)
        given = _Fixed(tree, static)
        found = (done if given.is_hashable() else done.__wrapped__)(given, leaves)
        return eqx.combine(found.arrays, found.fixed)

    return wrapped


class _Fixed:
    """What one program is made for: all of the arguments but their arrays. Equal if nothing tells them apart."""

    def __init__(self, tree: Any, static: Any):
        self.tree, self.static = tree, static
        values, structure = jax.tree.flatten(static)
        # 1, 1.0 and True are equal, and so are 0.0 and −0.0, but not their programs.
        told_apart = [(type(x), repr(x) if isinstance(x, complex | float | int) else x) for x in values]
        self.key = (tree, structure, *told_apart)

    def arguments(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        return eqx.combine(jax.tree.unflatten(self.tree, leaves), self.static)

    def is_hashable(self) -> bool:
        try:
            hash(self)
        except TypeError:
            return False
        return True

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _Fixed) and self.key == other.key


class _Results(eqx.Module):
    """What a function gave: its arrays, and all else, which a compiled program cannot return."""

    arrays: Any
    fixed: Any = eqx.field(static=True)


def _without_closure(traced, leaves):
    """``traced`` with what it holds of values that are themselves traced, or batched, as arguments before the others;
    and those values."""
    places = [i for i, x in enumerate(traced.consts) if isinstance(x, Tracer)]
    if not places:
        return traced, []
    held = [traced.consts[i] for i in places]

    def opened(held, *leaves):
        consts = list(traced.consts)
        for i, x in zip(places, held, strict=True):
            consts[i] = x
        return jaxpr_as_fun(ClosedJaxpr(traced.jaxpr, consts))(*leaves)

    return jax.make_jaxpr(opened)(held, *leaves), held


def _size(arguments, mapped):
    return next((x.shape[-1] for x, own in zip(arguments, mapped, strict=True) if own), None)


@per_member_p.def_abstract_eval
def _abstract(*avals, jaxpr, mapped, few):
    size = _size(avals, mapped)
    batch = () if size is None else (size,)
    return [ShapedArray((*out.shape, *batch), out.dtype) for out in jaxpr.out_avals]


@functools.lru_cache(maxsize=128)  # with each the constants in it stay: not for ever
def _compiled(jaxpr, mapped, few):
    return jax.jit(lambda *arguments: per_member_p.bind(*arguments, jaxpr=jaxpr, mapped=mapped, few=few))


@per_member_p.def_impl
def _now(*arguments, jaxpr, mapped, few):
    """Outside of any ``jit``: where arguments have no hash, and in a gradient's way back."""
    if jax.config.jax_disable_jit:
        return _as_is(*arguments, jaxpr=jaxpr, mapped=mapped, few=few)
    return _compiled(jaxpr, mapped, few)(*arguments)


def _kept_with_jaxpr(function):
    """``function(jaxpr, ...)``, done once for each jaxpr and other arguments, and forgotten with the jaxpr."""
    known = weakref.WeakKeyDictionary()

    @functools.wraps(function)
    def remembered(jaxpr, *others):
        found = known.setdefault(jaxpr, {})
        if others not in found:
            found[others] = function(jaxpr, *others)
        return found[others]

    return remembered


def _written_out(*arguments, jaxpr, mapped, few):
    """In loops over the batch; a single member is a batch of one.

    Where the function has choices, the usual case alone is done first; only if a member chose another is all done again
    with every case. The result is that of making every choice.
    """
    members = _size(arguments, mapped) or 1
    if few is None or members < few:
        return _as_is(*arguments, jaxpr=jaxpr, mapped=mapped, few=few)
    size = spread(members)
    try:
        results, unusual = _loops(arguments, jaxpr, mapped, size, True, MOST)
    except TooLarge:
        return (_as_is if _has_pieces(jaxpr) else _one_by_one)(*arguments, jaxpr=jaxpr, mapped=mapped, few=few)
    except Unsupported:
        return _as_is(*arguments, jaxpr=jaxpr, mapped=mapped, few=few)
    if unusual is None:
        return results

    def again():
        try:
            return _loops(arguments, jaxpr, mapped, size, False, MOST_WITH_CHOICES)[0]
        except (Unsupported, TooLarge):
            return _as_is(*arguments, jaxpr=_plain(jaxpr), mapped=mapped, few=None)

    return jax.lax.cond(unusual, again, lambda: results)


def _loops(arguments, jaxpr, mapped, size, usual, most):
    """The results of ``jaxpr``, and whether a member made another choice than the ``usual`` one: None if there is no
    choice."""
    graph, single = Graph(most, usual), not any(mapped)
    members = _size(arguments, mapped)
    own, packed, inputs = {}, {}, []
    for x, aval, per in zip(arguments, jaxpr.in_avals, mapped, strict=True):
        entries = np.empty(int(np.prod(aval.shape, dtype=int)), object)
        for i in range(entries.size):
            entries[i] = graph.input(aval.dtype)
        if per:
            rows = x.reshape(entries.size, members)
            own |= {entry.index: row for entry, row in zip(entries, rows, strict=True)}
        elif entries.size:
            packed.setdefault(aval.dtype, []).append((entries, x))
        inputs.append(entries.reshape(aval.shape))
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
    unusual = np.bool_(False)
    for choice in graph.granted:
        unusual = graph.apply("or", (unusual, graph.apply("ne", (choice, choice.dtype.type(0)))))
    *found, unusual = evaluate(graph, [*flat, unusual], common, own, size)
    out, batch = [], () if single else (members,)
    for part, aval in zip(numbers, jaxpr.out_avals, strict=True):
        rows, found = found[: len(part)], found[len(part) :]
        rows = [jnp.broadcast_to(x.astype(aval.dtype), (size,))[: members or 1] for x in rows]
        empty = jnp.zeros((*aval.shape, *batch), aval.dtype)
        out.append(jnp.stack(rows).reshape(empty.shape) if rows else empty)
    return out, jnp.any(unusual) if graph.granted else None


def _entries(x, aval):
    return list(x.ravel()) if x.dtype == object else [aval.dtype.type(value) for value in np.asarray(x).ravel()]


def _as_is(*arguments, jaxpr, mapped, few):
    """As JAX does it, but for functions of one member in it if they are to be done well."""
    function = jaxpr_as_fun(jaxpr)
    if not any(mapped):
        return function(*arguments)
    return jax.vmap(function, in_axes=tuple(-1 if own else None for own in mapped), out_axes=-1)(*arguments)


def _one_by_one(*arguments, jaxpr, mapped, few):
    """As JAX does it for one member after the other: their matrices are large enough to keep a core busy, stay in its
    caches, and a choice is made by the member alone."""
    own = [jnp.moveaxis(x, -1, 0) for x, per in zip(arguments, mapped, strict=True) if per]

    def member(own):
        own = iter(own)
        return jaxpr_as_fun(jaxpr)(*(next(own) if per else x for x, per in zip(arguments, mapped, strict=True)))

    return [jnp.moveaxis(x, 0, -1) for x in jax.lax.map(member, own)]


def _has_pieces(x: Any) -> bool:
    """Whether a jaxpr holds functions of one member."""
    if isinstance(x, ClosedJaxpr | Jaxpr):  # from jax 0.12 on the same
        return any(e.primitive is per_member_p or any(map(_has_pieces, e.params.values())) for e in x.eqns)
    return any(_has_pieces(part) for part in x) if isinstance(x, list | tuple) else False


@_kept_with_jaxpr
def _plain(jaxpr):
    """``jaxpr`` where every function of one member in it is done as JAX would: what is rare is not worth the time of
    compiling it well."""

    def changed(x: Any) -> Any:
        if isinstance(x, Jaxpr):
            return x.replace(eqns=[in_equation(equation) for equation in x.eqns])
        if isinstance(x, ClosedJaxpr):
            return x.replace(jaxpr=changed(x.jaxpr))
        if isinstance(x, tuple):
            parts = map(changed, x)
            return type(x)(*parts) if hasattr(x, "_fields") else tuple(parts)
        return x

    def in_equation(equation):
        parameters = {key: changed(x) for key, x in equation.params.items()}
        if equation.primitive is per_member_p:
            parameters["few"] = None
        return equation.replace(params=parameters)

    return changed(jaxpr)


mlir.register_lowering(per_member_p, mlir.lower_fun(_as_is, multiple_results=True))
mlir.register_lowering(per_member_p, mlir.lower_fun(_written_out, multiple_results=True), platform="cpu")


def _batch(arguments, axes, *, jaxpr, mapped, few):
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
    results = per_member_p.bind(*moved, jaxpr=jaxpr, mapped=tuple(now), few=few)
    if present:
        results = [x.reshape(*x.shape[:-1], size, added) for x in results]
    return results, [x.ndim - 1 for x in results]


batching.primitive_batchers[per_member_p] = _batch


def _is_float(aval):
    return jnp.issubdtype(aval.dtype, jnp.floating)


@_kept_with_jaxpr
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


def _jvp(primals, tangents, *, jaxpr, mapped, few):
    results = per_member_p.bind(*primals, jaxpr=jaxpr, mapped=mapped, few=few)
    moving = tuple(i for i, tangent in enumerate(tangents) if type(tangent) is not ad.Zero)
    changes = [ad.Zero(jax.typeof(x).to_tangent_aval()) for x in results]
    if moving:
        derivative, outputs = _tangent(jaxpr, moving)
        found = per_member_p.bind(
            *primals,
            *(tangents[i] for i in moving),
            jaxpr=derivative,
            mapped=(*mapped, *(mapped[i] for i in moving)),
            few=few,
        )
        for i, value in zip(outputs, found, strict=True):
            changes[i] = value
    return results, changes


ad.primitive_jvps[per_member_p] = _jvp


@_kept_with_jaxpr
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


def _transpose(cotangents, *arguments, jaxpr, mapped, few):
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
        few=few,
    )
    results: list[Any] = [None] * len(arguments)
    for i, x in zip(linear, found, strict=True):
        results[i] = jnp.sum(x, axis=-1) if own and not mapped[i] else x
    return results


ad.primitive_transposes[per_member_p] = _transpose


@_kept_with_jaxpr
def _smaller(jaxpr, used):
    """``jaxpr`` with the results that are ``used`` alone, and which of its arguments they need."""
    smaller, needed = pe.dce_jaxpr(jaxpr.jaxpr, list(used), instantiate=False)
    return ClosedJaxpr(smaller, jaxpr.consts), needed


def _without_unused(used, *rest):
    equation = rest[-1]  # some versions of JAX say more before it
    if not any(used):
        return [False] * len(equation.invars), None
    smaller, needed = _smaller(equation.params["jaxpr"], tuple(used))
    mapped = tuple(own for own, keep in zip(equation.params["mapped"], needed, strict=True) if keep)
    if any(equation.params["mapped"]) and not any(mapped):
        return [True] * len(equation.invars), equation
    kept = equation.replace(
        invars=[x for x, keep in zip(equation.invars, needed, strict=True) if keep],
        outvars=[x for x, keep in zip(equation.outvars, used, strict=True) if keep],
        params=equation.params | {"jaxpr": smaller, "mapped": mapped},
    )
    return needed, kept


pe.dce_rules[per_member_p] = _without_unused
