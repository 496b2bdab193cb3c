"""Fixed steps of known number: the plain loop, for one motion or for a whole batch in step."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Bool, Float, Int

from .._batch import per_member
from .._batch.blocks import in_blocks
from .._batch.waiting import interruptibly
from .._check import constant, eager
from .._compile import jit_batch
from .._solve import AbstractMethod
from .attempts import attempt_at, every_member, next_of
from .base import AbstractBatchLoop, Request, Samples, Start
from .compact import compactly, is_kernel
from .correct import Levels
from .each import Alone, Together
from .outcome import UNUSUAL, classify, finite
from .step import step
from .tableau import Tableau

ATTEMPTS = 3
"""How many methods are tried for a derivative, each of which is compiled, before the one asked for."""


class EvenSteps(AbstractBatchLoop):
    """Equal steps between each sample and the next, which they meet exactly."""

    keeps_watch: ClassVar[bool] = True

    def accepts(self, request: Request, start: Start) -> bool:
        return request.plain and request.counts is not None

    @property
    def program(self):
        return _rolled

    def run(self, request: Request, start: Start) -> Samples:
        if not eager(request, start):
            return _differentiated(start, request)
        assert request.counts is not None, "accepted only if there are any"
        assert start.q.ndim == 2, "one motion whose start is known goes another way"
        if is_kernel(request.method):
            return every_member(lambda request, start: interruptibly(_rolled, start, request), request, start)
        entries = start.v.shape[1] if request.method.in_loops else 1
        return every_member(lambda request, start: in_blocks(_rolled, start, request, entries=entries), request, start)


def _differentiated(start, request):
    """By a method that did for all members, which is known at once where only a derivative is being traced; else by the
    one asked for."""
    asked, begun = constant((request, start))
    method = attempt_at(asked, begun) if eager(asked, begun) else None
    for _ in range(ATTEMPTS):
        if method is None or not method.provisional:
            break
        found = _rolled(start, replace(request, attempt=method))
        result = constant(found.result)
        if not eager(result):  # a program is being traced
            break
        unusual = np.flatnonzero(np.asarray(result) == UNUSUAL)
        if not unusual.size:
            return found
        method = next_of(asked, method, begun, unusual[0])
    return _rolled(start, request)


def even_counts(ts: Any, dt: Any, xp: Any = np) -> Any:
    """How many equal steps lead from each time of ``ts`` to the next, if none is longer than dt but for rounding; by
    NumPy or by JAX."""
    steps = xp.diff(ts) / dt
    slack = 1e-6 + 4 * float(np.finfo(steps.dtype).eps) * steps
    return xp.maximum(1, xp.ceil(steps - slack)).astype(int)


@jit_batch
def _rolled(start, request):
    ts, counts = request.ts, request.counts
    how = request.by, request.tableau, request.projection
    if is_kernel(request.by):

        @per_member
        def of_one(start, ts, between):
            return roll(request.model_of, start, ts, between, counts.most, *how)

        of_all = of_one if start.q.ndim == 1 else jax.vmap(of_one, (0, None, None))
        q, v, went = of_all(start, ts, counts.between)
    else:
        q, v, went = roll(request.model_of, jax.tree.map(jnp.transpose, start), ts, counts.between, counts.most, *how)
        if start.q.ndim == 2:
            q, v = jnp.moveaxis(q, -1, 0), jnp.moveaxis(v, -1, 0)
    reached, failed = finite(q[..., -1, :], v[..., -1, :]), went.beyond | went.off | went.leapt
    result = classify(
        finished=reached & ~failed,
        unusual=went.beyond,
        leapt=went.leapt,
        off=went.off,
        not_finite=~reached,
        contradictory=went.contradictory,
    )
    return Samples(
        t=jnp.broadcast_to(ts, q.shape[:-1]),
        q=q,
        v=v,
        result=result,
        steps=jnp.broadcast_to(jnp.sum(counts.between), result.shape).astype(np.int32),
        last=last_reached(ts, q, v, start.q, start.v),
        displaced=start.displaced(jnp, q[..., 0, :], v[..., 0, :]),
    )


def last_reached(ts: Array, q: Array, v: Array, q0: Array, v0: Array) -> tuple[Array, Array, Array]:
    """t, q and v of the last sample that was reached, or the start."""
    good = finite(q, v)
    reached = jnp.sum(jnp.cumprod(good, axis=-1), axis=-1)
    last = jnp.maximum(reached - 1, 0)
    at_last = lambda x, x0: jnp.where(
        reached[..., None] > 0, jnp.take_along_axis(x, last[..., None, None], axis=-2)[..., 0, :], x0
    )
    return ts[last], at_last(q, q0), at_last(v, v0)


KEPT = "whether a step leapt"
starts_kept = partial(jax.checkpoint, prevent_cse=False, policy=jax.checkpoint_policies.save_only_these_names(KEPT))
"""For derivatives, only where steps begin is kept of them, and whether they leapt. All that is computed within a step
is more than memory is quick for, and than is quickly compiled."""


class Went(NamedTuple):
    """Whether a step was ``beyond`` what the method can do, ended ``off`` the constraints, ``leapt`` onto them, or met
    ``contradictory`` ones."""

    beyond: Bool[Array, "*batch"]
    off: Bool[Array, "*batch"]
    leapt: Bool[Array, "*batch"]
    contradictory: Bool[Array, "*batch"]


def roll(
    model_of: Callable,
    start: Start,
    ts: Float[Array, " samples"],
    between: Int[Array, " intervals"],
    most: int | None,
    method: AbstractMethod | Levels,
    tableau: Tableau,
    projection: bool,
) -> tuple[Float[Array, "samples nq *batch"], Float[Array, "samples n *batch"], Went]:
    """q and v at ``ts``, in explicit Runge–Kutta steps, and how it went.

    ``between`` are the numbers of steps from each sample to the next, ``most`` the largest of them. Without ``most``,
    one program does for any numbers of steps, but has no derivative in reverse mode.

    The batch, if there is one, is the last axis, of the start too: the entries of different members are neighbours in
    memory. ``model_of(numbers)`` is the model of one member.
    """

    take = step if is_kernel(method) or start.q.ndim == 2 and not method.in_loops else compactly

    def turn(each, method, t, h, q, v, scale):
        stepped = take(each, t, h, q, v, method, tableau, projection, scale)
        went = stepped.off, stepped.leapt, stepped.contradictory
        return (stepped.q, stepped.v, went), stepped.beyond(method)

    if start.q.ndim == 2:
        of_all = lambda numbers, *at: turn(Together(model_of, numbers), method, *at)
    else:
        of_all = lambda numbers, *at: turn(Alone(model_of(numbers)), method, *at)

    def interval(state, ends_and_count):
        t0, t1, count = ends_and_count
        h = (t1 - t0) / count

        def further(i, state):
            q, v, so_far = state
            (q, v, (off, leapt, contradictory)), beyond = of_all(start.numbers, t0 + i * h, h, q, v, start.scale)
            leapt = checkpoint_name(leapt, KEPT)
            q, v = (jnp.where(leapt, jnp.nan, x) for x in (q, v))  # there it ends
            leapt = leapt & ~so_far.off  # what went wrong first is the result
            return q, v, jax.tree.map(jnp.logical_or, so_far, Went(beyond, off, leapt, contradictory))

        def go_on(state, i):
            return jax.lax.cond(i < count, lambda: further(i, state), lambda: state), None

        if most is None:
            state = jax.lax.fori_loop(0, count, further, state)
        else:
            state, _ = jax.lax.scan(starts_kept(go_on), state, jnp.arange(most))
        return state, state[:2]

    # The first interval has no length: its one step leads from q0, v0 to the first sample.
    ends = jnp.concatenate([ts[:1], ts])
    counted = jnp.concatenate([jnp.ones_like(between[:1]), between])
    none = jnp.zeros(start.q.shape[1:], bool)
    state = start.q, start.v, Went(none, none, none, none)
    (_, _, went), (q, v) = jax.lax.scan(interval, state, (ends[:-1], ends[1:], counted))
    return q, v, went
