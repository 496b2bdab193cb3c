"""Sparsity of a system's matrices: detection of zeros, and whether a banded solver is worthwhile."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from ..._check_terms import complaint_of_mass
from ..._jaxpr.tracing import is_concrete, is_eager, is_traced, without_derivatives
from ..._kernel.if_repeated import jit_if_repeated
from ..._run.compile import split
from ..._solve import AbstractMethod, Sparse, has_fast_path
from ..._system import AbstractSystem, dynamics_of
from ..problem import InitialState, Problem
from ..stepper.limits import has_single_loop, max_band_width, max_band_width_of_states

NEARBY = 1e-3
"""Relative distance of the other states that are checked: an entry that is zero by chance in one is not zero in the
others.
"""

MOST_BANDS = 16
"""Number of remembered bands: the search for one needs the full matrices."""

_bands: dict[Any, Sparse] = {}
"""Cached bands, shared by models that differ only in numbers. A wrong band is detected at run time."""


def with_sparsity(
    method: AbstractMethod, model: Any, t: Float[Array, "*times"], q: Float[Array, "*at nq"], v: Float[Array, "*at n"]
) -> AbstractMethod:
    """``method``, with the positions of zeros at and near the first of these states, if it is sparse and has none
    yet.
    """
    if not isinstance(method, Sparse) or method.bands or not is_eager(model, t, q, v):
        return method
    pairs = (pair for state in _nearby(t, q, v) for pair in _all_matrices(model, *state))
    return Sparse.of(*((np.asarray(M), np.asarray(A)) for M, A in pairs))


def band_method(problem: Problem, start: InitialState) -> Sparse | None:
    """Banded solver to try first for a large and sparse system; None if it does not apply or the state is traced."""
    *members, n = start.v.shape
    if not max_band_width_of_states(n) or problem.tableau is None:
        return None
    if not problem.plain or not has_fast_path(problem.method):
        return None
    leaves = () if is_concrete(problem.model) else jax.tree.leaves(problem.model)
    model, t, q, v = without_derivatives((problem.model, problem.ts, start.q, start.v))
    if not is_eager(model, t, q, v, start.numbers, problem.counts) or not has_single_loop(
        model, Sparse(), problem.projection
    ):
        return None
    steps = None if problem.counts is None else problem.counts.all
    widest = max_band_width(n, members[0] if members else None, steps)
    return _band(model, t, q, v, widest, tuple(map(is_traced, leaves)))


def band_at_states(
    model: Any, t: Float[Array, "*times"], q: Float[Array, "*at nq"], v: Float[Array, "*at n"]
) -> Sparse | None:
    """Banded solver for accelerations at given states; None where a dense one is better. It compiles quickly."""
    return _band(model, t, q, v, max_band_width_of_states(v.shape[-1]))


def _band(model, t, q, v, widest, differentiated=()):
    """The banded solver, if the band is no wider than ``widest``.

    The band also includes derivatives with respect to the ``differentiated`` leaves, which are therefore changed during
    detection.
    """
    if not widest or q.dtype != np.float64:
        return None
    key = _key(model, t, q, v, differentiated)
    method = _bands.get(key)
    if method is None:
        states = _nearby(t, q, v)
        models = _with_other_numbers(model, differentiated)
        matrices = (_matrices(*at) for at in ((model, *state) for model, state in zip(models, states, strict=True)))
        pairs = [(np.asarray(M), np.asarray(A)) for M, A in matrices]
        if any(complaint_of_mass(M) or not (np.all(np.isfinite(M)) and np.all(np.isfinite(A))) for M, A in pairs):
            return None
        method = replace(Sparse.of(*pairs), has_fallback=True)
        if key is not None:
            _bands[key] = method
        while len(_bands) > MOST_BANDS:
            _bands.pop(next(iter(_bands)), None)
    return method if method.bands[0].width <= widest else None


def forget_band(
    model: Any, t: Float[Array | np.ndarray, "*times"], q: Float[Array, "*at nq"], v: Float[Array, "*at n"]
) -> None:
    """Remove the cached band of this model: entries outside of it were not zero."""
    of_model = _key(model, t, q, v)
    for key in [key for key in _bands if of_model is not None and key[:-1] == of_model[:-1]]:
        _bands.pop(key, None)


def _key(model, t, q, v, differentiated=()):
    """Cache key: everything that determines the band of a model except numbers; None if it is not hashable."""
    static, arrays = split(model)
    if not static.is_hashable():
        return None
    kinds = tuple((x.shape, x.dtype) for x in arrays)
    return static, kinds, q.shape[-1], v.shape[-1], differentiated if any(differentiated) else ()


def _with_other_numbers(model, differentiated):
    """The model three times, with different numbers in the ``differentiated`` leaves.

    An entry that is zero because a number is 0, or two are equal, may have a derivative that is not.
    """
    if not any(differentiated):
        return [model] * 3
    leaves, tree = jax.tree.flatten(model)
    rng = np.random.default_rng(1)

    def changed(x):
        x = np.asarray(x)
        return jax.device_put((x + NEARBY * (1 + np.abs(x)) * rng.uniform(0.5, 1, x.shape)).astype(x.dtype))

    each = lambda: [changed(x) if by else x for x, by in zip(leaves, differentiated, strict=True)]
    return [jax.tree.unflatten(tree, each()) for _ in range(3)]


def _nearby(t, q, v):
    """Three states at and near this one, or near the first of several."""
    t, q, v = t.reshape(-1)[0], *(x.reshape(-1, x.shape[-1])[0] for x in (q, v))
    rng = np.random.default_rng(0)
    size = NEARBY * (1 + float(np.max(np.abs(np.asarray(q)), initial=0)))
    for _ in range(3):
        later = t + jax.device_put(np.asarray(NEARBY * rng.uniform(0, 1), t.dtype))
        yield later, *(x + jax.device_put((size * rng.uniform(-1, 1, x.shape)).astype(x.dtype)) for x in (q, v))


@jit_if_repeated
def _matrices(system, t, q, v):
    """M and the rows of positions."""
    return dynamics_of(system).mass(t, q, v), system.position_slope(t, q, v)


@jit_if_repeated
def _all_matrices(model, t, q, v):
    """(M, A) of accelerations, of positions and of velocities."""
    terms = model(t, q, v)
    if not isinstance(model, AbstractSystem):
        return [(terms.M, terms.A)]
    positions = model.position_slope(t, q, v)
    velocities = model.velocity_slope(t, q, v)
    return [(terms.M, A) for A in (terms.A, positions, velocities)]
