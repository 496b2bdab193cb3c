"""Adaptive steps for a batch of members that need different numbers of them.

A batch in which every member waits for the slowest does most of its work for nothing. Here members pass through a
fixed number of lanes: each iteration is one step of every lane, as long as its member needs it, and a lane whose member
has reached the end takes the next one. Steps end on the samples, so that nothing is interpolated.
"""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._batch import per_member
from .correct import onto_constraints
from .._solve import AbstractMethod
from .step import State, arrive, begin, explicit_step

LANES = 136  # an odd number of cache lines: see ``_batch``
SAFETY, SHRINK, GROW = 0.9, 0.2, 10.0  # of Hairer, Nørsett & Wanner, Solving Ordinary Differential Equations I, II.4
FIRST = 0.01  # the first step, as a share of the time in which the state changes by its own size


class Lanes(eqx.Module):
    """What each lane is at: its ``member`` (that after the last where there is none), the time, the step it would
    take next, the sample it is heading for, and its state."""

    member: Int[Array, " lanes"]
    t: Float[Array, " lanes"]
    h: Float[Array, " lanes"]
    sample: Int[Array, " lanes"]
    steps: Int[Array, " lanes"]
    state: State  # batch last


class Record(eqx.Module):
    """What has been reached; one row more than there are members, for what is of no use."""

    q: Float[Array, "rows samples n"]
    v: Float[Array, "rows samples n"]
    steps: Int[Array, " rows"]
    finished: Bool[Array, " rows"]
    t: Float[Array, " rows"]


def run_in_lanes(
    model: Any,
    q0: Float[Array, "members n"],
    v0: Float[Array, "members n"],
    ts: Float[Array, " samples"],
    method: AbstractMethod,
    solver: dfx.AbstractERK,
    projection: bool,
    tolerance: tuple[Array, Array],
    most: int,
    smallest: float,
) -> Record:
    """Every member from ``ts[0]`` to ``ts[-1]``, with an error per step below ``tolerance`` = (rtol, atol), in at
    most ``most`` steps none of which is shorter than ``smallest`` of the whole time."""
    members, n = q0.shape
    lanes = min(LANES, members)
    least = smallest * (ts[-1] - ts[0])
    none = members  # the row of the record for nobody
    each = lambda function, *axes: jax.vmap(function, in_axes=axes, out_axes=-1)

    def enter(member):
        """The state with which a member begins, from where a step of length zero leads onto the constraints."""
        at = jnp.minimum(member, members - 1)
        return each(lambda q, v: begin(model, ts[0], q, v, method, projection), -1, -1)(q0[at].T, v0[at].T)

    attempt = each(lambda t, h, state: _attempt(model, t, h, state, method, solver, projection, tolerance), -1, -1, -1)

    def go_on(carry):
        lanes, _, _ = carry
        return jnp.any(lanes.member < none)

    def iterate(carry):
        lanes, waiting, record = carry
        target = ts[jnp.minimum(lanes.sample, ts.size - 1)]
        h = jnp.minimum(lanes.h, target - lanes.t)
        new, factor, first = attempt(lanes.t, h, lanes.state)
        started = lanes.steps > 0
        accepted = (factor[1] <= 1) | ~started
        landed = accepted & (h >= target - lanes.t)
        state = jax.tree.map(lambda x, y: jnp.where(accepted, x, y), new, lanes.state)
        t = jnp.where(landed, target, jnp.where(accepted, lanes.t + h, lanes.t))
        # A step cut short to end on a sample says nothing about the step that the motion would allow.
        longer = jnp.where(landed, jnp.maximum(lanes.h, h * factor[0]), h * factor[0])
        shorter = h * jnp.minimum(factor[0], SAFETY)
        step = jnp.where(started, jnp.where(accepted, longer, shorter), first)
        steps = lanes.steps + 1
        good = jnp.all(jnp.isfinite(state.q) & jnp.isfinite(state.v), axis=0) & jnp.isfinite(step)
        sample = lanes.sample + landed
        here = lanes.member < none
        through = here & good & (sample >= ts.size)
        lost = here & ~through & ((step < least) | (steps > most) | ~good)
        record = _write(record, jnp.where(landed & here & ~lost, lanes.member, none), lanes.sample, state)
        leaving = lost | through
        who = jnp.where(leaving, lanes.member, none)
        record = eqx.tree_at(
            lambda r: (r.steps, r.finished, r.t),
            record,
            (record.steps.at[who].set(steps - 1), record.finished.at[who].set(through), record.t.at[who].set(t)),
        )
        lanes = Lanes(lanes.member, t, step, sample, steps, state)
        lanes, waiting = jax.lax.cond(
            jnp.any(leaving), lambda: _refill(lanes, waiting, leaving, enter, ts[0], none), lambda: (lanes, waiting)
        )
        return lanes, waiting, record

    first = jnp.arange(lanes)
    zero = jnp.zeros(lanes, q0.dtype)
    count = jnp.zeros(lanes, int)
    record = Record(
        q=jnp.full((members + 1, ts.size, n), jnp.nan, q0.dtype),
        v=jnp.full((members + 1, ts.size, n), jnp.nan, q0.dtype),
        steps=jnp.zeros(members + 1, int),
        finished=jnp.zeros(members + 1, bool),
        t=jnp.full(members + 1, ts[0]),
    )
    start = Lanes(first, zero + ts[0], zero, count, count, enter(first)), jnp.asarray(lanes), record
    _, _, record = jax.lax.while_loop(go_on, iterate, start)
    return jax.tree.map(lambda x: x[:-1], record)


@per_member
def _attempt(model, t, h, state, method, solver, projection, tolerance):
    """A step and where it leads; by what to multiply its length, with the size of its error; a first length."""
    q, v, rates = explicit_step(model, t, h, state, solver.tableau)
    rtol, atol = tolerance
    weights = jnp.asarray(solver.tableau.b_error, q.dtype)
    size = lambda x, y: atol + rtol * jnp.maximum(jnp.abs(x), jnp.abs(y))
    scale = jnp.concatenate([size(state.q, q), size(state.v, v)])
    error = jnp.concatenate([h * (weights @ rates[0]), h * (weights @ rates[1])]) / scale
    error = jnp.sqrt(jnp.mean(error**2))
    exponent = -1.0 / solver.error_order(None)
    factor = jnp.clip(SAFETY * jnp.where(error > 0, error, 1e-30) ** exponent, SHRINK, GROW)
    if projection:
        q, v = onto_constraints(model, t + h, q, v, state.levels)
    new = arrive(model, t + h, q, v, method, projection)
    # |y| / |y'| in the same scale: after Hairer, Nørsett & Wanner, II.4, who look at a second derivative too.
    here = jnp.concatenate([new.q / size(new.q, new.q), new.v / size(new.v, new.v)])
    rate = jnp.concatenate([new.v / size(new.q, new.q), new.acceleration / size(new.v, new.v)])
    most, change = jnp.max(jnp.abs(here)), jnp.max(jnp.abs(rate))
    first = FIRST * jnp.where((most > 1e-5) & (change > 1e-5), most, 1e-4) / jnp.where(change > 1e-5, change, 1)
    return new, (factor, error), first


def _write(record, member, sample, state):
    place = jnp.minimum(sample, record.q.shape[1] - 1)
    put = lambda into, x: into.at[member, place].set(x.T)
    return eqx.tree_at(lambda r: (r.q, r.v), record, (put(record.q, state.q), put(record.v, state.v)))


def _refill(lanes, waiting, leaving, enter, t0, none):
    """Lanes that are left take the members that wait, in their order."""
    following = jnp.minimum(waiting + jnp.cumsum(leaving) - 1, none)
    member = jnp.where(leaving, following, lanes.member)
    fresh = jax.tree.map(lambda x, y: jnp.where(leaving, x, y), enter(member), lanes.state)
    restart = lambda x, value: jnp.where(leaving, value, x)
    return (
        Lanes(
            member,
            restart(lanes.t, t0),
            restart(lanes.h, 0),
            restart(lanes.sample, 0),
            restart(lanes.steps, 0),
            fresh,
        ),
        waiting + jnp.sum(leaving),
    )
