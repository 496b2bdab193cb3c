"""How a step of a batch is done: as a whole, or in turns; written out, or as JAX would do it.

In turns, every stage is one of a loop, in which the acceleration stands once: soonest compiled. As a whole, all stages
are written out for one member, and done in one loop over the members: what one stage leaves for the next stays in the
processor. That saves a tenth of a microsecond a step, and takes the compiler the longer, the more there is to write.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

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
"""Up to so many operations in all its stages, a step of many members is compiled as soon as a whole."""

LONG = 7500
"""With more, what one stage leaves for the next does not stay in the processor, or it hardly matters."""

STEPS_PER_OPERATION = 1000
"""In between, so many steps of members for each are worth the time of compiling it."""

SHORT_STAGE, LONG_STAGE = 600, 3000
"""Up to so many operations, a stage is compiled as soon written out, however few members there are; and quicker by as
much as ``OFTEN`` steps are worth."""

OFTEN = 300


class Manner(NamedTuple):
    """By which method a step is done as a ``whole``, if that is better; and from how many members on, ``few``, what is
    done is written out: 1 for a motion alone."""

    whole: AbstractMethod | Levels | None = None
    few: int = FEW

    @classmethod
    def of(cls, request: Request, start: Start) -> "Manner":
        """What is best for the steps of this motion, or of each of this batch."""
        steps = 0 if request.counts is None else request.counts.most * (request.ts.size - 1)
        if start.q.ndim == 1:
            if request.long:
                return cls(request.by, 1)
            # By the method asked for it is in a program that is being traced: in a ``vmap``, for all one knows.
            return cls() if isinstance(request.by, Levels) else cls(request.by, 2 if steps >= OFTEN else FEW)
        levels, tableau, members = first_levels(request), request.tableau, start.q.shape[0]
        if jax.default_backend() != "cpu" or levels is None or levels.in_loops or tableau is None:
            return cls()
        if request.long:
            return cls(levels, 2)
        if not isinstance(members, int):  # symbolic, where it is exported
            return cls()
        many = members >= FEW
        of_one = lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
        at = jax.tree.map(of_one, (request.ts, start.q, start.v, start.numbers))
        most = LONG // tableau.stages if many else LONG_STAGE if steps >= OFTEN else SHORT_STAGE
        of_stage = operations(_stage, request, levels.acceleration, *at, most=most)
        if of_stage is None:
            return cls()
        worth = min(LONG, steps * max(members, FEW) // STEPS_PER_OPERATION)  # fewer take as long
        whole = not request.brief and tableau.stages * of_stage <= (max(SHORT, worth) if many else worth)
        return cls(levels if whole else None, 2)


def _stage(request, method, t, q, v, numbers):
    return rates_at(request.model_of(numbers), method, t, q, v, request.projection)


Turn = Callable[..., tuple[Any, Bool[Array, "*batch"]]]
"""``turn(each, method, *at)``: results, and whether they are beyond what the method can do."""


def of_each(
    turn: Turn,
    model_of: Callable,
    method: AbstractMethod | Levels,
    manner: Manner,
) -> Callable[..., tuple[Any, Bool[Array, " batch"]]]:
    """``turn`` of each of a batch, whose members are the last axis of all arrays: a function of the ``numbers`` of
    their models, ``model_of`` them the model of one, and of what else a turn takes.

    As a whole, it is done again by the ``method``, where that is another, if it is beyond it for any; and what that
    finds is given to those alone: what befalls one member is not to change another.
    """
    whole, few = manner

    def in_turns(numbers, *at):
        return turn(Together(model_of, numbers, few), method, *at)

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
