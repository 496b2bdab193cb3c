"""Where the matrices of a system are zero, for a method that makes use of it; and whether one should."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.core
import numpy as np
from jaxtyping import Array, Float

from ..._check import is_eager, without_derivatives
from ..._check_terms import complaint_of_mass
from ..._run.compile import jit_unoptimised
from ..._solve import AbstractMethod, Sparse
from ..._system import AbstractSystem, dynamics_of
from ..problem import InitialState, Problem
from ..stepper.limits import has_single_loop, max_band_width, max_band_width_of_states

NEARBY = 1e-3
"""How far away else one looks: what is zero by chance in one state is not in the others."""

MOST_BANDS = 16
"""So many are remembered: to find one takes the matrices in full."""

_bands: dict[Any, Sparse] = {}
"""Of models that differ in their numbers alone, one for all: where that is wrong, it shows."""


def with_sparsity(
    method: AbstractMethod, model: Any, t: Float[Array, "*times"], q: Float[Array, "*at nq"], v: Float[Array, "*at n"]
) -> AbstractMethod:
    """``method``, and if it is sparse and does not know it yet, with the places of zeros at and near this state, or the
    first of these."""
    if not isinstance(method, Sparse) or method.bands or not is_eager(model, t, q, v):
        return method
    pairs = (pair for state in _nearby(t, q, v) for pair in _all_matrices(model, *state))
    return Sparse.of(*((np.asarray(M), np.asarray(A)) for M, A in pairs))


def band_method(problem: Problem, start: InitialState) -> Sparse | None:
    """What is to be tried first for a system that is large and sparse; None for any other, or if nothing is known."""
    *members, n = start.v.shape
    if not max_band_width_of_states(n) or not problem.plain or problem.method.usual() is None:
        return None
    differentiated = [isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(problem.model)]
    model, t, q, v = without_derivatives((problem.model, problem.ts, start.q, start.v))
    if not is_eager(model, t, q, v, start.numbers, problem.counts) or not has_single_loop(
        model, Sparse(), problem.projection
    ):
        return None
    steps = None if problem.counts is None else problem.counts.all
    widest = max_band_width(n, members[0] if members else None, steps)
    return _band(model, t, q, v, widest, tuple(differentiated))


def band_at_states(
    model: Any, t: Float[Array, "*times"], q: Float[Array, "*at nq"], v: Float[Array, "*at n"]
) -> Sparse | None:
    """The same for accelerations at known states, which are asked for once or often: one that is ready soon."""
    return _band(model, t, q, v, max_band_width_of_states(v.shape[-1]))


def _band(model, t, q, v, widest, differentiated=()):
    """The band, if it is no wider than ``widest``. It holds the derivatives by the leaves that are ``differentiated``,
    too: these are changed while zeros are looked for."""
    if not widest or q.dtype != np.float64:
        return None
    key = _key(model, t, q, v, differentiated)
    found = _bands.get(key)
    if found is None:
        states = _nearby(t, q, v)
        models = _with_other_numbers(model, differentiated)
        matrices = (_matrices(*at) for at in ((model, *state) for model, state in zip(models, states, strict=True)))
        pairs = [(np.asarray(M), np.asarray(A)) for M, A in matrices]
        if any(complaint_of_mass(M) or not (np.all(np.isfinite(M)) and np.all(np.isfinite(A))) for M, A in pairs):
            return None
        found = replace(Sparse.of(*pairs), has_fallback=True)
        if key is not None:
            _bands[key] = found
        while len(_bands) > MOST_BANDS:
            _bands.pop(next(iter(_bands)), None)
    return found if found.bands[0].width <= widest else None


def forget_band(
    model: Any, t: Float[Array | np.ndarray, "*times"], q: Float[Array, "*at nq"], v: Float[Array, "*at n"]
) -> None:
    """Look anew, the next time: entries were met where there had been none."""
    of_model = _key(model, t, q, v)
    for key in [key for key in _bands if of_model is not None and key[:-1] == of_model[:-1]]:
        _bands.pop(key, None)


def _key(model, t, q, v, differentiated=()):
    """What tells apart the models whose bands may differ, but for numbers; None where nothing does."""
    leaves, tree = jax.tree.flatten(model)
    kinds = tuple((x.shape, x.dtype) if eqx.is_array(x) else x for x in leaves)
    key = tree, kinds, q.shape[-1], v.shape[-1], differentiated if any(differentiated) else ()
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _with_other_numbers(model, differentiated):
    """The model three times, each with other numbers in the leaves that are ``differentiated``: what is zero by the
    value of one, or since two are equal, has a derivative."""
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
    """Three states at and near this one, or the first of these."""
    t, q, v = t.reshape(-1)[0], *(x.reshape(-1, x.shape[-1])[0] for x in (q, v))
    rng = np.random.default_rng(0)
    size = NEARBY * (1 + float(np.max(np.abs(np.asarray(q)), initial=0)))
    for _ in range(3):
        later = t + jax.device_put(np.asarray(NEARBY * rng.uniform(0, 1), t.dtype))
        yield later, *(x + jax.device_put((size * rng.uniform(-1, 1, x.shape)).astype(x.dtype)) for x in (q, v))


@jit_unoptimised
def _matrices(system, t, q, v):
    """M and the rows of positions."""
    return dynamics_of(system).mass(t, q, v), system.position_slope(t, q, v)


@jit_unoptimised
def _all_matrices(model, t, q, v):
    """(M, A) of accelerations, of positions and of velocities."""
    terms = model(t, q, v)
    if not isinstance(model, AbstractSystem):
        return [(terms.M, terms.A)]
    positions = model.position_slope(t, q, v)
    velocities = model.velocity_slope(t, q, v)
    return [(terms.M, A) for A in (terms.A, positions, velocities)]
