"""How long a function of one member is, written out for a batch."""

from collections.abc import Callable
from typing import Any

import equinox as eqx

from .entries import objects
from .graph import Graph, Number, TooLarge
from .kernel import SEGMENT, needed_for
from .refusal import Unsupported
from .unroll import unroll


def is_one_loop(function: Callable, *arguments: Any, times: int = 1) -> bool:
    """Whether ``function`` of pytrees of arrays, or of their shapes, done so many ``times``, would be one loop."""
    traced, _, _ = eqx.filter_make_jaxpr(function)(*arguments)
    graph = Graph(SEGMENT // times, usual=True)
    try:
        results = unroll(graph, traced, [graph.inputs(x.shape, x.dtype) for x in traced.in_avals], "cpu")
    except (TooLarge, Unsupported):
        return False
    numbers = [x for result in results for x in objects(result).flat if isinstance(x, Number)]
    return len(needed_for(graph, numbers)) <= graph.most
