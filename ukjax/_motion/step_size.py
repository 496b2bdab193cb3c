"""How long the next step may be, after Hairer, Nørsett & Wanner, Solving Ordinary Differential Equations I, II.4."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .step import Stepped
from .tableau import Tableau

SAFETY, SHRINK, GROW = 0.9, 0.2, 10.0
FIRST = 0.01  # the first step, as a share of the time in which the state changes by its own size


class Tolerance(NamedTuple):
    """The error allowed in a step: ``absolute`` + ``relative`` times the size of what is computed."""

    relative: Float[Array, ""]
    absolute: Float[Array, ""]

    def scale(self, x: Float[Array, " n"], y: Float[Array, " n"]) -> Float[Array, " n"]:
        return self.absolute + self.relative * jnp.maximum(jnp.abs(x), jnp.abs(y))


class Judged(NamedTuple):
    """The size of a step's ``error``, where 1 is allowed; the ``factor`` for the next one's length; and, in place of
    all that, a length to begin with."""

    error: Float[Array, "*lanes"]
    factor: Float[Array, "*lanes"]
    first: Float[Array, "*lanes"]

    @property
    def good(self) -> Bool[Array, "*lanes"]:
        return self.error <= 1


def judge(
    q: Float[Array, " n"], v: Float[Array, " n"], stepped: Stepped, tableau: Tableau, tolerance: Tolerance
) -> Judged:
    """What to make of the step that led from q and v."""
    scale = jnp.concatenate([tolerance.scale(q, stepped.q), tolerance.scale(v, stepped.v)])
    error = jnp.sqrt(jnp.mean((stepped.error / scale) ** 2))
    exponent = -1.0 / tableau.order
    factor = jnp.clip(SAFETY * jnp.where(error > 0, error, 1e-30) ** exponent, SHRINK, GROW)
    # |y| / |y'| in the same scale; the book looks at a second derivative too.
    here = jnp.max(jnp.abs(jnp.concatenate([stepped.q, stepped.v]) / scale))
    change = jnp.max(jnp.abs(jnp.concatenate([stepped.rates.q[0], stepped.rates.v[0]]) / scale))
    first = FIRST * jnp.maximum(here, 1) / jnp.maximum(change, 1e-5)
    return Judged(error, factor, first)


def next_length(
    h: Array, wanted: Array, judged: Judged, started: Array, accepted: Array, landed: Array, least: Array
) -> Float[Array, "*lanes"]:
    """The length to try after a step of h where ``wanted`` was asked for; at first, one well above ``least``."""
    # A step cut short to end on a sample says nothing about the step that the motion would allow.
    longer = jnp.where(landed, jnp.maximum(wanted, h * judged.factor), h * judged.factor)
    shorter = h * jnp.minimum(judged.factor, SAFETY)
    return jnp.where(started, jnp.where(accepted, longer, shorter), jnp.maximum(judged.first, 1e3 * least))
