"""Functions of a model at a state, for one model or for a batch whose members are the last axis of all arrays."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..._kernel import per_member


class SingleModel(NamedTuple):
    """One model."""

    model: Any

    def __call__(self, function: Callable, *at: Any) -> Any:
        """``function(model, *at)``."""
        return function(self.model, *at)


class ModelBatch(NamedTuple):
    """A batch of models: ``model_of`` builds the model of a member from its ``numbers``, the last axis of these.

    Arrays keep the batch as their last axis in a loop that calls this; ``vmap`` of the whole loop would transpose them
    in every iteration.
    """

    model_of: Callable
    numbers: Any

    @property
    def model(self) -> Any:
        """The model of member 0, for everything that all members share."""
        return self.model_of(jax.tree.map(lambda x: x[..., 0], self.numbers))

    def __call__(self, function: Callable, *at: Any) -> Any:
        """``function(model, *at)`` for each member; scalars in ``at`` are shared by all members."""
        of_member = per_member(lambda numbers, *at: function(self.model_of(numbers), *at))
        axes = jax.tree.map(lambda x: -1 if jnp.ndim(x) else None, (self.numbers, *at))
        return jax.vmap(of_member, in_axes=axes, out_axes=-1)(self.numbers, *at)
