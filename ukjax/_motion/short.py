"""Whether the steps of a batch are so short that each is done best as a whole."""

import jax

from .._batch.length import is_one_loop
from .._batch.lowering import FEW
from .base import Request, Start
from .correct import Levels
from .step import rates_at


def is_short(request: Request, start: Start) -> bool:
    """Whether all stages of a step of these explicit steps, written out, are one loop over the members: no longer in
    compiling, and several times quicker, than turns that are a loop each, and more, for a few operations."""
    by, tableau = request.by, request.tableau
    if jax.default_backend() != "cpu" or request.brief or tableau is None:
        return False
    if not isinstance(by, Levels) or by.in_loops or start.q.ndim == 1:
        return False
    members = start.q.shape[0]
    if not isinstance(members, int) or members < FEW:  # symbolic, where it is exported
        return False
    of_one = lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
    t, q, v, numbers = jax.tree.map(of_one, (request.ts, start.q, start.v, start.numbers))
    return is_one_loop(_stage, request, t, q, v, numbers, times=tableau.stages)


def _stage(request, t, q, v, numbers):
    assert isinstance(request.by, Levels)
    return rates_at(request.by.acceleration, request.model_of(numbers), t, q, v)
