"""Events of motions that come to a singular pose, which diffrax's loop does not pass.

A single motion without the event passes the pose. So the motion is integrated without the event, at close times. The
first crossing that counts between two of them is located by motions that end there.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..._kernel.if_repeated import jit_if_repeated
from ..event import Event
from ..fallback.singular_pose import has_understood_rows
from ..plan import Plan
from ..problem import InitialState, Problem, Solution
from ..result import EVENT, JUMPED, NOT_FINITE, OFF_CONSTRAINTS, SINGULAR_POSE, TOO_SMALL
from .single import integrate_alone

FAILURES = SINGULAR_POSE, JUMPED, OFF_CONSTRAINTS, TOO_SMALL, NOT_FINITE
"""Results that a singular pose may cause."""

POINTS = 1024
"""Least number of times at which the event is evaluated."""

ROUNDINGS = 64
"""An event whose value at the start is below this many roundings of its largest value is at zero there."""


def past_singular_poses(solution: Solution, problem: Problem, start: InitialState, plan: Plan) -> Solution:
    """The solution of one motion or a batch, in which motions that failed at a singular pose are integrated again.

    ``plan`` receives a note and the poses.
    """
    special = problem.dt is not None or problem.tableau is None or problem.adjoint is not None or problem.progress
    if problem.event is None or special:
        return solution
    plain = replace(problem, event=None, ends_on_samples=False)
    is_batch = start.q.ndim == 2
    for member in np.flatnonzero(np.isin(np.atleast_1d(np.asarray(solution.result)), FAILURES)):
        select = lambda x, at=member: np.asarray(x)[at] if is_batch else np.asarray(x)
        of_member = jax.device_put(jax.tree.map(select, start))
        ts = select(problem.ts) if problem.ts.ndim == 2 else np.asarray(problem.ts)
        of_problem = replace(plain, model=problem.model_of(of_member.numbers))
        found = _until_event(of_problem, problem.event, ts, of_member) if has_understood_rows(of_problem) else None
        if found is None:
            continue
        one, poses = found
        who = f"member {member}" if is_batch else "motion"
        plan.note(f"{who}: passed a singular pose; its event was evaluated at {POINTS} times or more")
        plan.singular_poses += [(int(member), t) for t in poses]
        solution = jax.tree.map(lambda x, y, at=member: x.at[at].set(y), solution, one) if is_batch else one
    return solution


def _until_event(
    problem: Problem, event: Event, ts: Float[np.ndarray, " samples"], start: InitialState
) -> tuple[Solution, list[float]] | None:
    """The solution until the event, and the times of its singular poses; None if there are none, or it starts on the
    event, or the event is NaN."""
    parts = -(-POINTS // (ts.size - 1))
    times = np.append(ts[:-1, None] + np.diff(ts)[:, None] * np.arange(parts) / parts, ts[-1])
    integrate = lambda times: integrate_alone(replace(problem, ts=jax.device_put(times.astype(ts.dtype))), start)
    motion, poses = integrate(times)
    q, v = np.asarray(motion.q), np.asarray(motion.v)
    reached = int(np.sum(np.isfinite(np.asarray(motion.t))))
    values = np.asarray(_values(event, jax.device_put(times.astype(ts.dtype)), motion.q, motion.v))[:reached]
    at_zero = ROUNDINGS * np.finfo(values.dtype).eps * np.max(np.abs(values), initial=0)
    if not poses or not np.all(np.isfinite(values)) or abs(values[0]) <= at_zero:
        return None
    before, after = values[:-1], values[1:]
    falls, rises = (before > 0) & (after <= 0), (before < 0) & (after >= 0)
    crosses = np.flatnonzero(falls & (event.counted <= 0) | rises & (event.counted >= 0))
    last, result = motion.last, motion.result
    if crosses.size:
        i = int(crosses[0])
        last, result = _crossing(integrate, event, times, values, (q, v), i), np.asarray(EVENT, np.int32)
    end = float(last[0])
    kept = np.where(times[::parts] <= end, 1.0, np.nan).astype(ts.dtype)
    at_samples = (np.asarray(x)[::parts] for x in (motion.t, q, v))
    t, q, v = (np.concatenate([(x.T * kept).T, np.asarray(y)[None]]) for x, y in zip(at_samples, last, strict=True))
    found = jax.tree.map(jnp.asarray, (t, q, v, result, motion.steps, last, motion.displaced))
    return Solution(*found), [pose for pose in poses if pose <= end]


def _crossing(integrate, event, times, values, states, i):
    """Time and state at the crossing between the times i and i + 1, on its near side, by the Illinois method."""
    dtype = states[0].dtype
    low, high = float(times[i]), float(times[i + 1])
    weights, closest = (float(values[i]), float(values[i + 1])), 2 * np.finfo(dtype).eps * np.max(np.abs(times))
    k = i + int(weights[1] == 0)
    found = np.asarray(times[k], dtype), *(x[k] for x in states)
    while weights[1] != 0 and high - low > 2 * closest:
        t = low + (high - low) * weights[0] / (weights[0] - weights[1])
        t = np.asarray(np.clip(t, low + closest, high - closest), dtype)
        motion, _ = integrate(np.array([times[0], t]))
        q, v = np.asarray(motion.q)[-1], np.asarray(motion.v)[-1]
        value = float(_values(event, *jax.device_put((t[None], q[None], v[None])))[0])
        if value * weights[0] > 0:
            low, found, weights = float(t), (t, q, v), (value, weights[1] / 2)
        elif value == 0:
            return t, q, v
        else:
            high, weights = float(t), (weights[0] / 2, value)
    return found


@jit_if_repeated
def _values(event, t, q, v):
    return jax.vmap(event)(t, q, v)
