"""Rows that are small beside others: which are what they say, and which are all that rounding left of rows that vanish.

Their size does not tell: 1e-10 ẏ = 0 is as good a constraint as any, in a unit of its own, while a row 1000 sin q ẏ at
q = π is nothing. What they were computed from does: where that moves by a few roundings, what is rounding changes by
its own size, and what is not hardly changes.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from ..._run.compile import jit_unoptimised
from ..._solve import SVD, AbstractMethod, Orthogonal, UdwadiaPhohomsiri, coordinate_scale_by_numpy, doubtful, rounding

Evaluate = Callable[[Any, Array | np.ndarray, Array, Array], tuple[Any, Sequence[Any]]]
"""Of a model, t, q and v: M, and A for accelerations, positions or velocities, as many as there are."""

ROUNDINGS = 4
"""By so many everything that rows are computed from is moved, to see what changes."""

TRIES = 6
MOST_STATES = 16
"""Of a motion, that are looked at."""


class RowClasses(NamedTuple):
    """``rows`` A (m, n), 0 where they are nothing but rounding; in shares of the largest, what the ``smallest`` of the
    others is, and the most that was found to be ``noise``; and which are ``untold`` (m,): as small as rounding, though
    nothing changes them. These are left out, too."""

    rows: np.ndarray
    smallest: float
    noise: float
    untold: np.ndarray


def classify_rows(
    look: Evaluate, model: Any, t: Array | np.ndarray, q: Array, v: Array, M: np.ndarray, rows: Sequence[Any]
) -> list[RowClasses]:
    """What the rows that are seen at one state are."""
    coordinate = coordinate_scale_by_numpy(M)
    given = [np.asarray(x) for x in rows]
    eps = float(np.finfo(q.dtype).eps)
    lengths = [np.linalg.norm(A * coordinate, axis=1) for A in given]
    shares = [length / max(float(length.max(initial=0)), float(np.finfo(length.dtype).tiny)) for length in lengths]
    small = [(share > 0) & (share < eps**0.5) for share in shares]
    changes = [np.zeros_like(length) for length in lengths]
    if any(each.any() for each in small):
        for state in _nearby_states(model, t, q, v, coordinate):
            moved = look(*state)[1]
            for A, again, change in zip(given, moved, changes, strict=True):
                np.maximum(change, np.linalg.norm((np.asarray(again) - A) * coordinate, axis=1), out=change)
    found = []
    for A, length, share, suspect, change in zip(given, lengths, shares, small, changes, strict=True):
        noise = suspect & (change > length / 4)
        untold = suspect & ~noise & (share <= rounding(q.dtype))
        counts = (share > 0) & ~noise & ~untold
        found.append(
            RowClasses(
                np.where(counts[:, None], A, 0),
                float(share[counts].min(initial=1)),
                float(share[noise].max(initial=0)),
                untold,
            )
        )
    return found


def changed_by_rounding(
    function: Callable[..., Sequence[Any]], model: Any, t: Array, q: Array, v: Array, M: np.ndarray
) -> list[np.ndarray]:
    """The most by which each entry of what ``function(model, t, q, v)`` returns changes where all that it is computed
    from is moved by a few roundings: what rounding may leave of 0."""
    here = [np.asarray(x) for x in function(model, t, q, v)]
    changes = [np.zeros_like(x) for x in here]
    for state in _nearby_states(model, t, q, v, coordinate_scale_by_numpy(M)):
        for x, moved, change in zip(here, function(*state), changes, strict=True):
            np.maximum(change, np.abs(np.asarray(moved) - x), out=change)
    return changes


def smallest_row_of(found: Sequence[RowClasses], dtype: np.dtype) -> float | None:
    """Below what share the usual method is to ask again; None for what it asks by itself."""
    smallest = min(each.smallest for each in found)
    if smallest > 2 * doubtful(dtype):  # it has other masses for its units
        return None
    eps = float(np.finfo(dtype).eps)
    # Few values, since each may be a program.
    return eps ** float(np.ceil(8 * np.log(smallest) / np.log(eps)) / 8 + 0.25)


def without_noise_rows(
    method: AbstractMethod,
    model: Any,
    t: Array | np.ndarray,
    q: Float[Array, "*at nq"],
    v: Float[Array, "*at n"],
) -> AbstractMethod:
    """``method``, which sees the numbers alone, told how large rounding is at these states of ``model``."""
    if not isinstance(method, Orthogonal | SVD | UdwadiaPhohomsiri) or method.least is not None:
        return method
    q, v = (x.reshape(-1, x.shape[-1]) for x in (q, v))
    times = np.broadcast_to(np.asarray(t).reshape(-1), len(q))
    found = []
    for i in np.unique(np.linspace(0, len(q) - 1, min(len(q), MOST_STATES)).astype(int)):
        at = jax.device_put(times[i]), q[i], v[i]
        M, A = mass_and_rows(model, *at)
        if np.all(np.isfinite(M)):
            found += classify_rows(mass_and_rows, model, *at, np.asarray(M), A)
    noise, smallest = max((each.noise for each in found), default=0), min((each.smallest for each in found), default=1)
    if noise <= rounding(q.dtype) or 2 * noise >= smallest:
        return method
    return replace(method, least=float(min(10 ** np.ceil(np.log10(2 * noise)), (noise * smallest) ** 0.5)))


@jit_unoptimised
def mass_and_rows(model: Any, t: Array, q: Array, v: Array) -> tuple[Array, list[Array]]:
    """M and A of any model."""
    terms = model(t, q, v)
    return terms.M, [terms.A]


def _nearby_states(model, t, q, v, coordinate):
    rng = np.random.default_rng(0)
    return (_moved(model, t, q, v, coordinate, rng) for _ in range(TRIES))


def _moved(model, t, q, v, coordinate, rng):
    """All of it, up or down by a few roundings: q and v of their largest entry, in unit masses, since they come from
    sums in which that has a part."""
    size = ROUNDINGS * float(np.finfo(q.dtype).eps)

    def by_roundings(x, scale):
        x = np.asarray(x)
        return jax.device_put((x + size * scale * rng.choice((-1, 1), x.shape)).astype(x.dtype))

    def largest(x):
        x = np.abs(np.asarray(x))
        unit = coordinate if x.shape == coordinate.shape else np.ones(x.shape)
        return np.maximum(x, unit * np.max(x / unit, initial=0))

    numbers, rest = eqx.partition(model, eqx.is_inexact_array)
    numbers = jax.tree.map(lambda x: by_roundings(x, np.abs(np.asarray(x))), numbers)
    t, q, v = by_roundings(t, np.abs(np.asarray(t))), by_roundings(q, largest(q)), by_roundings(v, largest(v))
    return eqx.combine(numbers, rest), t, q, v
