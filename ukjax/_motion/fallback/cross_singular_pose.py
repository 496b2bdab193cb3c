"""A motion through a singular pose, where rows that are independent before and after are dependent.

Near such a pose rounding is divided by the distance from it, so that no step may begin or end there, nor a stage be
there. So the motion goes to a state at some distance before the pose, and from there in one step to a state at the
same distance behind it. Samples between the two are those of the polynomial of fifth degree that has the positions,
velocities and accelerations of both states; its error is of sixth order in that small distance.
"""

from contextlib import suppress
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._run.compile import jit_unoptimised
from ..._solve import FastPath
from ..problem import SMALLEST_STEP, Problem
from ..stepper.scaling import Scale
from .singular_pose import TRIES, acceleration_at, has_understood_rows, is_sound, step_from

NEAREST = 3 / 16
"""A state is taken to be far enough from a singular pose if the smallest singular value of the rows is at least
eps^NEAREST of the largest (1e-3 in float64)."""

APPROACH = 0.8
"""Of the estimated time to the pose, the most that one step takes: the estimate is linear."""

FROM_STEP = 4
"""A pose further ahead than so many of the step that failed is not what it failed of."""

SMOOTH = 16
"""So many times the distance from the pose, accelerations before and behind it may differ by, both as a part of their
size. Of a mechanism that only comes near to a singular pose they differ more, since it goes another way."""


class Knot(NamedTuple):
    """A state of the motion at the time ``t`` since its start."""

    t: float
    q: Float[np.ndarray, " n"]
    v: Float[np.ndarray, " n"]
    acceleration: Float[np.ndarray, " n"]


class Crossing(NamedTuple):
    """The states ``before`` and ``after`` a singular pose; the number of ``steps``; the length for the ``following``
    step."""

    before: Knot
    after: Knot
    steps: int
    following: float

    def at(self, t: float) -> Float[np.ndarray, " entries"]:
        """(q, v) at a time between the two states, by Hermite's interpolation."""
        start, end = self.before, self.after
        h = end.t - start.t
        s = (t - start.t) / h
        # q = Σ c_k s^k: the first three coefficients are those of the start, the others take away what is missing.
        c = [start.q, h * start.v, h**2 * start.acceleration / 2]
        q, v, a = end.q - sum(c), h * end.v - c[1] - 2 * c[2], h**2 * end.acceleration - 2 * c[2]
        c += [10 * q - 4 * v + a / 2, -15 * q + 7 * v - a, 6 * q - 3 * v + a / 2]
        position = sum(x * s**k for k, x in enumerate(c))
        rate = sum(k * x * s ** (k - 1) for k, x in enumerate(c) if k)
        return np.concatenate([position, rate / h])


class Distance(NamedTuple):
    """The estimated ``time`` until the rows are dependent, negative where they were so before; and the ``least`` time
    at which a state is far enough from there."""

    time: float
    least: float


def cross_singular_pose(
    problem: Problem,
    begin: Array | np.ndarray | np.generic,
    states: Float[np.ndarray, "states entries"],
    rows: tuple[int, ...] | None,
    scale: Scale,
) -> Crossing | None:
    """The motion past a singular pose that the last step met; None where there is none, or none that is understood.

    It is not understood where a mass matrix is singular, or numbers are not finite. ``states`` are (t, h, q, v) where
    steps began, the last one that failed; ``rows`` are those that are independent elsewhere, None for all.
    """
    if not has_understood_rows(problem) or not states[-1, 1] > 0:
        return None
    with np.errstate(all="ignore"), suppress(np.linalg.LinAlgError):
        return _crossing(problem, begin, states, rows, scale)
    return None


def _crossing(problem, begin, states, rows, scale):
    model, dtype = problem.model, states.dtype
    split = np.array([1, 2, 2 + scale.q.size])
    part = lambda state: (float(state[0]), *np.split(state, split)[2:])
    put = lambda *x: jax.device_put(tuple(np.asarray(each, dtype) for each in x))
    on_device = lambda t, q, v: put(float(begin) + t, q, v)
    sizes = np.max([_row_sizes(model, *on_device(*part(state))) for state in (states[0], states[-1])], axis=0)
    chosen = np.flatnonzero(sizes > 0) if rows is None else np.asarray(rows, int)
    if not chosen.size:
        return None
    usual = problem.method.usual()
    share = 10 * float(usual.rtol) if isinstance(usual, FastPath) and usual.rtol is not None else 0.0
    share = max(share, float(np.finfo(dtype).eps) ** NEAREST)
    distance = lambda t, q, v: _distance(model, on_device(t, q, v), chosen, sizes, share)

    failed, tried = float(states[-1, 0]), FROM_STEP * float(states[-1, 1])
    latest = distance(*part(states[-1]))
    base = _far_enough(states, part, distance) if latest.time <= tried + latest.least else None
    if base is None:
        return None
    t, q, v = part(states[base])
    wanted = float(states[base, 1])
    tolerance = problem.tolerance(scale)
    longest = np.inf if problem.dt is None else float(problem.dt)
    shortest = SMALLEST_STEP * float(scale.t)
    accelerated = lambda t, q, v: acceleration_at(model, problem.method, *on_device(t, q, v))

    def step(h, t, q, v, acceleration):
        at, h, q, v = put(float(begin) + t, h, q, v)
        return step_from(problem, at, h, q, v, acceleration, scale)

    h, steps = wanted, 0
    while steps < TRIES:
        here = distance(t, q, v)
        if not (np.isfinite(here.time) and here.time > here.least / 4):
            return None
        acceleration = accelerated(t, q, v)
        before = Knot(t, q, v, np.asarray(acceleration))
        if here.time <= 1.5 * here.least:
            break
        h = min(here.time - here.least, APPROACH * here.time, longest, h)
        while True:
            stepped, judged = step(h, t, q, v, acceleration)
            if is_sound(stepped) and float(judged.error) <= 1:
                break
            h *= min(float(judged.factor), 0.9)
            if not h > shortest:
                return None
        t, q, v, steps = t + h, np.asarray(stepped.q), np.asarray(stepped.v), steps + 1
        h *= max(float(judged.factor), 1)
    if steps == TRIES or abs(t + here.time - failed) > tried + 2 * here.least:
        return None
    stepped, _ = step(2 * here.time, t, q, v, acceleration)
    t, q, v = t + 2 * here.time, np.asarray(stepped.q), np.asarray(stepped.v)
    if not is_sound(stepped) or _error_along(model, on_device(t, q, v), chosen, stepped.error, tolerance) > 1:
        return None
    behind = distance(t, q, v)
    after = Knot(t, q, v, np.asarray(accelerated(t, q, v)))
    size = max(np.max(np.abs(x)) for x in (before.acceleration, after.acceleration, v * share / here.time))
    jump = np.max(np.abs(after.acceleration - before.acceleration))
    if not (here.time / 2 < -behind.time < 2 * here.time and jump <= SMOOTH * share * size):
        return None
    return Crossing(before, after, steps + 1, max(2 * here.time, wanted))


def step_to(
    problem: Problem, begin: Array | np.ndarray | np.generic, start: Knot, t: float, scale: Scale
) -> tuple[np.ndarray, np.ndarray] | None:
    """q and v one step after ``start``, at t; None if it is not sound."""
    numbers = float(begin) + start.t, t - start.t, start.q, start.v, start.acceleration
    at, h, q, v, acceleration = jax.device_put(tuple(np.asarray(x, start.q.dtype) for x in numbers))
    stepped, _ = step_from(problem, at, h, q, v, acceleration, scale)
    return (np.asarray(stepped.q), np.asarray(stepped.v)) if is_sound(stepped) else None


def _far_enough(states, part, distance):
    """The index of one of the last states from which a singular pose lies ahead far enough."""
    back = 1
    while True:
        here = distance(*part(states[-back]))
        if here.time >= here.least:
            return -back
        if back == len(states):
            return None
        back = min(back + max(1, back // 4), len(states))


@jit_unoptimised
def _rows_and_rates(model, t, q, v):
    """M; A of positions, and its derivative along the motion."""
    zero = jnp.zeros_like(t)
    slope = lambda s: model.position_slope(t + s, q + s * v, v)
    A, change = jax.jvp(slope, (zero,), (jnp.ones_like(zero),))
    return model.passive(t, q, v).M, A, change


def _scaled(model, t, q, v):
    """A M^(-1/2) and the same of the derivative of A."""
    M, A, change = map(np.asarray, _rows_and_rates(model, t, q, v))
    root = np.linalg.cholesky((M + M.T) / 2)
    return np.linalg.solve(root, A.T).T, np.linalg.solve(root, change.T).T


def _row_sizes(model, t, q, v):
    return np.linalg.norm(_scaled(model, t, q, v)[0], axis=1)


def _distance(model, at, rows, sizes, share):
    """By the smallest singular value, and its rate u^T A' w with the singular vectors u and w."""
    A, change = (x[rows] / sizes[rows, None] for x in _scaled(model, *at))
    left, values, right = np.linalg.svd(A, full_matrices=False)
    rate = left[:, -1] @ change @ right[-1]
    if not (np.isfinite(rate) and rate != 0):
        return Distance(np.inf, np.inf)
    return Distance(float(-values[-1] / rate), float(share * values[0] / abs(rate)))


def _error_along(model, at, rows, error, tolerance):
    """The error of a step where it moves along the constraints, 1 is allowed: the correction takes away the rest, which
    is large in a step past a singular pose."""
    M, A, _ = map(np.asarray, _rows_and_rates(model, *at))
    root = np.linalg.cholesky((M + M.T) / 2)
    basis, _ = np.linalg.qr(np.linalg.solve(root, A[rows].T))
    _, q, v = map(np.asarray, at)
    shares = []
    for size, allowed, missed in zip((q, v), tolerance[1:], np.split(np.asarray(error), [q.size]), strict=True):
        x = root.T @ missed
        along = np.linalg.solve(root.T, x - basis @ (basis.T @ x))
        shares.append(np.abs(along) / (np.asarray(allowed) + np.asarray(tolerance.relative) * np.abs(size)))
    return np.sqrt(np.mean(np.square(shares)))
