"""Lagrange's equations, derived from energies by automatic differentiation."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._check import check_function
from .._compressed import Seeds
from .._errors import InputError
from .._functions import Zero, array, as_function, as_vector_function, vector_of
from .._kinematic_map import KinematicMap, columns, rate, turning
from .base import AbstractDynamics


class Lagrangian(AbstractDynamics):
    """Dynamics from energies by Lagrange's equations, d/dt ∂L/∂v − ∂L/∂q = F with L = T(t, q, v) − V(t, q).

    The terms are

        M = ∂²T/∂v²,      Q = F + ∂L/∂q − (∂p/∂t + ∂p/∂q v),      p = ∂T/∂v.

    T may contain terms that are linear in v or independent of v, as in moving frames, and may depend on t. In a system
    with a ``kinematic_map``, the energies remain functions of q and q̇ = N(q) v, F is the force conjugate to v, and the
    equations are multiplied by Nᵀ: M = Nᵀ T_q̇q̇ N, Q = F + Nᵀ (∂L/∂q − ∂p/∂t − ∂p/∂q q̇ − T_q̇q̇ Ṅ v).

    Parameters
    ----------
    kinetic
        Function ``kinetic(t, q, v)`` that returns the kinetic energy T [J].
    potential
        Function ``potential(t, q)`` that returns the potential energy V [J]. Default: 0.
    force
        Function ``force(t, q, v)`` that returns the applied generalised force F (n,). Default: 0.

    Raises
    ------
    InputError
        If an argument is not a function of these arguments. Wrong shapes are reported when the dynamics are evaluated.
    """

    kinetic: Callable
    potential: Callable
    force: Callable | Zero
    kinematic_map: KinematicMap | None

    def __init__(self, kinetic: Callable, potential: Callable | None = None, force: Callable | None = None):
        check_function("kinetic", kinetic, "t, q, v")
        self.kinetic = kinetic
        self.potential = as_function("potential", 0.0 if potential is None else potential, "t, q")
        self.force = Zero() if force is None else as_vector_function("force", force, "t, q, v")
        self.kinematic_map = None

    def mass(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "n n"]:
        M = self._mass(t, q, rate(self.kinematic_map, q, v))
        if self.kinematic_map is None:
            return M
        N = columns(self.kinematic_map, q, v)
        return N.T @ M @ N

    def terms(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        F = self._applied(t, q, v)
        if self.kinematic_map is None:
            return self._mass(t, q, v), F + self._force(t, q, v)
        q_dot, N_dot_v = turning(self.kinematic_map, q, v)
        M, N = self._mass(t, q, q_dot), columns(self.kinematic_map, q, v)
        return N.T @ M @ N, F + N.T @ (self._force(t, q, q_dot) - M @ N_dot_v)

    def by_seeds(
        self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], seeds: Seeds
    ) -> tuple[Float[Array, "n seeds"], Float[Array, " n"]]:
        to_q_dot = lambda x: rate(self.kinematic_map, q, x)
        q_dot, N_dot_v = (v, jnp.zeros_like(v)) if self.kinematic_map is None else turning(self.kinematic_map, q, v)
        momentum = lambda q_dot: jax.grad(self._kinetic, argnums=2)(t, q, q_dot)
        mass_times = jax.linearize(momentum, q_dot)[1]
        project = jax.linear_transpose(to_q_dot, v)
        M = seeds.along(lambda x: project(mass_times(to_q_dot(x)))[0], v)
        return M, self._applied(t, q, v) + project(self._force(t, q, q_dot) - mass_times(N_dot_v))[0]

    def under(self, kinematic_map: KinematicMap | None) -> AbstractDynamics:
        return eqx.tree_at(lambda d: d.kinematic_map, self, kinematic_map, is_leaf=lambda x: x is None)

    def _applied(self, t, q, v):
        return vector_of(v.size, "velocity", "force", self.force, t, q, v)

    def _mass(self, t, q, v):
        """Return M of M q̈ = Q for v = q̇."""
        return jax.jacfwd(jax.grad(self._kinetic, argnums=2), argnums=2)(t, q, v)

    def _force(self, t, q, v):
        """Return Q of M q̈ = Q for v = q̇, without the applied force."""
        momentum = jax.grad(self._kinetic, argnums=2)
        # Total derivative of p along the motion at fixed v: one jvp along (1, v).
        _, inertial = jax.jvp(lambda t, q: momentum(t, q, v), (t, q), (jnp.ones_like(t), v))
        return jax.grad(self._lagrangian, argnums=1)(t, q, v) - inertial

    def energy(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, ""]:
        return self._kinetic(t, q, rate(self.kinematic_map, q, v)) + self._potential(t, q)

    def _lagrangian(self, t, q, v):
        return self._kinetic(t, q, v) - self._potential(t, q)

    def _kinetic(self, t, q, v):
        return _number("kinetic", self.kinetic, t, q, v)

    def _potential(self, t, q):
        return _number("potential", self.potential, t, q)


def _number(name, function, *arguments):
    value = array(name, function, *arguments, what="one number, an energy")
    if value.size != 1:
        raise InputError(f"{name} must return one number, an energy, got shape {value.shape}")
    return value.reshape(())
