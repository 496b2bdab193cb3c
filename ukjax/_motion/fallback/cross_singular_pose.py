"""Integration through a singular pose: rows are dependent there, but independent before and after it.

Near such a pose rounding errors are divided by the distance to it, so no step may start or end there, and no stage may
lie there. So the motion is integrated to a state at some distance before the pose. From there, one step leads to a
state at the same distance behind it. Samples between these two states are interpolated by the quintic polynomial with
the positions, velocities and accelerations of both states; its error is of sixth order in that small distance.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..._run.compile import jit_unoptimised
from ..._solve import FastPath
from ..problem import SMALLEST_STEP, Problem
from ..stepper.scaling import Scale
from .singular_pose import TRIES, acceleration_at, has_understood_rows, is_sound, step_from

FAR = 3 / 16
"""A state is far enough from a singular pose if the smallest singular value of the rows is at least eps to this power
of the largest (1e-3 in float64).
"""

NEAREST = 1 / 4
"""The same for the nearest state (1e-4 in float64), from which the pose is crossed if the step from a state further
away has too large an error. Rounding errors divided by this distance are still far below the default tolerance.
"""

APPROACH = 0.8
"""Largest step, as a part of the estimated time to the pose: the estimate is linear."""

FROM_STEP = 4
"""A pose further ahead than this many lengths of the failed step is not the cause of the failure."""

NEARER = 0.7
"""Ratio of successive distances from which a crossing of the pose is tried."""

VISITED = 8
"""Number of samples, and of steps, from which the sizes of the rows are taken. A row may vanish at the pose, so that
its size in the last steps is not representative. All steps since the last singular pose may be close to a pose.
"""

TAKES_PART = 0.1
"""A row is one of the dependent rows if its weight in their vanishing combination is larger than this; the squares of
all weights add to 1."""

SMOOTH = 16
"""Largest relative difference of the accelerations before and behind the pose, in units of the relative distance. The
difference is larger if a mechanism only comes near a singular pose, since it then follows another branch.
"""


class Knot(NamedTuple):
    """State (q, v) and acceleration of the motion at time ``t`` [s] since its start."""

    t: float
    q: Float[np.ndarray, " n"]
    v: Float[np.ndarray, " n"]
    acceleration: Float[np.ndarray, " n"]


class Crossing(NamedTuple):
    """Crossing of a singular pose: the states ``before`` and ``after`` it, the number of ``steps``, the next step size
    ``following`` [s], and the indices of the rows of positions that are ``dependent`` at the pose.
    """

    before: Knot
    after: Knot
    steps: int
    following: float
    dependent: tuple[int, ...]

    @property
    def at_pose(self) -> float:
        """The time at the pose, since the start of the motion [s]."""
        return (self.before.t + self.after.t) / 2

    def at(self, t: float) -> Float[np.ndarray, " entries"]:
        """(q, v) at a time between the two states, by quintic Hermite interpolation."""
        start, end = self.before, self.after
        h = end.t - start.t
        s = (t - start.t) / h
        # q = Σ c_k s^k: the first three coefficients match the start, the others match the end.
        c = [start.q, h * start.v, h**2 * start.acceleration / 2]
        q, v, a = end.q - sum(c), h * end.v - c[1] - 2 * c[2], h**2 * end.acceleration - 2 * c[2]
        c += [10 * q - 4 * v + a / 2, -15 * q + 7 * v - a, 6 * q - 3 * v + a / 2]
        position = sum(x * s**k for k, x in enumerate(c))
        rate = sum(k * x * s ** (k - 1) for k, x in enumerate(c) if k)
        return np.concatenate([position, rate / h])


class Distance(NamedTuple):
    """Estimated ``time`` until the rows become dependent, negative after that, and the ``least`` time from the pose at
    which a state is far enough from it [s]; the ``combination`` of the scaled rows that vanishes there.
    """

    time: float
    least: float
    combination: Float[np.ndarray, " rows"]


def cross_singular_pose(
    problem: Problem,
    begin: Array | np.ndarray | np.generic,
    states: Float[np.ndarray, "states entries"],
    visited: Float[np.ndarray, "samples entries"],
    rows: tuple[int, ...] | None,
    scale: Scale,
) -> Crossing | None:
    """Cross the singular pose at which the last step failed; None if there is none, or it is not supported.

    Singular mass matrices and values that are not finite are not supported. ``states`` are (t, h, q, v) at the start of
    steps since the last singular pose, the last one that failed; ``visited`` are the samples so far in the same form;
    ``rows`` are the rows that are independent elsewhere, None for all.
    """
    if not has_understood_rows(problem) or not states[-1, 1] > 0:
        return None
    with np.errstate(all="ignore"), suppress(np.linalg.LinAlgError):
        return _crossing(problem, begin, states, visited, rows, scale)
    return None


def is_undecided(
    problem: Problem,
    begin: Array | np.ndarray | np.generic,
    states: Float[np.ndarray, "states entries"],
    visited: Float[np.ndarray, "samples entries"],
    rows: tuple[int, ...] | None,
    scale: Scale,
    limit: float,
) -> bool:
    """Whether the last state is so near a singular pose that rounding errors decide on the branch behind it.

    The arguments are those of ``cross_singular_pose``; ``limit`` is the smallest singular value of the rows, relative
    to the largest, below which that is so. A row that only vanishes slowly does not make a singular pose.
    """
    if not has_understood_rows(problem):
        return False
    with np.errstate(all="ignore"), suppress(np.linalg.LinAlgError):
        evaluator = _evaluator(problem, begin, states, visited, rows, scale)
        if evaluator is None:
            return False
        ahead = evaluator.distance(*evaluator.part(states[-1]), limit)
        return abs(ahead.time) <= 2 * ahead.least and ahead.least <= limit * float(scale.t)
    return False


class _Evaluator(NamedTuple):
    """Functions for the distance to a singular pose: ``part`` of a recorded state, its arrays ``on_device``, and the
    ``distance`` from (t, q, v), where far enough means the given share.
    """

    part: Callable[[np.ndarray], tuple]
    as_arrays: Callable[..., tuple]
    on_device: Callable[..., tuple]
    distance: Callable[..., Distance]
    chosen: Int[np.ndarray, " rows"]


def _evaluator(problem, begin, states, visited, rows, scale):
    """The ``_Evaluator`` of a motion, None if it has no rows."""
    model, dtype = problem.model, states.dtype
    split = np.array([1, 2, 2 + scale.q.size])
    part = lambda state: (float(state[0]), *np.split(state, split)[2:])
    as_arrays = lambda *x: jax.device_put(tuple(np.asarray(value, dtype) for value in x))
    on_device = lambda t, q, v: as_arrays(float(begin) + t, q, v)
    spread = [x[np.unique(np.linspace(0, len(x) - 1, VISITED).astype(int))] for x in (visited, states)]
    sizes = np.max([_row_sizes(model, *on_device(*part(state))) for state in np.concatenate(spread)], axis=0)
    chosen = np.flatnonzero(sizes > 0) if rows is None else np.asarray(rows, int)
    distance = lambda t, q, v, share: _distance(model, on_device(t, q, v), chosen, sizes, share)
    return _Evaluator(part, as_arrays, on_device, distance, chosen) if chosen.size else None


def _crossing(problem, begin, states, visited, rows, scale):
    model, dtype, evaluator = problem.model, states.dtype, _evaluator(problem, begin, states, visited, rows, scale)
    if evaluator is None:
        return None
    part, as_arrays, on_device, distance, chosen = evaluator
    fast_path = problem.method.fast_path()
    least = 10 * float(fast_path.rtol) if isinstance(fast_path, FastPath) and fast_path.rtol is not None else 0.0
    far, nearest = (max(least, float(np.finfo(dtype).eps) ** power) for power in (FAR, NEAREST))

    failed, tried = float(states[-1, 0]), FROM_STEP * float(states[-1, 1])
    last_distance = distance(*part(states[-1]), far)
    if last_distance.time > tried + last_distance.least:
        return None
    base = _far_enough(states, part, lambda *at: distance(*at, far))
    if base is None:
        return None
    t, q, v = part(states[base])
    wanted = float(states[base, 1])
    tolerance = problem.tolerance(scale)
    longest = np.inf if problem.dt is None else float(problem.dt)
    shortest = SMALLEST_STEP * float(scale.t)
    accelerated = lambda t, q, v: acceleration_at(model, problem.method, *on_device(t, q, v))

    def step(h, t, q, v, acceleration):
        at, h, q, v = as_arrays(float(begin) + t, h, q, v)
        return step_from(problem, at, h, q, v, acceleration, scale)

    h, steps, near = wanted, 0, far
    while steps < TRIES:
        ahead = distance(t, q, v, near)
        if not (np.isfinite(ahead.time) and ahead.time > ahead.least / 4):
            return None
        acceleration = accelerated(t, q, v)
        before = Knot(t, q, v, np.asarray(acceleration))
        if ahead.time <= 1.5 * ahead.least:
            if abs(t + ahead.time - failed) > tried + 2 * ahead.least:
                return None
            stepped, _ = step(2 * ahead.time, t, q, v, acceleration)
            end = t + 2 * ahead.time, np.asarray(stepped.q), np.asarray(stepped.v)
            if is_sound(stepped) and _error_along(model, on_device(*end), chosen, stepped.error, tolerance) <= 1:
                break
            near *= NEARER
            if near < nearest:
                return None
            continue
        h = min(ahead.time - ahead.least, APPROACH * ahead.time, longest, h)
        while True:
            stepped, control = step(h, t, q, v, acceleration)
            if is_sound(stepped) and float(control.error) <= 1:
                break
            h *= min(float(control.factor), 0.9)
            if not h > shortest:
                return None
        t, q, v, steps = t + h, np.asarray(stepped.q), np.asarray(stepped.v), steps + 1
        h *= max(float(control.factor), 1)
    else:
        return None
    distance_behind = distance(*end, near)
    after = Knot(*end, np.asarray(accelerated(*end)))
    size = max(np.max(np.abs(x)) for x in (before.acceleration, after.acceleration, after.v * near / ahead.time))
    jump = np.max(np.abs(after.acceleration - before.acceleration))
    if not (ahead.time / 2 < -distance_behind.time < 2 * ahead.time and jump <= SMOOTH * near * size):
        return None
    dependent = tuple(int(i) for i in chosen[np.abs(distance_behind.combination) > TAKES_PART])
    return Crossing(before, after, steps + 1, max(2 * ahead.time, wanted), dependent)


def step_to(
    problem: Problem, begin: Array | np.ndarray | np.generic, start: Knot, t: float, scale: Scale
) -> tuple[np.ndarray, np.ndarray] | None:
    """q and v one step after ``start``, at time t; None if the step failed."""
    numbers = float(begin) + start.t, t - start.t, start.q, start.v, start.acceleration
    at, h, q, v, acceleration = jax.device_put(tuple(np.asarray(x, start.q.dtype) for x in numbers))
    stepped, _ = step_from(problem, at, h, q, v, acceleration, scale)
    return (np.asarray(stepped.q), np.asarray(stepped.v)) if is_sound(stepped) else None


def _far_enough(states, part, distance):
    """Index of the latest state from which a singular pose ahead is far enough."""
    back = 1
    while True:
        at_state = distance(*part(states[-back]))
        if at_state.time >= at_state.least:
            return -back
        if back == len(states):
            return None
        back = min(back + max(1, back // 4), len(states))


@jit_unoptimised
def _rows_and_rates(model, t, q, v):
    """M; A of positions, and its derivative along the motion."""
    zero = jnp.zeros_like(t)
    slope = lambda s: model.position_slope(t + s, q + s * v, v)
    A, A_dot = jax.jvp(slope, (zero,), (jnp.ones_like(zero),))
    return model.passive(t, q, v).M, A, A_dot


def _scaled(model, t, q, v):
    """A M^(-1/2), and the same for the derivative of A."""
    M, A, A_dot = map(np.asarray, _rows_and_rates(model, t, q, v))
    root = np.linalg.cholesky((M + M.T) / 2)
    return np.linalg.solve(root, A.T).T, np.linalg.solve(root, A_dot.T).T


def _row_sizes(model, t, q, v):
    return np.linalg.norm(_scaled(model, t, q, v)[0], axis=1)


def _distance(model, at, rows, sizes, share):
    """Distance from the smallest singular value and its rate u^T A' w, with the singular vectors u and w."""
    A, A_dot = (x[rows] / sizes[rows, None] for x in _scaled(model, *at))
    left, values, right = np.linalg.svd(A, full_matrices=False)
    rate = left[:, -1] @ A_dot @ right[-1]
    if not (np.isfinite(rate) and rate != 0):
        return Distance(np.inf, np.inf, left[:, -1])
    return Distance(float(-values[-1] / rate), float(share * values[0] / abs(rate)), left[:, -1])


def _error_along(model, at, rows, error, tolerance):
    """Error of a step in the directions along the constraints, 1 is allowed.

    The correction removes the rest, which is large in a step past a singular pose.
    """
    M, A, _ = map(np.asarray, _rows_and_rates(model, *at))
    root = np.linalg.cholesky((M + M.T) / 2)
    basis, _ = np.linalg.qr(np.linalg.solve(root, A[rows].T))
    _, q, v = map(np.asarray, at)
    shares = []
    for size, allowed, error_of_x in zip((q, v), tolerance[1:], np.split(np.asarray(error), [q.size]), strict=True):
        x = root.T @ error_of_x
        along = np.linalg.solve(root.T, x - basis @ (basis.T @ x))
        shares.append(np.abs(along) / (np.asarray(allowed) + np.asarray(tolerance.relative) * np.abs(size)))
    return np.sqrt(np.mean(np.square(shares)))
