"""What ``vmap`` makes of one motion within a program: a batch, whose members go through lanes, each with as many steps
as it needs. Done as JAX would, all would wait for the slowest."""

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jaxtyping import Array

from .base import Start
from .lanes import InLanes
from .one import Course
from .outcome import CONTRADICTORY


class Leaves(NamedTuple):
    """Whole arrays of a model, of these ``shapes``, of which each member of a batch has its own; ``structure`` is that
    of a model without the others."""

    structure: Any
    shapes: tuple[tuple[int, ...], ...]

    def __call__(self, model: Any, numbers: Array) -> Any:
        """The model of one member, from what all have in common, and its ``numbers`` (p,)."""
        ends = np.cumsum([prod(shape) for shape in self.shapes])
        parts = jnp.split(numbers, ends[:-1])
        own = [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]
        return eqx.combine(jax.tree.unflatten(self.structure, own), model)


def alone_or_in_lanes(passed: Callable, way: Any) -> tuple[Course, Array]:
    """``passed(way)``, where one motion comes to and its samples, along the ``way`` that says all of it; of a batch, by
    lanes, if all members have the times and the method in common."""
    arrays, static = eqx.partition(way, eqx.is_array)
    one = lambda arrays: passed(eqx.combine(arrays, static))
    alone = custom_vmap(one)

    def each(own, common):
        task = _as_batch(own, common, static)
        if task is None:
            return jax.vmap(lambda own: one(eqx.combine(own, common)))(own)
        return _as_of_each(*task, InLanes().program(*task))

    @alone.def_vmap
    def _(size, mapped, arrays):
        (of_arrays,) = mapped
        return _mapped(_flat(each)(*eqx.partition(arrays, of_arrays)))

    return alone(arrays)


def _flat(each):
    """``each(own, common)`` of a batch, which within another ``vmap`` is one batch of all."""
    batch = custom_vmap(each)

    @batch.def_vmap
    def _(size, mapped, own, common):
        of_own, of_common = mapped
        members = next(x.shape[more] for x, more in zip(*map(jax.tree.leaves, (own, of_own)), strict=True))
        flat = lambda x: x.reshape(size * members, *x.shape[2:])
        every = lambda x, more: x if more else jnp.broadcast_to(x, (size, *x.shape))
        spread = lambda x: jnp.broadcast_to(x[:, None], (size, members, *x.shape[1:]))
        further, common = eqx.partition(common, of_common)
        own = eqx.combine(
            jax.tree.map(lambda x, more: flat(every(x, more)), own, of_own),
            jax.tree.map(lambda x: flat(spread(x)), further),
        )
        found = _flat(each)(own, common)
        return _mapped(jax.tree.map(lambda x: x.reshape(size, members, *x.shape[1:]), found))

    return batch


def _mapped(found):
    """Results that all have the batch as first axis."""
    return found, jax.tree.map(lambda _: True, found)


def _as_batch(own, common, static):
    """The starts of a batch and what is asked, from what each has of its ``own`` and what all have in ``common``; None
    if they differ in more than lanes can do."""
    model, ts, q, v = own.moving
    if jax.tree.leaves((ts, own.fixed, own.how)):
        return None
    way = eqx.combine(common, static)
    shared_model, ts, *shared = eqx.combine(way.moving, way.fixed)
    members = jax.tree.leaves(own)[0].shape[0]
    spread = jax.tree.map(lambda x: jnp.broadcast_to(x, (members, *x.shape)), (*shared, way.scale))
    q, v, scale = eqx.combine((q, v, own.scale), spread)
    leaves, structure = jax.tree.flatten(model)
    if any(x.dtype != q.dtype for x in leaves):
        return None
    numbers = jnp.concatenate([x.reshape(members, -1) for x in leaves], axis=1) if leaves else None
    differing = Leaves(structure, tuple(x.shape[1:] for x in leaves))
    return Start(q, v, scale, numbers), replace(way.how, model=shared_model, ts=ts, leaves=differing)


def _as_of_each(start, request, samples):
    """What was found of a batch, as of one motion after the other."""
    t, q, v = samples.last
    none, zero = jnp.zeros(samples.result.shape, np.int32), jnp.zeros_like(t)
    count = lambda x: x.astype(np.int32)
    steps, result = count(samples.steps), count(samples.result)
    course = Course(t - request.ts[0], zero, zero, none, none, q, v, steps, result, result == CONTRADICTORY)
    return course, jnp.concatenate([samples.q, samples.v], axis=-1)
