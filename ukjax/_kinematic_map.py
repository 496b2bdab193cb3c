"""The kinematic map q̇ = N(q) v, for velocities that are not the time derivatives of the coordinates."""

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._check import as_array, call
from ._errors import InputError
from ._precision import as_float

KinematicMap = Callable[[Array, Array], Array]
"""The function (q, v) -> q̇ = N(q) v, linear in v. None stands for q̇ = v."""


class AbstractKinematicMap(eqx.Module):
    """A kinematic map with further properties of its coordinates."""

    @abc.abstractmethod
    def __call__(self, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " nq"]:
        """q̇ = N(q) v."""

    @abc.abstractmethod
    def settled(self, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
        """Return q with dependent coordinates recomputed from the others: they drift when q̇ is integrated."""

    @abc.abstractmethod
    def flow(self, q: Float[Array, " nq"], x: Float[Array, " n"]) -> Float[Array, " nq"] | None:
        """Return the solution of q̇ = N(q) x after unit time, with the start q; None if it has no closed form."""


class StateMap(AbstractKinematicMap):
    """The map for velocities whose last entries are first-order states, which do not affect q̇.

    Attributes
    ----------
    others
        The map of the other velocities, None if these are q̇.
    states
        Number of states.
    """

    others: KinematicMap | None
    states: int = eqx.field(static=True)

    def __call__(self, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " nq"]:
        return rate(self.others, q, v[: v.size - self.states])

    def settled(self, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
        return settled(self.others, q)

    def flow(self, q: Float[Array, " nq"], x: Float[Array, " n"]) -> Float[Array, " nq"] | None:
        return flow(self.others, q, x[: x.size - self.states])

    def without(self, count: int) -> KinematicMap | None:
        """The map without the last ``count`` states."""
        return self.others if count == self.states else StateMap(self.others, self.states - count)


def rate(kinematic_map: KinematicMap | None, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " nq"]:
    """Evaluate q̇ = N(q) v. Raises ``InputError`` if q̇ does not have the shape of q."""
    if kinematic_map is None:
        return v
    q_dot = as_float(as_array("kinematic_map", call("kinematic_map", kinematic_map, q, v), "numbers, q̇", "return"), q)
    if q_dot.shape != q.shape:
        raise InputError(f"kinematic_map must return q̇ of shape {q.shape} like q, got shape {q_dot.shape}")
    return q_dot


def settled(kinematic_map: KinematicMap | None, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
    """Return q with dependent coordinates, if there are any, recomputed from the others."""
    return kinematic_map.settled(q) if isinstance(kinematic_map, AbstractKinematicMap) else q


def flow(
    kinematic_map: KinematicMap | None, q: Float[Array, " nq"], x: Float[Array, " n"]
) -> Float[Array, " nq"] | None:
    """The solution of q̇ = N(q) x after unit time, with the start q; None if it has no closed form."""
    if kinematic_map is None:
        return q + x
    return kinematic_map.flow(q, x) if isinstance(kinematic_map, AbstractKinematicMap) else None


def columns(kinematic_map: KinematicMap, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "nq n"]:
    """The matrix N(q)."""
    return jax.jacfwd(lambda v: rate(kinematic_map, q, v))(v)


def count_states(kinematic_map: KinematicMap | None) -> int:
    """The number of first-order states, the last velocities, which do not affect q̇."""
    return kinematic_map.states if isinstance(kinematic_map, StateMap) else 0


def velocities_of(kinematic_map: KinematicMap, N: Float[Array, "nq n"], q_dot: Array) -> Array:
    """The velocities N⁺ q̇, zero for states."""
    states = count_states(kinematic_map)
    no_rate = jnp.concatenate([jnp.zeros(N.shape[1] - states, N.dtype), jnp.ones(states, N.dtype)])
    return jnp.linalg.solve(N.T @ N + jnp.diag(no_rate), N.T @ q_dot)


def turning(kinematic_map: KinematicMap, q: Float[Array, " nq"], v: Float[Array, " n"]) -> tuple[Array, Array]:
    """q̇, and the part Ṅ v of q̈ = N v̇ + Ṅ v, the derivative of N(q) v along the motion at constant v."""
    q_dot = lambda q: rate(kinematic_map, q, v)
    return jax.jvp(q_dot, (q,), (q_dot(q),))


def speeds(kinematic_map: KinematicMap | None, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " nq"]:
    """|N| |v|, a bound of |q̇| for velocities of these magnitudes."""
    return jnp.abs(v) if kinematic_map is None else jnp.abs(columns(kinematic_map, q, v)) @ jnp.abs(v)
