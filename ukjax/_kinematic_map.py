"""The kinematic map q̇ = N(q) v, where velocities are not the time derivatives of coordinates."""

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._check import as_array, call
from ._precision import as_float

KinematicMap = Callable[[Array, Array], Array]
"""(q, v) -> q̇ = N(q) v, linear in v. None in its place means that v is q̇."""


class AbstractSettlingMap(eqx.Module):
    """A map some of whose coordinates follow from the others: integration leaves them only near to there."""

    @abc.abstractmethod
    def __call__(self, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " nq"]:
        """q̇ = N(q) v."""

    @abc.abstractmethod
    def settled(self, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
        """q with the values of these coordinates that follow from the others."""


def rate(kinematic_map: KinematicMap | None, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " nq"]:
    """q̇ = N(q) v. Raises ``ValueError`` for another shape than that of q."""
    if kinematic_map is None:
        return v
    found = as_float(as_array("kinematic_map", call("kinematic_map", kinematic_map, q, v), "numbers, q̇", "return"), q)
    if found.shape != q.shape:
        raise ValueError(f"kinematic_map must return q̇ of shape {q.shape} like q, got shape {found.shape}")
    return found


def settled(kinematic_map: KinematicMap | None, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
    """q, with the coordinates that follow from others where these put them."""
    return kinematic_map.settled(q) if isinstance(kinematic_map, AbstractSettlingMap) else q


def columns(kinematic_map: KinematicMap, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "nq n"]:
    """N(q)."""
    return jax.jacfwd(lambda v: rate(kinematic_map, q, v))(v)


def turning(kinematic_map: KinematicMap, q: Float[Array, " nq"], v: Float[Array, " n"]) -> tuple[Array, Array]:
    """q̇, and what of q̈ = N v̇ + Ṅ v comes without v̇: the derivative of N(q) v along the motion at constant v."""
    along = lambda q: rate(kinematic_map, q, v)
    return jax.jvp(along, (q,), (along(q),))


def speeds(kinematic_map: KinematicMap | None, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " nq"]:
    """|N| |v|: how fast coordinates can become at velocities of these sizes."""
    return jnp.abs(v) if kinematic_map is None else jnp.abs(columns(kinematic_map, q, v)) @ jnp.abs(v)
