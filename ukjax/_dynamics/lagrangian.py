"""Dynamics from energies: Lagrange's equations, by automatic differentiation."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._check import check_function
from .._functions import as_function, vector
from .base import AbstractDynamics


class Lagrangian(AbstractDynamics):
    """d/dt ∂L/∂v − ∂L/∂q = F with L = T(t, q, v) − V(t, q).

    ``kinetic(t, q, v)`` and ``potential(t, q)`` return energies [J], ``force(t, q, v)`` the applied generalised force
    (n,); potential and force default to zero. Written out,

        M = ∂²T/∂v²,      Q = F + ∂L/∂q − (∂p/∂t + ∂p/∂q v),      p = ∂T/∂v,

    which holds for any T, with parts T₁ linear in v and T₀ without v (moving frames) and explicit time.
    """

    kinetic: Callable
    potential: Callable
    force: Callable

    def __init__(self, kinetic: Callable, potential: Callable | None = None, force: Callable | None = None):
        check_function("kinetic", kinetic, "t, q, v")
        self.kinetic = kinetic
        self.potential = as_function("potential", 0.0 if potential is None else potential, "t, q")
        self.force = as_function("force", 0.0 if force is None else force, "t, q, v")

    def mass(self, t: Array, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, "n n"]:
        return jax.jacfwd(jax.grad(self._kinetic, argnums=2), argnums=2)(t, q, v)

    def terms(self, t: Array, q: Float[Array, " n"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        momentum = jax.grad(self._kinetic, argnums=2)
        M = self.mass(t, q, v)
        # The total derivative of p along the motion, at fixed v: one jvp along (1, v).
        _, inertial = jax.jvp(lambda t, q: momentum(t, q, v), (t, q), (jnp.ones_like(t), v))
        F = vector("force", self.force(t, q, v), q)
        if F.shape not in ((1,), q.shape):
            raise ValueError(f"force must return shape {q.shape} like q, got shape {F.shape}")
        return M, F + jax.grad(self._lagrangian, argnums=1)(t, q, v) - inertial

    def energy(self, t: Array, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, ""]:
        return self._kinetic(t, q, v) + self._potential(t, q)

    def _lagrangian(self, t, q, v):
        return self._kinetic(t, q, v) - self._potential(t, q)

    def _kinetic(self, t, q, v):
        return _number("kinetic", self.kinetic(t, q, v))

    def _potential(self, t, q):
        return _number("potential", self.potential(t, q))


def _number(name, value):
    value = jnp.asarray(value)
    if value.size != 1:
        raise ValueError(f"{name} must return one number, an energy, got shape {value.shape}")
    return value.reshape(())
