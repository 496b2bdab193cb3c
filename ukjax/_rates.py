"""Velocities that need not be the rates of coordinates: q̇ = N(q) v."""

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._check import as_array, call
from ._precision import as_float

Rates = Callable[[Array, Array], Array]
"""(q, v) -> q̇, linear in v. Where None stands in its place, v is q̇."""


class AbstractSettlingRates(eqx.Module):
    """Rates some of whose coordinates follow from the others: integration leaves them only near to there."""

    @abc.abstractmethod
    def __call__(self, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " nq"]:
        """q̇ = N(q) v."""

    @abc.abstractmethod
    def settled(self, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
        """q with the values of these coordinates that follow from the others."""


def rate(rates: Rates | None, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " nq"]:
    """q̇ = N(q) v. Raises ``ValueError`` for another shape than that of q."""
    if rates is None:
        return v
    found = as_float(as_array("rates", call("rates", rates, q, v), "numbers, q̇", "return"), q)
    if found.shape != q.shape:
        raise ValueError(f"rates must return q̇ of shape {q.shape} like q, got shape {found.shape}")
    return found


def settled(rates: Rates | None, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
    """q, with the coordinates that follow from others where these put them."""
    return rates.settled(q) if isinstance(rates, AbstractSettlingRates) else q


def columns(rates: Rates, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "nq n"]:
    """N(q)."""
    return jax.jacfwd(lambda v: rate(rates, q, v))(v)


def turning(rates: Rates, q: Float[Array, " nq"], v: Float[Array, " n"]) -> tuple[Array, Array]:
    """q̇, and what of q̈ = N v̇ + Ṅ v comes without v̇: the derivative of N(q) v along the motion at constant v."""
    along = lambda q: rate(rates, q, v)
    return jax.jvp(along, (q,), (along(q),))


def speeds(rates: Rates | None, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " nq"]:
    """|N| |v|: how fast coordinates can become at velocities of these sizes."""
    return jnp.abs(v) if rates is None else jnp.abs(columns(rates, q, v)) @ jnp.abs(v)
