"""Result codes: how a motion ended, as an integer that works under ``jit`` and in batches, and in words."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

FINISHED, EVENT, MOST_STEPS, TOO_SMALL, NOT_FINITE, OFF_CONSTRAINTS, JUMPED, ON_EVENT = range(8)
REFUSED, NOT_ASSEMBLED, NO_FALLBACK = range(8, 11)  # only for ensembles and exported simulators
INCONSISTENT = 11  # replaces FINISHED or EVENT if constraints contradicted each other
EVENT_NAN = 12
NO_CONTACT_MODE, SEVERAL_CONTACT_MODES, ENERGY_GAINED, ACCUMULATED = range(13, 17)
SINGULAR_POSE, OFF_TASK, OUT_OF_REACH = 17, 18, 19
RUNNING, NEEDS_FALLBACK = -1, -2  # intermediate codes: continue; continue with another method

REASONS = {
    FINISHED: "reached its last time",
    EVENT: "ended where its event crossed zero",
    MOST_STEPS: "took max_steps steps and did not reach its last time",
    TOO_SMALL: "found no step small enough to continue",
    NOT_FINITE: "came to a number that is not finite",
    OFF_CONSTRAINTS: "left its constraints",
    JUMPED: "could only continue by a jump onto its constraints",
    ON_EVENT: "started on its event and did not leave it",
    REFUSED: "started with invalid terms",
    NOT_ASSEMBLED: "has no start that satisfies its constraints",
    EVENT_NAN: "came to where its event function is NaN",
    NO_FALLBACK: "needs a method that this program does not have: rows are redundant, or the mass matrix is singular",
    NO_CONTACT_MODE: "came to contacts and friction without consistent forces",
    SEVERAL_CONTACT_MODES: "came to contacts and friction with several consistent forces",
    ENERGY_GAINED: "came to an impact whose laws increase the energy",
    ACCUMULATED: "came to events that follow one another in ever shorter times",
    INCONSISTENT: "came to constraints that contradict each other",
    OFF_TASK: "was pushed off the task of its control by contact forces",
    OUT_OF_REACH: "came to a task that its actuators cannot perform",
    SINGULAR_POSE: "came to a singular pose, where rounding errors would choose its branch",
}


def ended_well(result: Int[Array | np.ndarray, "*batch"]) -> Bool[Array | np.ndarray, "*batch"]:
    """Whether a motion reached its last time, or its event."""
    return (result == FINISHED) | (result == EVENT)


def all_ended_well(result: Int[Array | np.ndarray, "*batch"]) -> bool:
    """Whether all motions ended well, for concrete results; nothing is compiled."""
    return bool(np.all(ended_well(np.atleast_1d(result))))


def in_words(result: Int[Array | np.ndarray, "*batch"]) -> np.ndarray | str:
    """The reason why a motion ended, in words; an array of these for a batch."""
    codes = np.asarray(result)
    return REASONS[int(codes)] if codes.ndim == 0 else np.array([REASONS[int(code)] for code in codes])


AT_LAST_TIME = FINISHED, INCONSISTENT
"""Codes of motions that reached their last time."""


def reached_last_time(result: Int[Array | np.ndarray, "*batch"]) -> Bool[Array | np.ndarray, "*batch"]:
    """Whether a motion reached its last time, with consistent constraints or not."""
    first, second = AT_LAST_TIME
    return (result == first) | (result == second)


def classify(
    *,
    finished: Any,
    event: Any = False,
    on_event: Any = False,
    event_nan: Any = False,
    off_task: Any = False,
    no_mode: Any = False,
    several_modes: Any = False,
    gains_energy: Any = False,
    accumulated: Any = False,
    needs_fallback: Any = False,
    singular: Any = False,
    jumped: Any = False,
    off: Any = False,
    not_finite: Any = False,
    stuck: Any = False,
    exhausted: Any = False,
    inconsistent: Any = False,
    otherwise: int = RUNNING,
) -> Int[Array, "*batch"]:
    """Result code from the conditions after the last step: that of the first true condition, in this order.

    The motion reached its last time (``finished``) or its ``event``, or started ``on_event``; the event's value is NaN
    (``event_nan``); contact forces push it ``off_task``; no contact mode has consistent forces (``no_mode``), or
    several have (``several_modes``); an impact increases the energy (``gains_energy``); its events ``accumulated``; its
    method is not applicable (``needs_fallback``); it came to a ``singular`` pose; the drift correction ``jumped``; the
    state is ``off`` the constraints, or ``not_finite``; the step size is the smallest allowed (``stuck``); all steps
    allowed are taken (``exhausted``). The first two give INCONSISTENT if constraints were ``inconsistent`` at any time.
    """
    conditions = (
        ((finished | event) & inconsistent, INCONSISTENT),
        (finished, FINISHED),
        (event, EVENT),
        (on_event, ON_EVENT),
        (event_nan, EVENT_NAN),
        (off_task, OFF_TASK),
        (no_mode, NO_CONTACT_MODE),
        (several_modes, SEVERAL_CONTACT_MODES),
        (gains_energy, ENERGY_GAINED),
        (accumulated, ACCUMULATED),
        (needs_fallback, NEEDS_FALLBACK),
        (singular, SINGULAR_POSE),
        (jumped, JUMPED),
        (off, OFF_CONSTRAINTS),
        (not_finite, NOT_FINITE),
        (stuck, TOO_SMALL),
        (exhausted, MOST_STEPS),
    )
    result = jnp.asarray(otherwise, np.int32)
    for condition, code in reversed(conditions):
        if condition is not False:
            result = jnp.where(condition, jnp.asarray(code, np.int32), result)
    return result


def finite(q: Any, v: Any, axis: int = -1, xp: Any = jnp) -> Any:
    """Whether all entries of q and v along ``axis`` are finite. ``xp`` is ``jax.numpy`` or ``numpy``."""
    return xp.all(xp.isfinite(q), axis=axis) & xp.all(xp.isfinite(v), axis=axis)


def reached_times(
    ts: Float[Array, " samples"], q: Float[Array, "*batch samples nq"], v: Float[Array, "*batch samples n"]
) -> Float[Array, "*batch samples"]:
    """The times ``ts``, and NaN for the samples that were not reached, whose q and v are not finite."""
    return jnp.where(finite(q, v), ts, jnp.nan)
