"""Explicit Runge–Kutta methods as a stepper."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .base import AbstractStepper, StepEnd
from .limits import is_kernel
from .runge_kutta import step
from .single_loop import single_loop_step
from .singular_turn import in_doubt, is_close
from .tableau import Tableau


class RungeKutta(AbstractStepper):
    """The explicit Runge–Kutta method of a ``tableau``, with drift correction at the end of each step.

    Its data is whether the state is close to a singular pose, see ``singular_turn.py``.
    """

    tableau: Tableau = eqx.field(static=True)

    def init(self, q, v) -> Array:
        return jnp.zeros(q.shape[1:], bool)

    def step(self, setting, carry, t, h, q, v) -> tuple[Any, StepEnd]:
        each, method, projection, scale = setting
        is_batch: bool = q.ndim == 2
        take_step = step if is_kernel(method) or is_batch and not method.is_sparse else single_loop_step
        end = take_step(each, t, h, q, v, method, self.tableau, projection, scale)
        beyond: Array = end.beyond(method)
        singular = in_doubt(carry, end.moved, q, end.q, scale)
        end_flags = end.off, end.jumped, singular, end.inconsistent, beyond
        return is_close(end.independence), StepEnd(end.q, end.v, *end_flags)
