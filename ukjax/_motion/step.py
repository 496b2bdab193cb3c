"""One step of a motion, as a function of one member: what every loop repeats, for one motion or for a batch."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._batch import per_member
from .._check_terms import symmetric
from .._rates import rate
from .._solve import AbstractMethod, solve
from .._system import rates_of
from .correct import Levels, assumptions, at_every_level, correct, levels_at
from .scale import Scale
from .tableau import Tableau


class Rates(NamedTuple):
    """q̇ and v̇ at every stage of a step."""

    q: Float[Array, "stages nq"]
    v: Float[Array, "stages n"]


class Stepped(NamedTuple):
    """Where a step leads: ``q`` and ``v`` (n,), on the constraints if it ends there; how far q was ``moved`` onto them,
    whether it ``leapt`` so, and whether it is ``off`` them all the same; the ``rates`` on the way; the ``error`` to be
    expected; and whether anything was ``unusual``, beyond what its method can do."""

    q: Float[Array, " nq"]
    v: Float[Array, " n"]
    rates: Rates
    error: Float[Array, " nq+n"]
    moved: Float[Array, " nq"]
    leapt: Bool[Array, ""]
    off: Bool[Array, ""]
    unusual: Bool[Array, ""]

    def beyond(self, method: AbstractMethod | Levels) -> Bool[Array, ""]:
        """Whether the step is to be done by another method."""
        watched = isinstance(method, Levels) and method.may_leave_out
        return self.unusual | self.off if watched else self.unusual


def step(
    model: Any,
    t: Array,
    h: Array,
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
    method: AbstractMethod | Levels,
    tableau: Tableau,
    projection: bool,
    scale: Scale,
) -> Stepped:
    """An explicit Runge–Kutta step from t to t + h.

    The rank of the rows, unless it is known at all ``Levels``, is found where the step starts, on the constraints, and
    holds for its stages and the correction at its end. A step of length zero leads from a start as it was given onto
    the constraints.
    """
    if isinstance(method, Levels):
        levels = method
    else:
        levels = levels_at(model, t, q, v, method) if projection else at_every_level(method)
    rates, unusual = _stages(model, t, h, q, v, levels.acceleration, tableau)
    weigh = lambda weights: (jnp.asarray(weights, q.dtype) @ rates.q, jnp.asarray(weights, q.dtype) @ rates.v)
    (dq, dv), error = weigh(tableau.b), h * jnp.concatenate(weigh(tableau.b_error))
    q, v, off, leapt = q + h * dq, v + h * dv, jnp.asarray(False), jnp.asarray(False)
    moved = jnp.zeros_like(q)
    if projection:
        ahead = q
        q, v, off, doubtful = correct(model, t + h, q, v, levels, scale)
        moved = q - ahead
        unusual, leapt = unusual | doubtful, scale.leaps(moved, h, rates.q)
    return Stepped(q, v, rates, error, moved, leapt, off, unusual)


def _stages(model, t, h, q, v, method, tableau) -> tuple[Rates, Bool[Array, ""]]:
    """One loop, in which the acceleration stands once, however many stages there are."""
    stages = tableau.stages

    def stage(found, given):
        (q_rates, v_rates), unusual = found
        i, c, weights = given
        q_stage, v_stage = q + h * (weights @ q_rates), v + h * (weights @ v_rates)
        v_rate, doubt = acceleration(model, t + c * h, q_stage, v_stage, method)
        q_rate = rate(rates_of(model), q_stage, v_stage)
        return (Rates(q_rates.at[i].set(q_rate), v_rates.at[i].set(v_rate)), unusual | doubt), None

    nothing = Rates(jnp.zeros((stages, q.size), q.dtype), jnp.zeros((stages, v.size), q.dtype))
    given = jnp.arange(stages), jnp.asarray(tableau.c, q.dtype), jnp.asarray(tableau.weights(), q.dtype)
    return jax.lax.scan(stage, (nothing, jnp.asarray(False)), given)[0]


@per_member
def acceleration(
    model: Any, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], method: AbstractMethod
) -> tuple[Float[Array, " n"], Bool[Array, ""]]:
    """v̇ of the constrained motion, and whether the method may be wrong about it."""
    terms = model(t, q, v).in_one_precision()
    M = symmetric(terms.M)
    response = method.respond(*jax.lax.stop_gradient((M, terms.A)))
    # What the constraints do with c besides is linear in it: see ``constrained_motion``.
    force = terms.Q if terms.c is None else terms.Q + terms.c
    return solve(M, terms.A, force, terms.b, response), response.unusual | assumptions(method)
