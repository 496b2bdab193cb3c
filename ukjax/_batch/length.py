"""How long a function of one member is, written out for a batch."""

from collections.abc import Callable
from typing import Any

import equinox as eqx

from .entries import objects
from .graph import Graph, Number, TooLarge
from .kernel import needed_for
from .refusal import Unsupported
from .unroll import unroll


def operations(function: Callable, *arguments: Any, most: int) -> int | None:
    """How many operations ``function`` of pytrees of arrays, or of their shapes, needs; None if it is more than
    ``most``, or cannot be written out."""
    traced, _, _ = eqx.filter_make_jaxpr(function)(*arguments)
    graph = Graph(most, usual=True)
    try:
        results = unroll(graph, traced, [graph.inputs(x.shape, x.dtype) for x in traced.in_avals], "cpu")
    except (TooLarge, Unsupported):
        return None
    numbers = [x for result in results for x in objects(result).flat if isinstance(x, Number)]
    count = len(needed_for(graph, numbers))
    return count if count <= most else None
