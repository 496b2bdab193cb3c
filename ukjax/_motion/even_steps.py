"""Fixed steps: the plain loop, for one motion or for a whole batch in step."""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._batch import per_member
from .._solve import AbstractMethod
from .step import advance, begin

OFTEN = 300
"""From so many steps on, even the step of a few members is worth the time of compiling it well."""


class Counts(eqx.Module):
    """How many steps lead ``between`` each sample and the next, ``most`` where there are most."""

    between: Int[Array, " intervals"]
    most: int = eqx.field(static=True)

    @classmethod
    def of(cls, ts: np.ndarray, dt: float) -> "Counts":
        """Equal steps between the times ``ts``, none longer than dt."""
        between = np.maximum(1, np.ceil(np.diff(ts) / dt - 1e-6)).astype(int)
        return cls(jnp.asarray(between), int(between.max()))


def roll(
    model: Any,
    q0: Float[Array, "n *batch"],
    v0: Float[Array, "n *batch"],
    ts: Float[Array, " samples"],
    counts: Counts,
    method: AbstractMethod,
    solver: dfx.AbstractERK,
    projection: bool,
) -> tuple[Float[Array, "samples n *batch"], Float[Array, "samples n *batch"]]:
    """q and v at ``ts``, in explicit Runge–Kutta steps.

    The batch, if there is one, is the last axis: the entries of different members are neighbours in memory.
    """

    def each(function, *axes):
        return function if q0.ndim == 1 else jax.vmap(function, in_axes=axes, out_axes=-1)

    start = each(lambda t, q, v: begin(model, t, q, v, method, projection), None, -1, -1)
    advanced = per_member(advance, few=2) if counts.most * ts.size >= OFTEN else per_member(advance)
    step = each(lambda t, h, state: advanced(model, t, h, state, method, solver, projection), None, None, -1)

    def interval(state, between):
        t0, t1, count = between
        h = (t1 - t0) / count

        def one(state, i):
            here = eqx.filter(state, eqx.is_array)
            done = jax.lax.cond(i < count, lambda: eqx.filter(step(t0 + i * h, h, state), eqx.is_array), lambda: here)
            return eqx.combine(done, state), None

        state, _ = jax.lax.scan(one, state, jnp.arange(counts.most))
        return state, (state.q, state.v)

    # The first interval has no length: its one step leads from q0, v0 to the first sample.
    ends = jnp.concatenate([ts[:1], ts])
    between = jnp.concatenate([jnp.ones_like(counts.between[:1]), counts.between])
    _, (q, v) = jax.lax.scan(interval, start(ts[0], q0, v0), (ends[:-1], ends[1:], between))
    return q, v
