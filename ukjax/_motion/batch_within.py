"""A batch with adaptive steps, within a program that is being traced: it goes through lanes, and where it is
differentiated, by diffrax's loop, which has a way back."""

from dataclasses import replace
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._check import constant, known
from .base import AbstractLoop, Request, Samples, Start
from .lanes import InLanes


class BatchWithin(AbstractLoop):
    """See the module."""

    keeps_watch: ClassVar[bool] = False

    def accepts(self, request: Request, start: Start) -> bool:
        traced = not known(*map(constant, (request, start)))  # and not a derivative alone
        return traced and request.plain and request.dt is None and start.q.ndim == 2

    def run(self, request: Request, start: Start) -> Samples:
        moving = request.model, request.ts, start.q, start.v, start.numbers
        moving, fixed = eqx.partition(moving, eqx.is_inexact_array)
        how = eqx.tree_at(lambda r: (r.model, r.ts), request, (None, None))
        return _sampled(moving, constant((fixed, how, start.scale)))


def _asked(moving, rest):
    """The starts, and what is asked."""
    fixed, how, scale = rest
    model, ts, q, v, numbers = eqx.combine(moving, fixed)
    return Start(q, v, scale, numbers), replace(how, model=model, ts=ts)


@eqx.filter_custom_vjp
def _sampled(moving, rest):
    return _counted(InLanes().program(*_asked(moving, rest)))


@_sampled.def_fwd
def _forward(perturbed, moving, rest):
    from .continuous import Continuous  # diffrax takes a while to import, and is hardly ever needed

    moved, still = eqx.partition(moving, perturbed)

    def solved(moved):
        found = _counted(Continuous().program(*_asked(eqx.combine(moved, still), rest)))
        return eqx.partition(found, eqx.is_inexact_array)

    numbers, pull, counts = jax.vjp(solved, moved, has_aux=True)
    return eqx.combine(numbers, counts), (pull, numbers)


@_sampled.def_bwd
def _backward(residuals, changes, perturbed, moving, rest):
    pull, numbers = residuals
    changes = eqx.filter(changes, jax.tree.map(lambda _: True, numbers))
    (found,) = pull(eqx.combine(changes, jax.tree.map(jnp.zeros_like, numbers)))
    return found


def _counted(samples):
    """With whole numbers of one type, whoever counted."""
    return samples._replace(result=samples.result.astype(np.int32), steps=samples.steps.astype(np.int32))
