"""What is done with a model at a state: of one, or of each of a batch whose members are the last axis of all arrays."""

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
    """A batch, ``model_of`` its ``numbers`` the model of each. A loop in which this is called keeps its arrays as they
    are; by ``vmap`` of the loop, JAX would turn them around at every turn."""

    model_of: Callable
    numbers: Any

    @property
    def model(self) -> Any:
        """That of one member, for what all have in common."""
        return self.model_of(jax.tree.map(lambda x: x[..., 0], self.numbers))

    def __call__(self, function: Callable, *at: Any) -> Any:
        """``function(model, *at)`` for each, of arrays, and of numbers that all have in common."""
        one = per_member(lambda numbers, *at: function(self.model_of(numbers), *at))
        axes = jax.tree.map(lambda x: -1 if jnp.ndim(x) else None, (self.numbers, *at))
        return jax.vmap(one, in_axes=axes, out_axes=-1)(self.numbers, *at)
