"""How a step of a batch is done: as a whole, or in turns.

In turns, every stage is one of a loop, in which the acceleration stands once: soonest compiled. As a whole, all stages
are written out for one member, and done in one loop over the members: what one stage leaves for the next stays in the
processor. That saves a tenth of a microsecond a step, and takes the compiler the longer, the more there is to write.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from .._batch import per_member
from .._batch.length import operations
from .._batch.lowering import FEW
from .._solve import AbstractMethod
from .attempts import first_levels
from .base import Request, Start
from .correct import Levels
from .each import Alone, Together
from .step import rates_at

SHORT = 1500
"""Up to so many operations in all its stages, a step is compiled as soon as a whole."""

LONG = 7500
"""With more, what one stage leaves for the next does not stay in the processor, or it hardly matters."""

STEPS_PER_OPERATION = 1000
"""In between, so many steps of members for each are worth the time of compiling it."""

Turn = Callable[..., tuple[Any, Bool[Array, "*batch"]]]
"""``turn(each, method, *at)``: results, and whether they are beyond what the method can do."""


def whole_by(request: Request, start: Start) -> AbstractMethod | Levels | None:
    """The method by which steps are done as a whole, if that is better: they are short, or there is much to be done."""
    if start.q.ndim == 1:
        return request.by if request.long else None
    levels, tableau, members = first_levels(request), request.tableau, start.q.shape[0]
    if jax.default_backend() != "cpu" or request.brief or levels is None or levels.in_loops or tableau is None:
        return None
    if request.long:
        return levels
    if not isinstance(members, int) or members < FEW:  # symbolic, where it is exported
        return None
    of_one = lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
    at = jax.tree.map(of_one, (request.ts, start.q, start.v, start.numbers))
    of_stage = operations(_stage, request, levels.acceleration, *at, most=LONG // tableau.stages)
    steps = 0 if request.counts is None else request.counts.most * (request.ts.size - 1) * members
    most = max(SHORT, min(LONG, steps // STEPS_PER_OPERATION))
    return levels if of_stage is not None and tableau.stages * of_stage <= most else None


def _stage(request, method, t, q, v, numbers):
    return rates_at(request.model_of(numbers), method, t, q, v)


def of_each(
    turn: Turn,
    model_of: Callable,
    method: AbstractMethod | Levels,
    whole: AbstractMethod | Levels | None,
    few: int = FEW,
) -> Callable[..., tuple[Any, Bool[Array, " batch"]]]:
    """``turn`` of each of a batch, whose members are the last axis of all arrays: a function of the ``numbers`` of
    their models, ``model_of`` them the model of one, and of what else a turn takes.

    By ``whole`` it is done as a whole; then, if that is beyond it for any, again by the ``method`` where that is
    another, and what it finds is given to those alone: what befalls one member is not to change another.
    """

    def in_turns(numbers, *at):
        return turn(Together(model_of, numbers), method, *at)

    alone = per_member(lambda numbers, *at: turn(Alone(model_of(numbers)), whole, *at), few)

    def as_a_whole(numbers, *at):
        axes = jax.tree.map(lambda x: -1 if jnp.ndim(x) else None, (numbers, *at))
        found, beyond = jax.vmap(alone, in_axes=axes, out_axes=-1)(numbers, *at)
        if whole is method:
            return found, beyond

        def again():
            return jax.tree.map(lambda new, old: jnp.where(beyond, new, old), in_turns(numbers, *at), (found, beyond))

        return jax.lax.cond(jnp.any(beyond), again, lambda: (found, beyond))

    return in_turns if whole is None else as_a_whole
