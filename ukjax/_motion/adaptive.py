"""Adaptive steps for a batch whose starts are known: each member takes those that it needs itself."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from .._batch.waiting import interruptibly
from .._check import eager
from .._compile import jit_batch
from .attempts import every_member
from .base import AbstractBatchLoop, Request, Samples, Start
from .compact import is_kernel
from .one import advanced, begun, reached
from .outcome import reached_last_time


class Adaptive(AbstractBatchLoop):
    """See the module."""

    keeps_watch: ClassVar[bool] = True

    def accepts(self, request: Request, start: Start) -> bool:
        one_by_one = request.plain and request.dt is None and start.q.ndim == 2 and is_kernel(request.method)
        return one_by_one and eager(request, start)

    @property
    def program(self):
        return _each

    def run(self, request: Request, start: Start) -> Samples:
        return every_member(lambda request, start: interruptibly(_each, start, request), request, start)


@jit_batch
def _each(start, request):
    ts, limits = request.ts, (request.ts.size, request.max_steps)

    def one(start):
        how = request.by, request.tableau, request.projection, start.scale
        task = request.model_of(start.numbers), ts, None, request.tolerance(start.scale), limits, *how
        course, found, _ = advanced(task, *begun(ts.size, start.q, start.v))
        return course, reached(course, found)

    # Members that are done together wait for the last of them: those that will need about as many steps go together.
    order = jnp.argsort(start.scale.shortest_time)
    at = lambda places, tree: jax.tree.map(lambda x: x[places], tree)
    course, found = at(jnp.argsort(order), jax.vmap(one)(at(order, start)))
    q, v = jnp.split(found, [start.q.shape[1]], axis=-1)
    end = jnp.where(reached_last_time(course.result), ts[-1], ts[0] + course.t)
    displaced = start.displaced(jnp, q[:, 0], v[:, 0])
    t = jnp.broadcast_to(ts, q.shape[:-1])
    return Samples(t, q, v, course.result, course.steps, (end, course.q, course.v), displaced)
