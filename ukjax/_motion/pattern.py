"""Where the matrices of a system are zero, for a method that makes use of it."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from .._check import known
from .._haste import at_once
from .._solve import AbstractMethod, Sparse
from .._system import AbstractSystem

NEARBY = 1e-3
"""How far away else one looks: what is zero by chance in one state is not in the others."""


def with_pattern(
    method: AbstractMethod, model: Any, t: Float[Array, "*times"], q: Float[Array, "*at nq"], v: Float[Array, "*at n"]
) -> AbstractMethod:
    """``method``, and if it is sparse and does not know it yet, with the places of zeros at and near this state, or the
    first of these."""
    if not isinstance(method, Sparse) or method.bands or not known(model, t, q, v):
        return method
    t, q, v = t.reshape(-1)[0], *(x.reshape(-1, x.shape[-1])[0] for x in (q, v))
    rng, found = np.random.default_rng(0), []
    size = NEARBY * (1 + float(np.max(np.abs(np.asarray(q)), initial=0)))
    for _ in range(3):
        later = t + jax.device_put(np.asarray(NEARBY * rng.uniform(0, 1), t.dtype))
        near = [x + jax.device_put((size * rng.uniform(-1, 1, x.shape)).astype(x.dtype)) for x in (q, v)]
        found += [tuple(map(np.asarray, pair)) for pair in _matrices(model, later, *near)]
    return Sparse.of(*found)


@at_once
def _matrices(model, t, q, v):
    """(M, A) of accelerations, of positions and of velocities."""
    terms = model(t, q, v)
    if not isinstance(model, AbstractSystem):
        return [(terms.M, terms.A)]
    positions = model.position_slope(t, q, v)
    velocities = model.velocity_slope(t, q, v)
    return [(terms.M, A) for A in (terms.A, positions, velocities)]
