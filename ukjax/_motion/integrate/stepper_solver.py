"""A stepper as a solver of diffrax, for features that only diffrax's loop supports, such as an event that ends a
motion."""

from typing import Any, ClassVar

import diffrax as dfx
import jax.numpy as jnp

from ..stepper.base import AbstractStepper, StepSetting
from ..stepper.model_batch import SingleModel
from .projected import LEFT_CONSTRAINTS


class StepperSolver(dfx.AbstractSolver):
    """The steps of ``stepper``, which end on the constraints. A step that cannot follow them results in NaN.

    All steps end on samples or events, so that the interpolation is not used.
    """

    stepper: AbstractStepper

    term_structure: ClassVar[Any] = dfx.AbstractTerm
    interpolation_cls: ClassVar[Any] = dfx.LocalLinearInterpolation

    def order(self, terms):
        return None

    def init(self, terms, t0, t1, y0, args):
        q, v = _split(y0, args)
        return self.stepper.init(q, v)

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        model, method, scale, begin = args
        q, v = _split(y0, args)
        setting, h = StepSetting(SingleModel(model), method, True, scale), jnp.asarray(t1 - t0)
        carry, end = self.stepper.step(setting, solver_state, begin + t0, h, q, v)
        y1 = jnp.where(end.jumped, jnp.nan, jnp.concatenate([end.q, end.v]))
        result = dfx.RESULTS.where(end.off, LEFT_CONSTRAINTS, dfx.RESULTS.successful)
        return y1, None, dict(y0=y0, y1=y1), carry, result

    def func(self, terms, t0, y0, args):
        return terms.vf(t0, y0, args)


def _split(y, args):
    _, _, scale, _ = args
    return jnp.split(y, [scale.q.size])
