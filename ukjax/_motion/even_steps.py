"""Fixed steps of known number: the plain loop, for one motion or for a whole batch in step."""

from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._batch import per_member
from .._batch.blocks import in_blocks
from .._check import known
from .._solve import AbstractMethod
from .attempts import every_member, first_attempt
from .base import AbstractLoop, Counts, Request, Samples, check_shapes
from .correct import Levels
from .one import One
from .outcome import OFF_CONSTRAINTS, UNUSUAL, of_samples
from .step import step
from .tableau import Tableau

MANY_MEMBER_STEPS = 20_000_000
"""From so many steps times members on, it is worth the time of compiling a step as a whole."""

OFTEN = 300
"""From so many steps on, even the step of a few members is worth the time of compiling it well."""


class EvenSteps(AbstractLoop):
    """Equal steps between each sample and the next, which they meet exactly."""

    keeps_watch: ClassVar[bool] = True

    def accepts(self, request: Request, q0: Float[Array, "*batch n"], v0: Float[Array, "*batch n"]) -> bool:
        return request.plain and request.counts is not None

    def run(self, request: Request, q0: Float[Array, "*batch n"], v0: Float[Array, "*batch n"]) -> Samples:
        if not known(request, q0, v0):
            return _rolled(q0, v0, request)
        assert request.counts is not None, "accepted only if there are any"
        if q0.ndim == 2:
            request = replace(request, long=len(q0) * int(np.sum(request.counts.between)) >= MANY_MEMBER_STEPS)
            return every_member(lambda request, q, v: in_blocks(_rolled, q, v, request), request, q0, v0)
        method = first_attempt(request, flexible=False)
        found = _rolled(q0, v0, replace(request, attempt=method, long=True))
        return One().run(request, q0, v0) if int(found.result) == UNUSUAL else found


def even_counts(ts: np.ndarray, dt: float) -> np.ndarray:
    """How many equal steps lead from each time of ``ts`` to the next, if none is longer than dt."""
    return np.maximum(1, np.ceil(np.diff(ts) / dt - 1e-6)).astype(int)


def even_times(ts: np.ndarray, dt: float) -> np.ndarray:
    """The times where these steps begin, and the last."""
    begin = [np.linspace(a, b, k, endpoint=False) for a, b, k in zip(ts, ts[1:], even_counts(ts, dt), strict=False)]
    return np.concatenate([*begin, ts[-1:]])


@eqx.filter_jit
def _rolled(q0, v0, request):
    ts, counts = request.ts, request.counts
    check_shapes(request.model, ts[0], *(x if x.ndim == 1 else x[0] for x in (q0, v0)))
    how = request.by, request.tableau, request.projection, request.long
    q, v, beyond, off = roll(request.model, q0.T, v0.T, ts, counts, *how)
    if q0.ndim == 2:
        q, v = jnp.moveaxis(q, -1, 0), jnp.moveaxis(v, -1, 0)
    result = jnp.where(beyond, UNUSUAL, jnp.where(off, OFF_CONSTRAINTS, of_samples(q, v)))
    return Samples(
        t=jnp.broadcast_to(ts, q.shape[:-1]),
        q=q,
        v=v,
        result=result,
        steps=jnp.broadcast_to(jnp.sum(counts.between), result.shape),
        last=last_reached(ts, q, v, q0, v0),
    )


def last_reached(ts: Array, q: Array, v: Array, q0: Array, v0: Array) -> tuple[Array, Array, Array]:
    """t, q and v of the last sample that was reached, or the start."""
    good = jnp.all(jnp.isfinite(q) & jnp.isfinite(v), axis=-1)
    reached = jnp.sum(jnp.cumprod(good, axis=-1), axis=-1)
    last = jnp.maximum(reached - 1, 0)
    at_last = lambda x, x0: jnp.where(
        reached[..., None] > 0, jnp.take_along_axis(x, last[..., None, None], axis=-2)[..., 0, :], x0
    )
    return ts[last], at_last(q, q0), at_last(v, v0)


def roll(
    model: Any,
    q0: Float[Array, "n *batch"],
    v0: Float[Array, "n *batch"],
    ts: Float[Array, " samples"],
    counts: Counts,
    method: AbstractMethod | Levels,
    tableau: Tableau,
    projection: bool,
    long: bool = False,
) -> tuple[
    Float[Array, "samples n *batch"], Float[Array, "samples n *batch"], Bool[Array, "*batch"], Bool[Array, "*batch"]
]:
    """q and v at ``ts``, in explicit Runge–Kutta steps; and whether a step was beyond what the method can do, and one
    off the constraints.

    The batch, if there is one, is the last axis: the entries of different members are neighbours in memory.
    """

    def one(t, h, q, v):
        stepped = step(model, t, h, q, v, method, tableau, projection)
        return stepped.q, stepped.v, stepped.beyond(method), stepped.off()

    if long and q0.ndim == 1:
        one = per_member(one, few=1)
    elif long or not isinstance(method, Levels):
        one = per_member(one, few=2) if counts.most * ts.size >= OFTEN else per_member(one)
    if q0.ndim == 2:
        one = jax.vmap(one, in_axes=(None, None, -1, -1), out_axes=-1)

    def interval(state, between):
        t0, t1, count = between
        h = (t1 - t0) / count

        def go_on(state, i):
            def further():
                q, v, beyond, off = one(t0 + i * h, h, *state[:2])
                return q, v, state[2] | beyond, state[3] | off

            return jax.lax.cond(i < count, further, lambda: state), None

        state, _ = jax.lax.scan(go_on, state, jnp.arange(counts.most))
        return state, state[:2]

    # The first interval has no length: its one step leads from q0, v0 to the first sample.
    ends = jnp.concatenate([ts[:1], ts])
    between = jnp.concatenate([jnp.ones_like(counts.between[:1]), counts.between])
    none = jnp.zeros(q0.shape[1:], bool)
    (_, _, beyond, off), (q, v) = jax.lax.scan(interval, (q0, v0, none, none), (ends[:-1], ends[1:], between))
    return q, v, beyond, off
