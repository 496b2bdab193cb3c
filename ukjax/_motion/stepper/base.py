"""Interface of one step of an integrator."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
from jaxtyping import Array, Bool, Float

from ..._solve import AbstractMethod
from .drift_correction import MethodPerLevel
from .model_batch import ModelBatch, SingleModel
from .scaling import Scale


class StepSetting(NamedTuple):
    """Settings that all steps of a motion share.

    Attributes
    ----------
    each
        ``each(function, *at)`` evaluates ``function(model, *at)`` for one model, or for each of a batch.
    method
        Solver for accelerations and corrections.
    projection
        Whether steps end on the constraints.
    scale
        Characteristic scales.
    """

    each: SingleModel | ModelBatch
    method: AbstractMethod | MethodPerLevel
    projection: bool
    scale: Scale


class StepEnd(NamedTuple):
    """End of a step. The fields of a batch have the batch as their last axis.

    Attributes
    ----------
    q, v
        State at the end (nq,), (n,).
    off
        Whether the state is off the constraints. The motion ends after this step.
    jumped
        Whether no step of this length can follow the constraints. The motion ends before this step.
    singular
        Whether the step starts so near a singular pose that its result is in doubt. The motion ends before this step.
    inconsistent
        Whether constraints contradicted each other, in a way that shows only in accelerations.
    beyond
        Whether the step must be repeated by another method for M and A.
    """

    q: Float[Array, " nq *batch"]
    v: Float[Array, " n *batch"]
    off: Bool[Array, "*batch"]
    jumped: Bool[Array, "*batch"]
    singular: Bool[Array, "*batch"]
    inconsistent: Bool[Array, "*batch"]
    beyond: Bool[Array, "*batch"]


class AbstractStepper(eqx.Module):
    """One step of an integrator. A loop over time uses only the methods of this class.

    Parameters of a subclass are static fields. Loops differentiate through ``step``: an iteration inside of it needs
    its own rule for derivatives, such as ``jax.lax.custom_root``.
    """

    def check(self, model: Any, drift: str) -> None:
        """Raise ``InputError`` for a model or a drift correction that these steps do not support."""

    def init(self, q: Float[Array, " nq *batch"], v: Float[Array, " n *batch"]) -> Any:
        """Data of earlier steps that the first step needs, a pytree of arrays; () for a one-step method."""
        return ()

    @abc.abstractmethod
    def step(
        self,
        setting: StepSetting,
        carry: Any,
        t: Array,
        h: Array,
        q: Float[Array, " nq *batch"],
        v: Float[Array, " n *batch"],
    ) -> tuple[Any, StepEnd]:
        """A step from t to t + h; returns the data that the next step needs, and the end of the step.

        The first step of a motion has length zero: it projects the start onto the constraints.
        """
