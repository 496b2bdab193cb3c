"""A step in which everything stands once: quick to compile.

Its stages and the corrections at its end are turns of one loop. Each looks at the system at one state and solves
M x + Aᵀν = force, A x = rows, a stage for accelerations, with Q and b, a correction for what takes a residual away.
That is possible where all constraints are positions', so that accelerations and corrections have the same A.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._batch import per_member
from .._rates import rate
from .._solve import AbstractMethod, solve
from .._system import AbstractSystem, shifted
from .correct import Levels, assumptions, levels_at
from .look import Look
from .scale import Scale
from .step import Stepped, step
from .tableau import Tableau

CORRECTIONS = 2
"""Newton's steps on positions at a step's end: they take an error h⁵ to h²⁰."""


def compactly(
    model: Any,
    t: Array,
    h: Array,
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
    method: AbstractMethod | Levels,
    tableau: Tableau,
    projection: bool,
    scale: Scale,
    written_out: bool = False,
) -> Stepped:
    """``step`` in the form that is compiled soonest, for a batch with what is done at each state ``written_out``."""
    if fits(model, method, projection):
        return compact_step(model, t, h, q, v, method, tableau, scale, written_out)
    return step(model, t, h, q, v, method, tableau, projection, scale)


def fits(model: Any, method: AbstractMethod | Levels, projection: bool) -> bool:
    """Whether steps of ``model`` can be so."""
    return (
        projection
        and (method.uniform if isinstance(method, Levels) else True)
        and isinstance(model, AbstractSystem)
        and model.control is None
        and all(constraint.level == "position" for constraint in model.constraints)
    )


def compact_step(
    model: AbstractSystem,
    t: Array,
    h: Array,
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
    method: AbstractMethod | Levels,
    tableau: Tableau,
    scale: Scale,
    written_out: bool = False,
) -> Stepped:
    """What ``step`` does with projection."""
    answer = per_member(_answer) if written_out else _answer
    levels = method if isinstance(method, Levels) else levels_at(model, t, q, v, method)
    stages, dtype = tableau.stages, q.dtype
    turns = stages + CORRECTIONS + 1
    # Up to the first correction a turn begins where the rates so far lead, the later ones where the one before ended.
    weights = np.zeros((turns, turns))
    weights[:stages, :stages] = tableau.weights()
    weights[stages, :stages] = tableau.b
    times = np.concatenate([tableau.c, np.ones(turns - stages)])

    state, split = jnp.concatenate([q, v]), len(q)

    def turn(carry, given):
        rates, reached, _, unusual = carry
        i, c, weights = given
        reached = jnp.where(i <= stages, state + h * (weights @ rates), reached)
        q, v = reached[:split], reached[split:]
        stage, onto_positions = i < stages, i < turns - 1
        x, position, doubtful = answer(model, levels.acceleration, t + c * h, q, v, stage, onto_positions)
        now = jnp.concatenate([rate(model.rates, q, v), x])
        q = shifted(model.rates, q, jnp.where(~stage & onto_positions, x, 0))
        v = v + jnp.where(onto_positions, 0, x)
        rates = jax.lax.dynamic_update_index_in_dim(rates, now, i, 0)
        return (rates, jnp.concatenate([q, v]), position, unusual | doubtful), None

    start = jnp.zeros((turns, state.size), dtype), state, jnp.zeros(scale.rows.shape, dtype), jnp.asarray(False)
    given = jnp.arange(turns), jnp.asarray(times, dtype), jnp.asarray(weights, dtype)
    (rates, reached, violation, unusual), _ = jax.lax.scan(turn, start, given)
    q, v, rates = reached[:split], reached[split:], rates[:stages]
    weigh = lambda weights: h * (jnp.asarray(weights, dtype) @ rates)
    moved = (reached - state - weigh(tableau.b))[:split]
    return Stepped(
        q=q,
        v=v,
        began=rates[0],
        error=weigh(tableau.b_error),
        moved=moved,
        leapt=scale.leaps(moved, h, jnp.max(jnp.abs(rates[:, :split]), axis=0)),
        off=scale.missed(violation) > scale.kept(q),
        unusual=unusual,
    )


def _answer(model, method, t, q, v, stage, onto_positions):
    """The acceleration, in a stage, or what takes a residual away, of positions or of velocities; φ there; and whether
    that may be wrong."""
    M, Q, rows = Look.at(model, method)(t, q, v)
    response = method.respond(*jax.lax.stop_gradient((M, rows.A)))
    missing = jnp.where(stage, rows.b, -jnp.where(onto_positions, rows.position, rows.velocity))
    x = solve(M, rows.A, jnp.where(stage, Q, 0), missing, response)
    doubtful = response.unusual | assumptions(method)
    return x, rows.position, doubtful | ~jnp.all(jnp.isfinite(x)) if method.provisional else doubtful
