"""One step of a simulation, as a function of one member: what a batch repeats for all of them at once."""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._batch import per_member
from .correct import Levels, at_every_level, keeping_rows, onto_constraints
from .._equation import constrained_motion
from .._solve import AbstractMethod


class State(eqx.Module):
    """Where a motion is: q, v and q̈ (n,), and how to solve in the step that begins there."""

    q: Float[Array, " n"]
    v: Float[Array, " n"]
    acceleration: Float[Array, " n"]
    levels: Levels


def begin(model: Any, t: Array, q: Array, v: Array, method: AbstractMethod, projection: bool) -> State:
    """q and v as they are given, from where a step of length zero leads to the state proper: on the constraints, with
    its acceleration. (Compiling one program is quicker than two.)"""
    levels = at_every_level(method)
    if projection:
        found = eqx.filter_eval_shape(keeping_rows, model, t, q, v, method)
        levels = jax.tree.map(lambda kept: jnp.ones(kept.shape, kept.dtype), found)
    return State(q, v, jnp.zeros_like(q), levels)


def advance(
    model: Any, t: Array, h: Array, state: State, method: AbstractMethod, solver: dfx.AbstractERK, projection: bool
) -> State:
    """The state after an explicit Runge–Kutta step from t to t + h.

    The rank of the rows is found where the step starts, on the constraints, and holds for its stages.
    """
    q, v, _ = explicit_step(model, t, h, state, solver.tableau)
    if projection:
        q, v = onto_constraints(model, t + h, q, v, state.levels)
    return arrive(model, t + h, q, v, method, projection)


def explicit_step(
    model: Any, t: Array, h: Array, state: State, tableau: Any
) -> tuple[Array, Array, tuple[Array, Array]]:
    """q and v at t + h, and the rates (v, q̈) of all stages, each (stages, n), by a ``diffrax.ButcherTableau``."""
    stages = len(tableau.c) + 1
    weights = np.zeros((stages, stages))
    for i, row in enumerate(tableau.a_lower, 1):
        weights[i, : len(row)] = row

    def moved(weights, rates):
        return state.q + h * (weights @ rates[0]), state.v + h * (weights @ rates[1])

    def stage(rates, given):
        i, c, weights = given
        q, v = moved(weights, rates)
        q_rate, v_rate = v, acceleration(model, t + c * h, q, v, state.levels.acceleration)
        return (rates[0].at[i].set(q_rate), rates[1].at[i].set(v_rate)), None

    dtype = state.q.dtype
    none = jnp.zeros((stages, state.q.size), dtype)
    given = jnp.arange(1, stages), jnp.asarray(tableau.c, dtype), jnp.asarray(weights[1:], dtype)
    rates, _ = jax.lax.scan(stage, (none.at[0].set(state.v), none.at[0].set(state.acceleration)), given)
    return *moved(jnp.asarray(tableau.b_sol, dtype), rates), rates


@per_member
def acceleration(model: Any, t: Array, q: Array, v: Array, method: AbstractMethod) -> Float[Array, " n"]:
    """q̈ of the constrained motion."""
    return constrained_motion(model(t, q, v), method).acceleration


@per_member
def arrive(model: Any, t: Array, q: Array, v: Array, method: AbstractMethod, projection: bool) -> State:
    """The state at t, q, v."""
    levels = keeping_rows(model, t, q, v, method) if projection else at_every_level(method)
    return State(q, v, acceleration(model, t, q, v, method), levels)
