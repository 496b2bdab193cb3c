"""How long the next step may be, after Hairer, Nørsett & Wanner, Solving Ordinary Differential Equations I, II.4."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .runge_kutta import StepResult
from .scaling import Scale
from .tableau import Tableau

SAFETY, SHRINK, GROW = 0.9, 0.2, 10.0
MOVED = 10.0  # a correction by so much more than the error allowed shows that this was not seen
VERY_SHORT = 1e-9  # of the whole time: steps in which a correction is no error, but a constraint that has begun to act
RESTING = 1e-4  # of its size, that velocities change by in the whole time: nothing of the motion makes steps short
TRIAL = 0.01  # of the sizes of coordinates and velocities: the disturbance of which the longest step is found
FIRST = 0.01  # the first step, as a share of the time in which the state changes by its own size


DEFAULT_RTOL = {"float64": 1e-9, "float32": 1e-5}
"""Errors allowed in a step where nothing is asked for, beside the size of what is computed."""


class Tolerance(NamedTuple):
    """The error allowed in a step: ``relative`` to the size of what is computed, and besides, for ``q`` and ``v``."""

    relative: Float[Array, ""]
    q: Float[Array, " nq"]
    v: Float[Array, " n"]

    @classmethod
    def of(cls, relative: Array, absolute: Array | None, scale: Scale, xp: Any = jnp) -> "Tolerance":
        """With ``absolute``, a number or one per coordinate, or what is usual; by JAX or by NumPy."""
        usual = DEFAULT_RTOL[str(scale.q.dtype)]
        at = lambda size: usual * size if absolute is None else xp.broadcast_to(absolute, size.shape)
        return cls(relative, at(scale.q), at(scale.v))


class ErrorControl(NamedTuple):
    """The size of a step's ``error``, where 1 is allowed, infinite for one that went out of all bounds; the ``factor``
    for the next one's length; in place of all that, a length to begin with; whether it ``began`` with finite terms; and
    whether the motion is ``resting``, or uniform, where it begins."""

    error: Float[Array, "*lanes"]
    factor: Float[Array, "*lanes"]
    first: Float[Array, "*lanes"]
    began: Bool[Array, "*lanes"]
    resting: Bool[Array, "*lanes"]

    @property
    def good(self) -> Bool[Array, "*lanes"]:
        return self.error <= 1

    def fine(self, following: Array, least: Array) -> Bool[Array, "*lanes"]:
        """Whether all is finite, or would be after a shorter step, ``following``."""
        return self.began & jnp.isfinite(following) & (jnp.isfinite(self.error) | (following >= least))


def perturbed_start(
    trial: Bool[Array, ""], q: Float[Array, " nq"], v: Float[Array, " n"], scale: Scale
) -> tuple[Float[Array, " nq"], Float[Array, " n"]]:
    """q and v, and if this is a ``trial``, a small disturbance besides, in which all modes have a share."""

    amount = trial.astype(q.dtype)

    def other(x, size):
        i = np.arange(x.size)
        share = TRIAL * (-1.0) ** i * (1 + i * (5**0.5 - 1) / 2 % 1) / 2
        return x + amount * share.astype(x.dtype) * size

    return other(q, scale.q), other(v, scale.v)


def error_of_correction(
    moved: Float[Array, " nq"], jumped: Bool[Array, ""], h: Array, scale: Scale
) -> Float[Array, " nq"]:
    """The error of a step of h in q, as far as the correction at its end shows it, which ``moved`` q.

    A correction that stays the same, however short the step is, is no error of the step: where rows stop being
    redundant, those left out so far are not met exactly, and the first step that counts them corrects that. So very
    short steps have no such error, unless the correction ``jumped``.
    """
    return jnp.where((h <= VERY_SHORT * scale.t) & ~jumped, 0, jnp.abs(moved) / MOVED)


def control_error(
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
    stepped: StepResult,
    tableau: Tableau,
    tolerance: Tolerance,
    scale: Scale,
    h: Array,
    trial: Bool[Array, ""],
) -> ErrorControl:
    """What to make of the step of length h from q and v; in a ``trial``, from there ``perturbed_start``.

    It was wrong, too, by what moved it onto its constraints, if that was more than an error that was there to be seen.
    In a trial errors are judged beside the disturbance, where it begins and where it ends.
    """
    both = jnp.concatenate
    before, after, absolute = both([q, v]), both([stepped.q, stepped.v]), both([tolerance.q, tolerance.v])
    usual = absolute + tolerance.relative * jnp.maximum(jnp.abs(before), jnp.abs(after))
    q_dot = v if q.shape == v.shape else stepped.began[: q.size]
    moved = jnp.abs(after - before - both([h * q_dot, jnp.zeros_like(v)]))
    in_trial = TRIAL * (absolute + tolerance.relative * both([scale.q, scale.v])) + tolerance.relative * moved
    rounding = both([scale.rounding(q, stepped.q, of_q=True), scale.rounding(v, stepped.v)])
    allowed = jnp.where(trial, in_trial, usual) + rounding
    error = jnp.sqrt(jnp.mean((stepped.error / allowed) ** 2))
    corrected = jnp.max(error_of_correction(stepped.moved, stepped.jumped, h, scale) / allowed[: q.size])
    error = jnp.maximum(error, jnp.where(trial, 0, corrected))
    error = jnp.where(jnp.isnan(error), jnp.inf, error)
    exponent = -1.0 / tableau.order
    factor = jnp.clip(SAFETY * jnp.where(error > 0, error, 1e-30) ** exponent, SHRINK, GROW)
    # |y| / |y'| in the same scale; the book looks at a second derivative too.
    here = jnp.max(jnp.abs(after / allowed))
    change = jnp.max(jnp.abs(stepped.began / allowed))
    first = FIRST * jnp.maximum(here, 1) / jnp.maximum(change, 1e-20)
    resting = jnp.all(jnp.abs(stepped.began[q.size :]) * scale.t <= RESTING * scale.v)
    return ErrorControl(error, factor, first, jnp.all(jnp.isfinite(stepped.began)), resting)


def next_step_size(
    h: Array,
    wanted: Array,
    longest: Array,
    judged: ErrorControl,
    started: Array,
    accepted: Array,
    landed: Array,
    least: Array,
    span: Array,
) -> tuple[Float[Array, "*lanes"], Float[Array, "*lanes"]]:
    """The length to try after a step of h where ``wanted`` was asked for, at first one well above ``least``; and the
    ``longest`` allowed.

    A motion that rests has no error, however long its steps are. Its derivatives have: they are those of motions that
    are disturbed. So the longest step is the one that a small disturbance needs, found by trials (``longest`` is 0)
    from the whole ``span`` downwards; for any other motion it is infinite.
    """
    # A step cut short to end on a sample says nothing about the step that the motion would allow.
    longer = jnp.where(landed, jnp.maximum(wanted, h * judged.factor), h * judged.factor)
    shorter = h * jnp.minimum(judged.factor, SAFETY)
    following = jnp.where(started, jnp.where(accepted, longer, shorter), jnp.maximum(judged.first, 1e3 * least))
    trial, begins = longest == 0, ~started & judged.resting
    found = judged.good | (h <= 1e3 * least)
    bound = jnp.where(trial & found, jnp.where(judged.good, h, jnp.inf), jnp.where(begins, 0, longest))
    following = jnp.where(trial, jnp.where(found, h, shorter), jnp.minimum(following, longest))
    return jnp.where(begins, span, following), bound
