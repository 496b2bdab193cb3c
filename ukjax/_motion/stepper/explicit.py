"""Explicit Runge–Kutta methods as a stepper."""

from typing import Any

import equinox as eqx
from jaxtyping import Array

from .base import AbstractStepper, StepEnd
from .limits import is_kernel
from .runge_kutta import step
from .single_loop import single_loop_step
from .tableau import Tableau


class RungeKutta(AbstractStepper):
    """The explicit Runge–Kutta method of a ``tableau``, with drift correction at the end of each step."""

    tableau: Tableau = eqx.field(static=True)

    def step(self, setting, carry, t, h, q, v) -> tuple[Any, StepEnd]:
        each, method, projection, scale = setting
        is_batch: bool = q.ndim == 2
        take_step = step if is_kernel(method) or is_batch and not method.is_sparse else single_loop_step
        end = take_step(each, t, h, q, v, method, self.tableau, projection, scale)
        beyond: Array = end.beyond(method)
        return carry, StepEnd(end.q, end.v, end.off, end.jumped, end.inconsistent, beyond)
