"""Adaptive steps where no host can look on, within ``jit``, and the derivatives of those of a batch.

A motion goes by the method that was asked for, which can do all. On its way it leaves marks, never more than a few
hundred, for where they are too many every other one is taken away; the way back passes from mark to mark, and from each
repeats the steps to the next.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._check import constant
from .._compile import usual_promotion
from .base import AbstractLoop, Request, Samples, Start
from .one import Course, advanced, as_differentiated, begun, pulled_back, reached
from .outcome import RUNNING

MARKS = 512
"""At most."""

FIRST = 16
"""Steps from one mark to the next, before marks are taken away."""


class Within(AbstractLoop):
    """See the module."""

    keeps_watch: ClassVar[bool] = True

    def accepts(self, request: Request, start: Start) -> bool:
        return request.plain and request.dt is None

    def run(self, request: Request, start: Start) -> Samples:
        return _of_each(_one, request, start)

    def forwards(self, request: Request, start: Start) -> Samples:
        """The same where it is differentiated in forward mode, along with the steps."""
        return _of_each(_one_forwards, request, start)


def _of_each(one, request, start):
    """``one`` motion, or each of a batch."""
    return one(request, start) if start.q.ndim == 1 else jax.vmap(lambda start: one(request, start))(start)


def _one(request, start):
    moving = request.model_of(start.numbers), request.ts, start.q, start.v
    moving, fixed = eqx.partition(moving, eqx.is_inexact_array)
    how = eqx.tree_at(lambda r: (r.model, r.ts), request, (None, None))
    arrays, static = eqx.partition(constant((fixed, how, start.scale)), eqx.is_array)
    together = lambda moving, arrays: _Way(moving, *eqx.combine(arrays, static))

    @jax.custom_vjp
    def sampled(moving, arrays):
        course, found = _passed(together(moving, arrays))
        return *split(found), course

    def forward(moving, arrays):
        course, found, marks = _marked(together(moving, arrays))
        return (*split(found), course), (moving, arrays, marks)

    def backward(known, changes):
        moving, arrays, marks = known
        return _from_mark_to_mark(together(moving, arrays), marks, changes[:2]), None

    def split(found):
        return jnp.split(found, [start.q.size], axis=1)

    sampled.defvjp(forward, backward)
    q, v, course = sampled(moving, arrays)
    return as_differentiated(request.ts, q, v, constant(course), start)


@eqx.filter_jit
@usual_promotion()
def _one_forwards(request, start):
    moving = request.model_of(start.numbers), request.ts, start.q, start.v
    moving, fixed = eqx.partition(moving, eqx.is_inexact_array)
    how = eqx.tree_at(lambda r: (r.model, r.ts), request, (None, None))
    way = _Way(moving, *constant((fixed, how, start.scale)))
    course, found, _ = advanced(way.task, *way.begin)
    q, v = jnp.split(reached(course, found), [start.q.size], axis=1)
    return as_differentiated(request.ts, q, v, constant(course), start)


class _Way(eqx.Module):
    """A motion: what of it has derivatives, the rest of that, how it is done, and its scale."""

    moving: Any
    fixed: Any
    how: Request
    scale: Any

    @property
    def begin(self) -> tuple[Course, Any]:
        """Where it begins, and the samples, of which none is known."""
        _, ts, q, v = eqx.combine(self.moving, self.fixed)
        return begun(ts.size, q, v)

    @property
    def task(self) -> tuple:
        model, ts, _, _ = eqx.combine(self.moving, self.fixed)
        how, limits = self.how, (ts.size, self.how.max_steps)
        return model, ts, None, how.tolerance(self.scale), limits, how.method, how.tableau, how.projection, self.scale

    @property
    def task_back(self) -> tuple:
        how = self.how
        return self.moving[:2], self.fixed[:2], how.method, how.tableau, how.projection, self.scale

    @property
    def longest(self) -> int:
        """How many steps there can be from one mark to the next."""
        return max(FIRST, 2 ** int(np.ceil(np.log2(2 * (self.how.max_steps + 1) / MARKS))))


# Compiled by themselves too: an eager ``vmap`` is no program, and asks again and again.
@eqx.filter_jit
@usual_promotion()
def _passed(way):
    """Where the motion comes to, and its samples."""

    course, found, _ = advanced(way.task, *way.begin)
    return course, reached(course, found)


@eqx.filter_jit
@usual_promotion()
def _marked(way):
    """Where the motion comes to, its samples, and its marks: courses, how many there are, and the steps between."""
    begin, found = way.begin
    places = jax.tree.map(lambda x: jnp.zeros((MARKS, *x.shape), x.dtype), begin)

    def further(state):
        course, found, (places, count, stride) = state
        places = jax.tree.map(lambda into, x: into.at[count].set(x), places, course)
        course, found, _ = advanced(way.task, course, found, stride)
        marks = jax.lax.cond(count + 1 == MARKS, _every_other, lambda marks: marks, (places, count + 1, stride))
        return course, found, marks

    marks = places, jnp.zeros((), np.int32), jnp.asarray(FIRST, np.int32)
    going = lambda state: state[0].result == RUNNING
    course, found, marks = jax.lax.while_loop(going, further, (begin, found, marks))
    return course, reached(course, found), marks


def _every_other(marks):
    places, count, stride = marks
    return jax.tree.map(lambda x: jnp.concatenate([x[::2], x[::2]]), places), count // 2, 2 * stride


@eqx.filter_jit
@usual_promotion()
def _from_mark_to_mark(way, marks, to_samples):
    """The cotangent of what moves, from those of the samples."""
    places, count, stride = marks
    _, nothing = way.begin
    of_state = tuple(jnp.zeros_like(x) for x in way.moving[2:])
    of_rest = jax.tree.map(jnp.zeros_like, way.moving[:2])

    parts = stride // FIRST
    at = lambda courses, i: jax.tree.map(lambda x: x[i], courses)
    put = lambda courses, i, course: jax.tree.map(lambda into, x: into.at[i].set(x), courses, course)

    def back(k, carry):
        """From one mark to the one before. The steps between are many or few: first the courses that begin each part
        of ``FIRST`` steps are found, then the parts are passed backwards."""
        begins, cotangents = carry

        def part(j, carry):
            begins, cotangents = carry
            ahead = j < parts - 1
            i = jnp.where(ahead, j, 2 * (parts - 1) - j)
            course, _, steps = advanced(way.task, at(begins, i), nothing, FIRST, FIRST)
            begins = put(begins, i + ahead, jax.tree.map(lambda x, y: jnp.where(ahead, x, y), course, at(begins, i)))
            pulled = lambda: pulled_back(way.task_back, steps, to_samples, *cotangents)
            return begins, jax.lax.cond(ahead, lambda: cotangents, pulled)

        begins = put(begins, 0, at(places, count - 1 - k))
        return jax.lax.fori_loop(0, 2 * parts - 1, part, (begins, cotangents))

    begins = jax.tree.map(lambda x: jnp.zeros((way.longest // FIRST, *x.shape[1:]), x.dtype), places)
    _, (of_state, of_rest) = jax.lax.fori_loop(0, count, back, (begins, (of_state, of_rest)))
    return (*of_rest, *of_state)
