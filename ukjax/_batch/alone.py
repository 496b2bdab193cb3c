"""A function of one member that is done alone, again and again: thousands of small operations of JAX written out in one
loop of a single turn."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr
from jaxtyping import Array

from .entries import numbers_in, objects
from .graph import Graph, Number, TooLarge
from .kernel import evaluate, needed_for, unpack
from .primitive import as_is
from .refusal import Unsupported
from .transform import smaller
from .unroll import unroll

FEWEST = 400
"""Operations of JAX from which on it pays: of fewer, XLA makes a few good loops."""

AT_ONCE = 2
"""Operations on numbers for each of JAX's up to which it pays, where the program runs and where it is compiled: more of
them are done better as JAX does it, many numbers at once."""

MOVES = frozenset(
    "broadcast_in_dim convert_element_type copy expand_dims iota reshape rev slice split squeeze stop_gradient "
    "transpose".split()
)
"""Operations of JAX that cost nothing, or little."""


def alone(arguments: Sequence[Array], jaxpr: ClosedJaxpr, given: int) -> list[Array] | None:
    """The results of ``jaxpr``; None where that is better done as JAX does it. The first arguments, as many as are
    ``given``, stay the same from call to call: what follows from them alone, XLA does once, before all calls."""
    operations = _operations(jaxpr.jaxpr)
    if operations < FEWEST:
        return None
    graph, inputs = Graph(AT_ONCE * operations, usual=False, sines=False), []
    try:
        for aval in jaxpr.in_avals:
            entries = np.empty(int(np.prod(aval.shape, dtype=int)), object)
            entries[:] = [graph.input(aval.dtype) for _ in range(entries.size)]
            inputs.append(entries.reshape(aval.shape))
        results = [objects(x) for x in unroll(graph, jaxpr, inputs, "cpu")]
        varying = graph.following(numbers_in(*inputs[given:]))
        moves = [any(x.index in varying for x in numbers_in(result)) for result in results]
        computed = numbers_in(*(x for x, own in zip(results, moves, strict=True) if own))
        if not computed:
            return None
        values = _evaluated(graph, computed, arguments, inputs, given)
    except (TooLarge, Unsupported):
        return None
    still, used = smaller(jaxpr, tuple(not own for own in moves))
    arguments = [x for x, own in zip(arguments, used, strict=True) if own]
    rest = iter(as_is(*arguments, jaxpr=still, mapped=(False,) * len(arguments), how=None))
    packed = _packed(computed, values)
    return [
        _array(x, aval, *packed[aval.dtype]) if own else next(rest)
        for x, aval, own in zip(results, jaxpr.out_avals, moves, strict=True)
    ]


def _operations(jaxpr: Jaxpr) -> int:
    """How many JAX does."""
    total = 0
    for equation in jaxpr.eqns:
        inside = [x.jaxpr if isinstance(x, ClosedJaxpr) else x for x in equation.params.values()]
        inside = [x for x in inside if isinstance(x, Jaxpr)]
        if inside:
            total += equation.params.get("length", 1) * sum(map(_operations, inside))
        elif equation.primitive.name not in MOVES:
            total += 1
    return total


def _evaluated(graph, computed, arguments, inputs, given):
    """The values of numbers of the graph."""
    needed = needed_for(graph, computed)
    groups: dict[Any, list[Any]] = {}
    for k, (x, entries) in enumerate(zip(arguments, inputs, strict=True)):
        used = [i for i, entry in enumerate(entries.ravel()) if entry.index in needed]
        if used:
            taken = x.ravel() if len(used) == entries.size else x.ravel()[np.array(used)]
            groups.setdefault((k < given, x.dtype), []).append(([entries.ravel()[i].index for i in used], taken))
    common, own = {}, {}
    for (at_rest, _), parts in groups.items():
        indices = [i for part, _ in parts for i in part]
        for i, value in zip(indices, unpack(jnp.concatenate([x for _, x in parts])), strict=True):
            (common if at_rest else own)[i] = value if at_rest else value[None]
    return evaluate(graph, computed, common, own, 1)


def _packed(computed, values):
    """Of each type a vector of all values, and which of it is what number."""
    packed = {}
    for kind in dict.fromkeys(x.dtype for x in computed):
        mine = [(x.index, value) for x, value in zip(computed, values, strict=True) if x.dtype == kind]
        packed[kind] = (
            jnp.concatenate([value.reshape(1) for _, value in mine]),
            {index: place for place, (index, _) in enumerate(mine)},
        )
    return packed


def _array(entries, aval, vector, places):
    """An array of some numbers of a vector, and of constants. Each is taken from one vector of both: to put together
    many pieces takes XLA long, and to scatter few a loop."""
    constants: dict[bytes, Any] = {}  # by their bits: 0.0 and −0.0 are equal, and NaN is not itself
    at = np.empty(entries.size, np.int32)
    for i, x in enumerate(entries.ravel()):
        if isinstance(x, Number):
            at[i] = places[x.index]
        else:
            at[i] = vector.size + constants.setdefault(x.tobytes(), (len(constants), x))[0]
    if constants:
        vector = jnp.concatenate([vector, jnp.asarray([x for _, x in constants.values()], aval.dtype)])
    return vector.at[at].get(mode="promise_in_bounds").reshape(aval.shape)
