"""Constraints on velocities, linear in them or not."""

from collections.abc import Callable, Iterable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._check import check_function
from .._functions import vector
from .._kinematic_map import KinematicMap, rate
from .._names import name_of_rows
from .._precision import Numbers
from .base import AbstractConstraint, Level, nothing, with_kinematic_map
from .baumgarte import as_gain, gain


class Nonholonomic(AbstractConstraint):
    """ψ(t, q, v) = 0, imposed as ψ̇ + α ψ = 0.

    ``psi(t, q, v)`` returns (m,), a number, or a list of numbers, and may be nonlinear in v. Differentiated once,
    ψ̇ = ψ_v q̈ + ψ_t + ψ_q v, so that A = ψ_v and b = −ψ_t − ψ_q v − α ψ. ``alpha`` [1/s] is a number or one per row.
    In a system with a ``kinematic_map``, q̇ = N(q) v, ψ is a function of that v, and ψ_q is along q̇.
    """

    psi: Callable
    alpha: Array
    name: str | tuple[str, ...] = eqx.field(static=True)
    kinematic_map: KinematicMap | None
    level: ClassVar[Level] = "velocity"
    linear: ClassVar[bool] = False

    def __init__(self, psi: Callable, alpha: Numbers = 0.0, *, name: str | Iterable[str] = "nonholonomic"):
        check_function("psi", psi, "t, q, v")
        self.psi, self.alpha, self.name, self.kinematic_map = psi, as_gain("alpha", alpha), name_of_rows(name), None

    def rows(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        A = jax.jacfwd(self.velocity, argnums=2)(t, q, v)
        psi, bias = jax.jvp(
            lambda t, q: self.velocity(t, q, v), (t, q), (jnp.ones_like(t), rate(self.kinematic_map, q, v))
        )
        return A, -bias - gain("alpha", self.alpha, psi.shape[0]) * psi

    def pull(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " m"]:
        psi = self.velocity(t, q, v)
        return gain("alpha", self.alpha, psi.shape[0]) * jnp.abs(psi)

    def under(self, kinematic_map: KinematicMap | None) -> AbstractConstraint:
        return with_kinematic_map(self, kinematic_map)

    def position(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, " 0"]:
        return nothing(q)

    def velocity(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " m"]:
        return vector(f"psi of {self.name!r}", self.psi, t, q, v)
