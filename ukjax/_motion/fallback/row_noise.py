"""Distinguishes small rows from rows that vanish except for rounding.

The size of a row does not show this: 1e-10 ẏ = 0 is a valid constraint in a suitable unit, while the row 1000 sin q ẏ
at q = π is only rounding. A perturbation of the inputs shows it: if they change by a few roundings, a row of rounding
changes by its own size, and any other row hardly changes.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from ..._kernel.if_repeated import jit_if_repeated
from ..._solve import SVD, AbstractMethod, Orthogonal, UdwadiaPhohomsiri, coordinate_scale_by_numpy, doubtful, rounding
from ..._system import AbstractSystem

Evaluate = Callable[[Any, Array | np.ndarray, Array, Array], tuple[Any, Sequence[Any]]]
"""Function of a model, t, q and v that returns M and the matrices A of one or more levels."""

ROUNDINGS = 4
"""Perturbation of all inputs, in units of eps."""

PERTURBATIONS = 6
"""Number of random perturbations."""

MAX_STATES = 16
"""States of a motion that are checked."""


class RowClasses(NamedTuple):
    """Classification of the rows A (m, n) of one level at one state.

    Attributes
    ----------
    rows
        A (m, n), with rows of rounding and undecided rows set to 0.
    smallest
        Norm of the smallest of the other rows, relative to the largest.
    noise
        Norm of the largest row that is rounding, relative to the largest.
    undecided
        Mask (m,) of rows that are as small as rounding, although perturbations do not change them.
    """

    rows: np.ndarray
    smallest: float
    noise: float
    undecided: np.ndarray


def classify_rows(
    evaluate: Evaluate, model: Any, t: Array | np.ndarray, q: Array, v: Array, M: np.ndarray, rows: Sequence[Any]
) -> list[RowClasses]:
    """Classify the rows of each level at one state."""
    unit = coordinate_scale_by_numpy(M)
    matrices = [np.asarray(x) for x in rows]
    eps = float(np.finfo(q.dtype).eps)
    lengths = [np.linalg.norm(A * unit, axis=1) for A in matrices]
    shares = [length / max(float(length.max(initial=0)), float(np.finfo(length.dtype).tiny)) for length in lengths]
    small = [(share > 0) & (share < eps**0.5) for share in shares]
    changes = [np.zeros_like(length) for length in lengths]
    if any(mask.any() for mask in small):
        for state in _nearby_states(model, t, q, v, unit):
            perturbed = evaluate(*state)[1]
            for A, perturbed_A, change in zip(matrices, perturbed, changes, strict=True):
                np.maximum(change, np.linalg.norm((np.asarray(perturbed_A) - A) * unit, axis=1), out=change)
    classes = []
    for A, length, share, is_small, change in zip(matrices, lengths, shares, small, changes, strict=True):
        noise = is_small & (change > length / 4)
        undecided = is_small & ~noise & (share <= rounding(q.dtype))
        is_row = (share > 0) & ~noise & ~undecided
        classes.append(
            RowClasses(
                np.where(is_row[:, None], A, 0),
                float(share[is_row].min(initial=1)),
                float(share[noise].max(initial=0)),
                undecided,
            )
        )
    return classes


def changed_by_rounding(
    function: Callable[..., Sequence[Any]], model: Any, t: Array, q: Array, v: Array, M: np.ndarray
) -> list[np.ndarray]:
    """Largest change of each entry of ``function(model, t, q, v)`` if all inputs change by a few roundings.

    It is the rounding error that may remain of a 0.
    """
    values = [np.asarray(x) for x in function(model, t, q, v)]
    changes = [np.zeros_like(x) for x in values]
    for state in _nearby_states(model, t, q, v, coordinate_scale_by_numpy(M)):
        for x, perturbed, change in zip(values, function(*state), changes, strict=True):
            np.maximum(change, np.abs(np.asarray(perturbed) - x), out=change)
    return changes


def smallest_row_of(classes: Sequence[RowClasses], dtype: np.dtype) -> float | None:
    """The relative row norm below which the fast path must request a fallback; None for its default."""
    smallest = min(level.smallest for level in classes)
    if smallest > 2 * doubtful(dtype):  # the fast path measures rows by other masses
        return None
    eps = float(np.finfo(dtype).eps)
    # Only a few distinct values, since each may compile a program.
    return eps ** float(np.ceil(8 * np.log(smallest) / np.log(eps)) / 8 + 0.25)


def without_noise_rows(
    method: AbstractMethod,
    model: Any,
    t: Array | np.ndarray,
    q: Float[Array, "*at nq"],
    v: Float[Array, "*at n"],
) -> AbstractMethod:
    """``method`` with its limit ``least`` set above the rounding of the rows at these states of ``model``."""
    if not isinstance(method, Orthogonal | SVD | UdwadiaPhohomsiri) or method.least is not None:
        return method
    q, v = (x.reshape(-1, x.shape[-1]) for x in (q, v))
    times = np.broadcast_to(np.asarray(t).reshape(-1), len(q))
    classes = []
    for i in np.unique(np.linspace(0, len(q) - 1, min(len(q), MAX_STATES)).astype(int)):
        at = jax.device_put(times[i]), q[i], v[i]
        M, A = mass_and_rows(model, *at)
        if np.all(np.isfinite(M)):
            classes += classify_rows(mass_and_rows, model, *at, np.asarray(M), A)
    noise, smallest = (
        max((level.noise for level in classes), default=0),
        min((level.smallest for level in classes), default=1),
    )
    if noise <= rounding(q.dtype) or 2 * noise >= smallest:
        return method
    return replace(method, least=float(min(10 ** np.ceil(np.log10(2 * noise)), (noise * smallest) ** 0.5)))


@jit_if_repeated
def mass_and_rows(model: Any, t: Array, q: Array, v: Array) -> tuple[Array, list[Array]]:
    """M and A of any model."""
    terms = model.passive(t, q, v) if isinstance(model, AbstractSystem) else model(t, q, v)
    return terms.M, [terms.A]


def _nearby_states(model, t, q, v, coordinate):
    rng = np.random.default_rng(0)
    return (_perturbed(model, t, q, v, coordinate, rng) for _ in range(PERTURBATIONS))


def _perturbed(model, t, q, v, coordinate, rng):
    """Model and state changed by a few roundings, with random signs.

    q and v change relative to their largest entry, in units of unit mass, since they are sums to which that entry
    contributes.
    """
    size = ROUNDINGS * float(np.finfo(q.dtype).eps)

    def by_roundings(x, scale):
        values = np.asarray(x)
        return jax.device_put((values + size * scale * rng.choice((-1, 1), values.shape)).astype(values.dtype))

    def largest(x):
        x = np.abs(np.asarray(x))
        unit = coordinate if x.shape == coordinate.shape else np.ones(x.shape)
        return np.maximum(x, unit * np.max(x / unit, initial=0))

    numbers, rest = eqx.partition(model, eqx.is_inexact_array)
    numbers = jax.tree.map(lambda x: by_roundings(x, np.abs(np.asarray(x))), numbers)
    t, q, v = by_roundings(t, np.abs(np.asarray(t))), by_roundings(q, largest(q)), by_roundings(v, largest(v))
    return eqx.combine(numbers, rest), t, q, v
