"""What to go on with where the usual method was not enough: without the redundant rows, or by the method asked for.

Which rows of a mechanism are redundant hardly ever changes. So they are found once, by NumPy, and left out of a program
that is as quick as any other; it goes on measuring them, and a row that is left out and yet not kept is as unusual as
rows that are no longer independent. Then the question is asked anew.
"""

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from .._check import check_terms
from .._solve import AbstractMethod, Usual, independent_rows
from .._system import AbstractSystem
from .base import Request
from .correct import Levels, at_every_level

MOST = 8
"""How often rows are decided anew before the method asked for does the rest."""


def first_attempt(request: Request) -> AbstractMethod | Levels:
    """What to begin with."""
    usual = request.method.usual()
    return request.method if usual is None else at_every_level(usual)


def next_attempt(
    request: Request, tried: Levels, t: Array, q: Float[Array, " n"], v: Float[Array, " n"]
) -> AbstractMethod | Levels:
    """What to go on with at (t, q, v), where what was tried met something unusual.

    Raises ``ValueError`` if that is a mass matrix that is none, or terms that are not finite.
    """
    model, usual = request.model, tried.acceleration
    if not isinstance(model, AbstractSystem):
        check_terms(_terms(model, t, q, v), f" at t = {float(t):g} s")
        return request.method
    terms, *rows = _terms_and_rows(model, t, q, v)
    check_terms(terms, f" at t = {float(t):g} s")
    if not request.projection or not isinstance(usual, Usual):
        return request.method
    rtol = 10 * (np.finfo(q.dtype).eps ** 0.5 if usual.rtol is None else float(usual.rtol))
    M = (np.asarray(terms.M) + np.asarray(terms.M).T) / 2
    kept = [independent_rows(M, np.asarray(A), rtol) for A in (terms.A, *rows)]
    if any(each is None for each in kept) or not _watched(model, t, q, v, kept[0]):
        return request.method
    found = Levels(
        *(Usual(usual.rtol, None if len(each) == len(A) else each) for each, A in zip(kept, (terms.A, *rows)))
    )
    return request.method if found == tried else found


def _watched(system, t, q, v, kept):
    """Whether every row of the acceleration that is left out says something of positions or velocities, too."""
    first = 0
    for constraint in system.constraints:
        rows = range(first, first + eqx.filter_eval_shape(constraint.rows, t, q, v)[1].shape[0])
        first = rows.stop
        if constraint.level == "acceleration" and not set(rows) <= set(kept):
            return False
    return True


@eqx.filter_jit
def _terms(model, t, q, v):
    return model(t, q, v)


@eqx.filter_jit
def _terms_and_rows(system, t, q, v):
    positions = jax.jacfwd(lambda q: system.position_residual(t, q))(q)
    velocities = jax.jacfwd(lambda v: system.velocity_residual(t, q, v))(v)
    return system(t, q, v), positions, velocities
