"""The motion of a node of a flexible body relative to the frame of the body."""

from dataclasses import KW_ONLY
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._rotation import of_quaternion
from ..joints import AbstractJoint


def coefficients(eta: Float[Array, " m"], pairs: tuple[tuple[int, int], ...]) -> Float[Array, " N"]:
    """The coefficients C = (1, η, η_k η_l for all ``pairs`` (k, l)) of the shapes of a flexible body."""
    linear = jnp.concatenate([jnp.ones(1, eta.dtype), eta])
    if not pairs:
        return linear
    k, l = np.array(pairs).T
    return jnp.concatenate([linear, eta[k] * eta[l]])


class Deflection(AbstractJoint):
    """The joint that carries a node of a flexible body. Its coordinates are the modal coordinates of the body.

    The rotation of the node has the quaternion (1, θ/2) for the small rotation θ: it is linear in θ to second order.

    Attributes
    ----------
    shape : (N, 3)
        Shapes of the body at the node: the position of the node is their sum with the coefficients of the body [m].
    rotation : (m, 3)
        Small rotation θ of the node for a unit of each modal coordinate.
    pairs : tuple of (int, int)
        Pairs of modal coordinates whose products are coefficients.
    modes : tuple of str
        Names of the modal coordinates.
    """

    shape: Float[Array, "N 3"]
    rotation: Float[Array, "m 3"]
    _: KW_ONLY
    pairs: tuple[tuple[int, int], ...] = eqx.field(static=True)
    modes: tuple[str, ...] = eqx.field(static=True)
    rows: ClassVar[Any] = ()

    @property
    def coordinates(self) -> tuple[tuple[str, str], ...]:  # pyright: ignore
        return tuple((name, "m") for name in self.modes)

    @property
    def neutral(self) -> tuple[float, ...]:  # pyright: ignore
        return (0.0,) * len(self.modes)

    def transform(self, t: Array, q: Float[Array, " m"]) -> tuple[Array, Array]:
        quaternion = jnp.concatenate([jnp.ones(1, q.dtype), q @ self.rotation / 2])
        return of_quaternion(quaternion), coefficients(q, self.pairs) @ self.shape

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " 0"]:
        return jnp.zeros(0)
