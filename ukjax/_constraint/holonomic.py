"""Constraints on positions: joints, closed loops, prescribed paths."""

from collections.abc import Callable, Iterable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._check import check_function
from .._compressed import Seeds
from .._functions import vector
from .._kinematic_map import KinematicMap, rate
from .._names import name_of_rows
from .._precision import Numbers
from .base import AbstractConstraint, Level, Rows, with_kinematic_map
from .baumgarte import as_gain, gain_for_rows


class Holonomic(AbstractConstraint):
    """Constraint on positions, φ(t, q) = 0, imposed as φ̈ + α φ̇ + β φ = 0.

    Differentiated twice along the motion, φ̈ = φ_q q̈ + D²φ[(1, v), (1, v)], so that A = φ_q and
    b = −D²φ[(1, v), (1, v)] − α φ̇ − β φ (Baumgarte 1972; without stabilisation, α = β = 0). In a system with a
    ``kinematic_map``, q̇ = N(q) v, A is φ_q N and φ̈ is taken along that motion.

    Parameters
    ----------
    phi
        Function ``phi(t, q)`` that returns (m,), a number, or a list of numbers.
    alpha
        Gain of φ̇ [1/s]: a number, or (m,) with one entry per row.
    beta
        Gain of φ [1/s²]: a number, or (m,) with one entry per row. See ``critically_damped``.
    name
        Name of the constraint in messages and tables: one for all rows, or one per row.

    Raises
    ------
    InputError
        If ``phi`` is not a function of (t, q), or a gain is negative.
    """

    phi: Callable
    alpha: Array
    beta: Array
    name: str | tuple[str, ...] = eqx.field(static=True)
    kinematic_map: KinematicMap | None
    level: ClassVar[Level] = "position"

    def __init__(
        self, phi: Callable, alpha: Numbers = 0.0, beta: Numbers = 0.0, *, name: str | Iterable[str] = "holonomic"
    ):
        check_function("phi", phi, "t, q")
        self.phi, self.name = phi, name_of_rows(name)
        self.alpha, self.beta, self.kinematic_map = as_gain("alpha", alpha), as_gain("beta", beta), None

    def rows(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        return self.at(t, q, v)[2:]

    def at(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Rows:
        return self._rows(self.slope(t, q, v), t, q, v)

    def by_seeds(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], seeds: Seeds) -> Rows:
        derivative_along = lambda x: jax.jvp(lambda q: self.position(t, q), (q,), (rate(self.kinematic_map, q, x),))[1]
        return self._rows(seeds.along(derivative_along, v), t, q, v)

    def position(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, " m"]:
        return vector(f"phi of {self.name!r}", self.phi, t, q)

    def velocity(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " m"]:
        return self._along(t, q, v)[1]

    def slope(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "m n"]:
        derivative_along = jax.jacfwd(self.velocity, argnums=2)  # φ̇ is linear in v
        return jax.jacfwd(self.position, argnums=1)(t, q) if self.kinematic_map is None else derivative_along(t, q, v)

    def pull(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " m"]:
        phi, phi_dot = map(jnp.abs, self._along(t, q, v))
        m = phi.shape[0]
        return gain_for_rows("alpha", self.alpha, m) * phi_dot + gain_for_rows("beta", self.beta, m) * phi

    def under(self, kinematic_map: KinematicMap | None) -> AbstractConstraint:
        return with_kinematic_map(self, kinematic_map)

    def _rows(self, A, t, q, v):
        # Only the second derivative along the motion is needed: a jvp of a jvp, without the m × n × n tensor.
        (phi, phi_dot), (_, bias) = jax.jvp(lambda t, q: self._along(t, q, v), (t, q), self._tangent(t, q, v))
        m = phi.shape[0]
        b = -bias - gain_for_rows("alpha", self.alpha, m) * phi_dot - gain_for_rows("beta", self.beta, m) * phi
        return Rows(phi, phi_dot, A, b)

    def _along(self, t, q, v):
        """Return φ and φ̇ = φ_t + φ_q q̇."""
        return jax.jvp(self.position, (t, q), self._tangent(t, q, v))

    def _tangent(self, t, q, v):
        """Return ṫ = 1 and q̇."""
        return jnp.ones_like(t), rate(self.kinematic_map, q, v)
