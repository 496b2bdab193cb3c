"""Search for the nearest point on the constraints, from any distance, by NumPy: only the constraints are compiled.

First a trust-region least-squares solver finds a point on the constraints. There the rank of the rows is determined.
Then steps along the constraints approach the start, each followed by Newton's method back onto the constraints.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..._check_terms import complaint_of_mass
from ..._run.compile import jit_unoptimised
from ..._solve import FastPath, coordinate_scale_by_numpy, independent_rows, is_nearly_singular, rounding, row_length
from ..._system import AbstractSystem
from ..fallback.row_noise import classify_rows
from ..stepper.drift_correction import MethodPerLevel
from ..stepper.scaling import Scale
from .assemble import at_state, by_least_squares, least_change

MAX_ITERATIONS = 200
"""Maximum number of steps along the constraints."""

ROUNDINGS = 64
"""A residual counts as rounding, for any slope, if it is at most this many units in the last place of its terms."""

Evaluate = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Function of x that returns a residual and its Jacobian."""


class SearchResult(NamedTuple):
    """Result of a search.

    Attributes
    ----------
    q, v
        The state found, or the last one tried.
    levels
        The fast path with the rows that are independent there.
    reached
        Whether the state is on the constraints.
    valid
        Whether masses and rows are valid there.
    residuals
        If not ``reached``: pairs of a residual and the sizes of its terms, for positions and for velocities.
    """

    q: Float[Array, " n"]
    v: Float[Array, " n"]
    levels: MethodPerLevel
    reached: bool = True
    valid: bool = True
    residuals: tuple[tuple[np.ndarray, np.ndarray], ...] = ()


def search(
    fast_path: FastPath, system: AbstractSystem, t: Array, q0: Float[Array, " n"], v0: Float[Array, " n"], scale: Scale
) -> SearchResult:
    """Solve the problem of ``project`` for a system with q̇ = v."""
    dtype = q0.dtype
    as_array = lambda x: jax.device_put(np.asarray(x, dtype))
    evaluate = lambda q, v: [np.asarray(x, float) for x in at_state(system, t, as_array(q), as_array(v))]

    def of_positions(q):
        residual, _, _, A, _ = evaluate(q, v0)
        return residual, A

    def of_velocities(v):
        _, residual, _, _, A = evaluate(q, v)
        return residual, A

    def without_noise(q, v):
        """Rows of positions and of velocities, 0 where they are only rounding."""
        _, _, M, *rows = evaluate(q, v)
        classes = classify_rows(lambda *at: (M, at_state(*at)[3:]), system, t, as_array(q), as_array(v), M, rows)
        return [level.rows for level in classes]

    sizes = lambda q, v: [np.asarray(x, float) for x in _sizes(system, t, as_array(q), as_array(v), scale)]
    sizes_of_q, sizes_of_v = lambda q: sizes(q, v0)[0], lambda v: sizes(q, v)[1]
    linear = all(constraint.linear for constraint in system.enforced)
    q, method_q, found_q = _nearest(
        of_positions, q0, evaluate(q0, v0)[2], scale.q, fast_path, lambda q: without_noise(q, v0)[0], sizes_of_q
    )
    v, method_v, found_v = _nearest(
        of_velocities, v0, evaluate(q, v0)[2], scale.v, fast_path, lambda v: without_noise(q, v)[1], sizes_of_v, linear
    )
    levels = MethodPerLevel(fast_path, method_q or fast_path, method_v or fast_path)
    if found_q and found_v:
        return SearchResult(as_array(q), as_array(v), levels)
    residual = tuple(zip(evaluate(q, v)[:2], sizes(q, v), strict=True))
    return SearchResult(
        as_array(q), as_array(v), levels, False, method_q is not None and method_v is not None, residual
    )


@jit_unoptimised
def _sizes(system, t, q, v, scale):
    """Sizes of the terms of φ, and of φ̇ and ψ."""
    tiny = jnp.finfo(q.dtype).tiny
    term_sizes = scale.of(system.position_residual, t, q), scale.of(system.velocity_residual, t, q, v)
    return [jnp.maximum(size, tiny) for size in term_sizes]


def _nearest(
    evaluate: Evaluate, start, M, size, fast_path: FastPath, without_noise, sizes: Callable, linear=False
) -> tuple[np.ndarray, FastPath | None, bool]:
    """argmin (x − x0)ᵀ M (x − x0) with zero residual.

    Returns x; the method with its independent rows, None if masses or rows are invalid; and whether x was found.
    """
    dtype = start.dtype
    eps, x0 = float(np.finfo(dtype).eps), np.asarray(start, float)
    finite = lambda *arrays: all(np.all(np.isfinite(x)) for x in arrays)
    rows, A = evaluate(x0)
    if not rows.size or not finite(M, rows, A) or complaint_of_mass(M):
        return x0, None if rows.size else fast_path, not rows.size and finite(M, x0)
    x = x0 if linear else by_least_squares(evaluate, x0, coordinate_scale_by_numpy(M), eps)
    # Redundant rows are dependent only at points on the constraints. The rank determined here is used from now on.
    A = evaluate(x)[1]
    if not finite(A):
        return x, None, False
    real_A = without_noise(x)
    rtol = 10 * (eps**0.5 if fast_path.rtol is None else float(fast_path.rtol))
    active = independent_rows(M, real_A, rtol, rounding(dtype) if fast_path.least is None else float(fast_path.least))
    if active is None:
        return x, None, False
    weight = 1.0 if is_nearly_singular(M) else None
    method = replace(fast_path, kept=None if len(active) == len(A) else active, weight=weight)
    zero_rows = ~np.any(real_A, axis=1)
    search = _Search(evaluate, x0, M, weight or 0.0, np.asarray(size, float), np.array(active, int), zero_rows, eps)
    try:
        x = search.restored(x)
        is_found = False
        if search.satisfied(x):
            x, is_found = (x, True) if linear else search.along(x)
        if not is_found:  # where slopes vanish, the sizes of the terms show the rounding
            terms = np.maximum(sizes(x), sizes(x0))  # a program that is compiled only here
            search = search._replace(terms=terms)
            x, is_found = (x, search.satisfied(x)) if linear else search.along(x)
        return x, method, is_found
    except np.linalg.LinAlgError:  # rows are not finite at some iterate
        return x, method, False


class _Search(NamedTuple):
    """Iteration for the x nearest to x0 in the metric M, with ``weight`` on the rows, scaled to unit length.

    ``active`` are the independent rows, ``zero_rows`` those with zero slope; ``terms``, if known, are the sizes of the
    terms of the residuals.
    """

    evaluate: Evaluate
    x0: Float[np.ndarray, " n"]
    M: Float[np.ndarray, "n n"]
    weight: float
    size: Float[np.ndarray, " n"]
    active: Int[np.ndarray, " k"]
    zero_rows: Bool[np.ndarray, " m"]
    eps: float
    terms: Float[np.ndarray, " m"] | None = None

    def along(self, x: np.ndarray) -> tuple[np.ndarray, bool]:
        """Move from x along the constraints to the nearest point; and whether it converged."""
        share, step = 1.0, self.towards_start(x)
        for _ in range(MAX_ITERATIONS):
            if self.size_of(step) <= 64 * self.eps or share < self.eps:
                break
            tried = self.restored(x + share * step)
            next_step, expected_gain = self.towards_start(tried), share * (step @ self.M @ step) / 2
            # Near the end the gain is smaller than rounding; then the lengths of the steps are compared instead.
            is_resolved = expected_gain > self.eps**0.5 * self.away(x)
            is_nearer = (
                self.away(x) - self.away(tried) > expected_gain
                if is_resolved
                else self.size_of(next_step) < self.size_of(step)
            )
            if is_nearer and self.satisfied(tried):
                x, step, share = tried, next_step, min(1.0, 2 * share)
            else:
                share = share / 2
        return x, self.size_of(step) < self.eps**0.6 and self.satisfied(x)

    def away(self, x: np.ndarray) -> float:
        """Squared distance from x0 in the metric M."""
        return float((x - self.x0) @ self.M @ (x - self.x0))

    def size_of(self, step: np.ndarray) -> float:
        """Largest entry of a step, relative to the sizes of x."""
        return float(np.max(np.abs(step) / self.size))

    def satisfied(self, x: np.ndarray) -> bool:
        """Whether all constraints are satisfied, dropped rows included."""
        rows, A = self.evaluate(x)
        residual = np.abs(rows)
        is_satisfied = residual <= self.eps**0.6 * (np.abs(A) @ np.maximum(self.size, np.abs(x)))
        if self.terms is not None:
            share = np.where(self.zero_rows, self.eps**0.6, ROUNDINGS * self.eps)
            is_satisfied = is_satisfied | (residual <= share * self.terms)
        return bool(np.all(is_satisfied))

    def restored(self, x: np.ndarray) -> np.ndarray:
        """The point on the constraints that Newton's method reaches from x."""
        for _ in range(4):
            rows, A = self.evaluate(x)
            x = x + self.change(A[self.active], -rows[self.active])
        return x

    def towards_start(self, x: np.ndarray) -> np.ndarray:
        """The step along the constraints whose end is nearest to x0."""
        A = self.evaluate(x)[1][self.active]
        return self.x0 - x + self.change(A, A @ (x - self.x0))

    def change(self, A: np.ndarray, target: np.ndarray) -> np.ndarray:
        if not self.weight:
            return least_change(self.M, A, target)
        length = row_length(A, coordinate_scale_by_numpy(self.M), np)
        rows = A / np.where(length > 0, length, 1)[:, None]
        return least_change(self.M + self.weight * rows.T @ rows, A, target)
