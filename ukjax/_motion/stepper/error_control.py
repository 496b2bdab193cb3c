"""Error estimate and step size control, after Hairer, Nørsett & Wanner, Solving Ordinary Differential Equations I,
II.4.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .runge_kutta import StepResult
from .scaling import Scale
from .tableau import Tableau

SAFETY, SHRINK, GROW = 0.9, 0.2, 10.0
MOVED = 10.0  # a correction this many times the allowed error reveals an error that the estimate missed
# As a share of the whole time: in shorter steps a correction is not an error, but is caused by a constraint that
# becomes active.
VERY_SHORT = 1e-9
# Relative change of the velocities in the whole time, below which a motion at rest does not limit the step size.
RESTING = 1e-4
TRIAL = 0.01  # disturbance used to find the longest step, relative to the scales of q and v
FIRST = 0.01  # first step, as a share of the time in which the state changes by its own size

DEFAULT_RTOL = {"float64": 1e-9, "float32": 1e-5}
"""Default relative tolerance per step."""


class Tolerance(NamedTuple):
    """Error allowed in one step: ``relative`` to the state, plus absolute errors of ``q`` (nq,) and ``v`` (n,)."""

    relative: Float[Array | np.ndarray, ""]
    q: Float[Array, " nq"]
    v: Float[Array, " n"]

    @classmethod
    def of(
        cls, relative: Array | np.ndarray, absolute: Array | np.ndarray | None, scale: Scale, xp: Any = jnp
    ) -> "Tolerance":
        """Build from a relative and an absolute tolerance, a number or one per coordinate.

        ``absolute=None`` uses the default relative tolerance times the scale. ``xp`` is ``jax.numpy`` or ``numpy``.
        """
        default = DEFAULT_RTOL[str(scale.q.dtype)]
        absolute_for = lambda size: default * size if absolute is None else xp.broadcast_to(absolute, size.shape)
        return cls(relative, absolute_for(scale.q), absolute_for(scale.v))


class ErrorControl(NamedTuple):
    """Error estimate of a step, and the step sizes that follow from it.

    Attributes
    ----------
    error
        Error norm: 1 is the largest allowed, infinity means that the step diverged.
    factor
        Ratio of the next step size to this one.
    first
        Step size to start the motion with [s], instead of the above.
    began
        Whether the derivative at the start of the step is finite.
    resting
        Whether the motion is at rest, or uniform, at the start of the step.
    """

    error: Float[Array, "*lanes"]
    factor: Float[Array, "*lanes"]
    first: Float[Array, "*lanes"]
    began: Bool[Array, "*lanes"]
    resting: Bool[Array, "*lanes"]

    @property
    def good(self) -> Bool[Array, "*lanes"]:
        """Whether the step is accepted."""
        return self.error <= 1

    def fine(self, following: Array, least: Array) -> Bool[Array, "*lanes"]:
        """Whether the step is finite, or may become so with the shorter step size ``following``."""
        return self.began & jnp.isfinite(following) & (jnp.isfinite(self.error) | (following >= least))


def perturbed_start(
    trial: Bool[Array, ""], q: Float[Array, " nq"], v: Float[Array, " n"], scale: Scale
) -> tuple[Float[Array, " nq"], Float[Array, " n"]]:
    """q and v; in a ``trial``, with a small disturbance that excites all modes."""

    amount = trial.astype(q.dtype)

    def perturbed(x, size):
        i = np.arange(x.size)
        share = TRIAL * (-1.0) ** i * (1 + i * (5**0.5 - 1) / 2 % 1) / 2
        return x + amount * share.astype(x.dtype) * size

    return perturbed(q, scale.q), perturbed(v, scale.v)


def error_of_correction(
    moved: Float[Array, " nq"], jumped: Bool[Array, ""], h: Array, scale: Scale
) -> Float[Array, " nq"]:
    """Estimate of the error in q of a step of h, from the drift correction at its end, which changed q by ``moved``.

    A correction that does not decrease with the step size is not an error of the step. Such a correction occurs when
    rows stop being redundant: rows that were dropped before are not satisfied exactly, and the first step that includes
    them corrects this. So very short steps have no such error, unless the correction ``jumped``.
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
    """Error estimate of the step of length h from (q, v); in a ``trial`` the step starts from ``perturbed_start``.

    The estimate includes the drift correction, if that was larger than the embedded error estimate could have detected.
    In a trial, errors are measured relative to the disturbance at both ends of the step.
    """
    concat = jnp.concatenate
    before, after, absolute = concat([q, v]), concat([stepped.q, stepped.v]), concat([tolerance.q, tolerance.v])
    allowed_usual = absolute + tolerance.relative * jnp.maximum(jnp.abs(before), jnp.abs(after))
    q_dot = v if q.shape == v.shape else stepped.began[: q.size]
    moved = jnp.abs(after - before - concat([h * q_dot, jnp.zeros_like(v)]))
    allowed_in_trial = TRIAL * (absolute + tolerance.relative * concat([scale.q, scale.v])) + tolerance.relative * moved
    rounding = concat([scale.rounding(q, stepped.q, of_q=True), scale.rounding(v, stepped.v)])
    allowed = jnp.where(trial, allowed_in_trial, allowed_usual) + rounding
    error = jnp.sqrt(jnp.mean((stepped.error / allowed) ** 2))
    correction_error = jnp.max(error_of_correction(stepped.moved, stepped.jumped, h, scale) / allowed[: q.size])
    error = jnp.maximum(error, jnp.where(trial, 0, correction_error))
    error = jnp.where(jnp.isnan(error), jnp.inf, error)
    exponent = -1.0 / tableau.order
    factor = jnp.clip(SAFETY * jnp.where(error > 0, error, 1e-30) ** exponent, SHRINK, GROW)
    # |y| / |y'| in the same scale; Hairer et al. use a second derivative too.
    state_size = jnp.max(jnp.abs(after / allowed))
    rate_size = jnp.max(jnp.abs(stepped.began / allowed))
    first = FIRST * jnp.maximum(state_size, 1) / jnp.maximum(rate_size, 1e-20)
    resting = jnp.all(jnp.abs(stepped.began[q.size :]) * scale.t <= RESTING * scale.v)
    return ErrorControl(error, factor, first, jnp.all(jnp.isfinite(stepped.began)), resting)


def next_step_size(
    h: Array,
    wanted: Array,
    longest: Array,
    control: ErrorControl,
    started: Array,
    accepted: Array,
    landed: Array,
    least: Array,
    span: Array,
) -> tuple[Float[Array, "*lanes"], Float[Array, "*lanes"]]:
    """Step size to try after a step of h where ``wanted`` was requested, and the new limit ``longest`` [s].

    The first step is well above ``least``. A motion at rest has no error for any step size. But its derivatives have
    errors: they are those of disturbed motions. So the longest step is the one that a small disturbance needs. Trials
    (``longest`` is 0) determine it, from the whole ``span`` downwards. For any other motion it is infinite.
    """
    # A step shortened to end on a sample does not show the step size that the motion would allow.
    longer = jnp.where(landed, jnp.maximum(wanted, h * control.factor), h * control.factor)
    shorter = h * jnp.minimum(control.factor, SAFETY)
    following = jnp.where(started, jnp.where(accepted, longer, shorter), jnp.maximum(control.first, 1e3 * least))
    is_trial, trial_begins = longest == 0, ~started & control.resting
    trial_ends = control.good | (h <= 1e3 * least)
    limit = jnp.where(is_trial & trial_ends, jnp.where(control.good, h, jnp.inf), jnp.where(trial_begins, 0, longest))
    following = jnp.where(is_trial, jnp.where(trial_ends, h, shorter), jnp.minimum(following, longest))
    return jnp.where(trial_begins, span, following), limit
