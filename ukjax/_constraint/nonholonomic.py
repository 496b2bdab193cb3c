"""Constraints on velocities, linear in them or not."""

from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._check import check_function
from .._functions import vector
from .._precision import Numbers, as_float
from .base import AbstractConstraint, Level, nothing
from .baumgarte import gain


class Nonholonomic(AbstractConstraint):
    """ψ(t, q, v) = 0, imposed as ψ̇ + α ψ = 0.

    ``psi(t, q, v)`` returns (m,), a number, or a list of numbers, and may be nonlinear in v. Differentiated once,
    ψ̇ = ψ_v q̈ + ψ_t + ψ_q v, so that A = ψ_v and b = −ψ_t − ψ_q v − α ψ. ``alpha`` [1/s] is a number or one per row.
    """

    psi: Callable
    alpha: Array
    name: str | tuple[str, ...] = eqx.field(static=True)
    level: ClassVar[Level] = "velocity"
    linear: ClassVar[bool] = False

    def __init__(self, psi: Callable, alpha: Numbers = 0.0, *, name: str | tuple[str, ...] = "nonholonomic"):
        check_function("psi", psi, "t, q, v")
        self.psi, self.alpha, self.name = psi, as_float(alpha, name="alpha"), name

    def rows(self, t: Array, q: Float[Array, " n"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        A = jax.jacfwd(self.velocity, argnums=2)(t, q, v)
        psi, bias = jax.jvp(lambda t, q: self.velocity(t, q, v), (t, q), (jnp.ones_like(t), v))
        return A, -bias - gain("alpha", self.alpha, psi.shape[0]) * psi

    def position(self, t: Array, q: Float[Array, " n"]) -> Float[Array, " 0"]:
        return nothing(q)

    def velocity(self, t: Array, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, " m"]:
        return vector(f"psi of {self.name!r}", self.psi(t, q, v), q)
