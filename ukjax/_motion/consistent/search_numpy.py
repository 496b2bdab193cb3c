"""The nearest point on the constraints, wherever it is, by NumPy: nothing is compiled but what constraints say there.

First onto the constraints by least squares, in a region of trust. There it shows which rows count; then by steps along
the constraints towards where it began, each followed by Newton's method back onto them.
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
from ..._solve import FastPath, coordinate_scale_by_numpy, independent_rows, is_nearly_singular, rounding
from ..._system import AbstractSystem
from ..fallback.row_noise import classify_rows
from ..stepper.drift_correction import MethodPerLevel
from ..stepper.scaling import Scale
from .assemble import at_state, by_least_squares, least_change

MOST = 200
"""Steps along the constraints."""

ROUNDINGS = 64
"""A residual of so many units of the last place of its terms is rounding, whatever its slope."""

Evaluate = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""A residual at x, and its slope there."""


class SearchResult(NamedTuple):
    """q and v, and the usual method with the rows that count there. Where they are not ``reached``, they are what was
    tried last, and what is ``missed`` there, of positions and of velocities, has a residual and the sizes of its terms;
    not ``sensible`` are masses or rows that make no sense."""

    q: Float[Array, " n"]
    v: Float[Array, " n"]
    levels: MethodPerLevel
    reached: bool = True
    sensible: bool = True
    missed: tuple[tuple[np.ndarray, np.ndarray], ...] = ()


def search(
    usual: FastPath, system: AbstractSystem, t: Array, q0: Float[Array, " n"], v0: Float[Array, " n"], scale: Scale
) -> SearchResult:
    """What ``project`` looks for, of a system whose velocities are rates of its coordinates."""
    dtype = q0.dtype
    put = lambda x: jax.device_put(np.asarray(x, dtype))
    look = lambda q, v: [np.asarray(x, float) for x in at_state(system, t, put(q), put(v))]

    def of_positions(q):
        missed, _, _, A, _ = look(q, v0)
        return missed, A

    def of_velocities(v):
        _, missed, _, _, A = look(q, v)
        return missed, A

    def judged(q, v):
        """Rows of positions and of velocities, 0 where they are nothing but rounding."""
        _, _, M, *rows = look(q, v)
        found = classify_rows(lambda *given: (M, at_state(*given)[3:]), system, t, put(q), put(v), M, rows)
        return [each.rows for each in found]

    sizes = lambda q, v: [np.asarray(x, float) for x in _sizes(system, t, put(q), put(v), scale)]
    of_q, of_v = lambda q: sizes(q, v0)[0], lambda v: sizes(q, v)[1]
    linear = all(constraint.linear for constraint in system.held)
    q, by_q, found_q = _nearest(of_positions, q0, look(q0, v0)[2], scale.q, usual, lambda q: judged(q, v0)[0], of_q)
    v, by_v, found_v = _nearest(
        of_velocities, v0, look(q, v0)[2], scale.v, usual, lambda v: judged(q, v)[1], of_v, linear
    )
    levels = MethodPerLevel(usual, by_q or usual, by_v or usual)
    if found_q and found_v:
        return SearchResult(put(q), put(v), levels)
    missed = tuple(zip(look(q, v)[:2], sizes(q, v), strict=True))
    return SearchResult(put(q), put(v), levels, False, by_q is not None and by_v is not None, missed)


@jit_unoptimised
def _sizes(system, t, q, v, scale):
    """The sizes of the terms of φ, and of φ̇ and ψ."""
    tiny = jnp.finfo(q.dtype).tiny
    found = scale.of(system.position_residual, t, q), scale.of(system.velocity_residual, t, q, v)
    return [jnp.maximum(each, tiny) for each in found]


def _nearest(
    look: Evaluate, start, M, size, usual: FastPath, judged, sizes: Callable, linear=False
) -> tuple[np.ndarray, FastPath | None, bool]:
    """argmin (x − x0)ᵀ M (x − x0) where the residual is 0; the method by which it is that, None where nothing makes
    sense; and whether it is."""
    dtype = start.dtype
    eps, x0 = float(np.finfo(dtype).eps), np.asarray(start, float)
    finite = lambda *each: all(np.all(np.isfinite(x)) for x in each)
    rows, A = look(x0)
    if not rows.size or not finite(M, rows, A) or complaint_of_mass(M):
        return x0, None if rows.size else usual, not rows.size and finite(M, x0)
    x = x0 if linear else by_least_squares(look, x0, coordinate_scale_by_numpy(M), eps)
    # Rows that are redundant are so on the constraints, not beside them: the rank found here holds for what follows.
    A = look(x)[1]
    if not finite(A):
        return x, None, False
    real = judged(x)
    rtol = 10 * (eps**0.5 if usual.rtol is None else float(usual.rtol))
    kept = independent_rows(M, real, rtol, rounding(dtype) if usual.least is None else float(usual.least))
    if kept is None:
        return x, None, False
    weight = float(np.mean(np.diagonal(M))) if is_nearly_singular(M) else None
    method = replace(usual, kept=None if len(kept) == len(A) else kept, weight=weight)
    still = ~np.any(real, axis=1)
    search = _Search(look, x0, M, weight or 0.0, np.asarray(size, float), np.array(kept, int), still, eps)
    try:
        x = search.restored(x)
        found = False
        if search.kept(x):
            x, found = (x, True) if linear else search.along(x)
        if not found:  # where slopes vanish, only what residuals are computed from tells what is rounding
            terms = np.maximum(sizes(x), sizes(x0))  # by a program that nobody else waits for
            search = search._replace(terms=terms)
            x, found = (x, search.kept(x)) if linear else search.along(x)
        return x, method, found
    except np.linalg.LinAlgError:  # somewhere the rows are not finite
        return x, method, False


class _Search(NamedTuple):
    """For the x nearest to x0 in the metric M, with ``weight`` on the rows, by those rows that count; ``still`` are
    those that nothing moves; ``terms``, where they are known, are the sizes of what residuals are computed from."""

    look: Evaluate
    x0: Float[np.ndarray, " n"]
    M: Float[np.ndarray, "n n"]
    weight: float
    size: Float[np.ndarray, " n"]
    counts: Int[np.ndarray, " k"]
    still: Bool[np.ndarray, " m"]
    eps: float
    terms: Float[np.ndarray, " m"] | None = None

    def along(self, x: np.ndarray) -> tuple[np.ndarray, bool]:
        """From x, on the constraints, along them to the nearest; and whether that was found."""
        share, step = 1.0, self.towards_start(x)
        for _ in range(MOST):
            if self.size_of(step) <= 64 * self.eps or share < self.eps:
                break
            tried = self.restored(x + share * step)
            further, gain = self.towards_start(tried), share * (step @ self.M @ step) / 2
            # So near the end that rounding hides what is gained, it shows in the steps themselves.
            told = gain > self.eps**0.5 * self.away(x)
            nearer = self.away(x) - self.away(tried) > gain if told else self.size_of(further) < self.size_of(step)
            if nearer and self.kept(tried):
                x, step, share = tried, further, min(1.0, 2 * share)
            else:
                share = share / 2
        return x, self.size_of(step) < self.eps**0.6 and self.kept(x)

    def away(self, x: np.ndarray) -> float:
        return float((x - self.x0) @ self.M @ (x - self.x0))

    def size_of(self, step: np.ndarray) -> float:
        return float(np.max(np.abs(step) / self.size))

    def kept(self, x: np.ndarray) -> bool:
        """Whether all constraints are met, those that are left out as well."""
        rows, A = self.look(x)
        missed = np.abs(rows)
        kept = missed <= self.eps**0.6 * (np.abs(A) @ np.maximum(self.size, np.abs(x)))
        if self.terms is not None:
            share = np.where(self.still, self.eps**0.6, ROUNDINGS * self.eps)
            kept = kept | (missed <= share * self.terms)
        return bool(np.all(kept))

    def restored(self, x: np.ndarray) -> np.ndarray:
        """Back onto the constraints, by Newton's method."""
        for _ in range(4):
            rows, A = self.look(x)
            x = x + self.change(A[self.counts], -rows[self.counts])
        return x

    def towards_start(self, x: np.ndarray) -> np.ndarray:
        """The step along the constraints that leads nearest to x0."""
        A = self.look(x)[1][self.counts]
        return self.x0 - x + self.change(A, A @ (x - self.x0))

    def change(self, A: np.ndarray, missing: np.ndarray) -> np.ndarray:
        return least_change(self.M + self.weight * A.T @ A, A, missing)
