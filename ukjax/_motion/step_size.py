"""How long the next step may be, after Hairer, Nørsett & Wanner, Solving Ordinary Differential Equations I, II.4."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .scale import Scale
from .step import Stepped
from .tableau import Tableau

SAFETY, SHRINK, GROW = 0.9, 0.2, 10.0
MOVED = 10.0  # a correction by so much more than the error allowed shows that this was not seen
FIRST = 0.01  # the first step, as a share of the time in which the state changes by its own size


USUAL = {"float64": 1e-9, "float32": 1e-5}
"""Errors allowed in a step where nothing is asked for, beside the size of what is computed."""


class Tolerance(NamedTuple):
    """The error allowed in a step: ``relative`` to the size of what is computed, and besides, for ``q`` and ``v``."""

    relative: Float[Array, ""]
    q: Float[Array, " nq"]
    v: Float[Array, " n"]

    @classmethod
    def of(cls, relative: Array, absolute: Array | None, scale: Scale, xp: Any = jnp) -> "Tolerance":
        """With ``absolute``, a number or one per coordinate, or what is usual; by JAX or by NumPy."""
        usual = USUAL[str(scale.q.dtype)]
        at = lambda size: usual * size if absolute is None else xp.broadcast_to(absolute, size.shape)
        return cls(relative, at(scale.q), at(scale.v))

    def between(self, x: Float[Array, " n"], y: Float[Array, " n"], besides: Float[Array, " n"]) -> Float[Array, " n"]:
        """The error allowed between two states."""
        return besides + self.relative * jnp.maximum(jnp.abs(x), jnp.abs(y))


class Judged(NamedTuple):
    """The size of a step's ``error``, where 1 is allowed, infinite for one that went out of all bounds; the ``factor``
    for the next one's length; in place of all that, a length to begin with; and whether it ``began`` with finite
    terms."""

    error: Float[Array, "*lanes"]
    factor: Float[Array, "*lanes"]
    first: Float[Array, "*lanes"]
    began: Bool[Array, "*lanes"]

    @property
    def good(self) -> Bool[Array, "*lanes"]:
        return self.error <= 1

    def fine(self, following: Array, least: Array) -> Bool[Array, "*lanes"]:
        """Whether all is finite, or would be after a shorter step, ``following``."""
        return self.began & jnp.isfinite(following) & (jnp.isfinite(self.error) | (following >= least))


def judge(
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
    stepped: Stepped,
    tableau: Tableau,
    tolerance: Tolerance,
    scale: Scale,
) -> Judged:
    """What to make of the step that led from q and v. It was wrong, too, by what moved it onto its constraints, if that
    was more than an error that was there to be seen."""
    allowed_q = tolerance.between(q, stepped.q, tolerance.q) + scale.rounding(q, stepped.q, of_q=True)
    allowed_v = tolerance.between(v, stepped.v, tolerance.v) + scale.rounding(v, stepped.v)
    allowed = jnp.concatenate([allowed_q, allowed_v])
    error = jnp.sqrt(jnp.mean((stepped.error / allowed) ** 2))
    error = jnp.maximum(error, jnp.max(jnp.abs(stepped.moved) / allowed_q) / MOVED)
    error = jnp.where(jnp.isnan(error), jnp.inf, error)
    exponent = -1.0 / tableau.order
    factor = jnp.clip(SAFETY * jnp.where(error > 0, error, 1e-30) ** exponent, SHRINK, GROW)
    # |y| / |y'| in the same scale; the book looks at a second derivative too.
    here = jnp.max(jnp.abs(jnp.concatenate([stepped.q, stepped.v]) / allowed))
    change = jnp.max(jnp.abs(stepped.began / allowed))
    first = FIRST * jnp.maximum(here, 1) / jnp.maximum(change, 1e-20)
    return Judged(error, factor, first, jnp.all(jnp.isfinite(stepped.began)))


def next_length(
    h: Array, wanted: Array, judged: Judged, started: Array, accepted: Array, landed: Array, least: Array
) -> Float[Array, "*lanes"]:
    """The length to try after a step of h where ``wanted`` was asked for; at first, one well above ``least``."""
    # A step cut short to end on a sample says nothing about the step that the motion would allow.
    longer = jnp.where(landed, jnp.maximum(wanted, h * judged.factor), h * judged.factor)
    shorter = h * jnp.minimum(judged.factor, SAFETY)
    return jnp.where(started, jnp.where(accepted, longer, shorter), jnp.maximum(judged.first, 1e3 * least))
