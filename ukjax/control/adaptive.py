"""Adaptive robust constraint following: the size of the uncertainty is learned along the way."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._check import as_number, kind_of
from .._constraint import AbstractConstraint, OnPart, velocities
from .._control import AbstractControl, Command
from .._dynamics import AbstractDynamics
from .._functions import vector_of
from .._norm import length
from .._precision import Numbers
from .._system import AbstractSystem
from .._terms import Terms
from .robust import Robust, extreme_eigenvalues


class Adaptive(AbstractSystem):
    """A plant under ``Robust`` control whose bound is learned: ρ = α̂ Π(t, q, v), and

        dα̂/dt = k1 Π |β| − k2 α̂,

    Chen & Zhang, J. Franklin Inst. 347 (2010) 69, with leakage k2 [1/s]. All that needs to be known is that some α Π
    bounds the uncertainty. α̂ is the velocity of one more coordinate, with unit mass: q is (the plant's q, ∫α̂ dt), v is
    (the plant's v, α̂). Started at α̂ ≥ 0 it stays so.

    ``plant`` is the actual system, without control; ``law`` a ``Robust``, whose ``rho`` is Π here. With
    V = βᵀPβ + (α̂ − α)²/k1, V̇ ≤ −2 κ (1 + ρ_E) |β|² − (k2/k1) (α̂ − α)² + (k2/k1) α² + ε/2: see ``ultimate_bound``.
    """

    plant: AbstractSystem
    law: Robust
    k1: Array
    k2: Array

    def __init__(self, plant: AbstractSystem, law: Robust, *, k1: Numbers, k2: Numbers):
        if not isinstance(plant, AbstractSystem):
            raise ValueError(f"plant must be a ukjax.System, got {kind_of(plant)}")
        if not isinstance(law, Robust):
            raise ValueError(f"law must be a ukjax.control.Robust, got {kind_of(law)}")
        if plant.control is not None:
            raise ValueError("plant must be without control of its own: it is driven by law")
        if plant.kinematic_map is not None:
            raise ValueError("plant must have the rates of its coordinates for velocities, which it has not")
        self.plant, self.law = plant, law
        self.k1, self.k2 = as_number("k1", k1, above=0), as_number("k2", k2, "1/s", least=0)

    @property
    def dynamics(self) -> "AbstractDynamics":
        return _Adapting(self.plant.dynamics, self)

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        return tuple(OnPart(constraint, _all_but_one) for constraint in self.plant.constraints)

    @property
    def control(self) -> "AbstractControl":
        return _OnPlant(self.law)

    @property
    def nonideal(self) -> Callable | None:
        nonideal = self.plant.nonideal
        if nonideal is None:
            return None
        force = lambda t, q, v: vector_of(v.size, "velocity", "nonideal", nonideal, t, q, v)
        return lambda t, q, v: jnp.append(force(t, q[:-1], v[:-1]), 0.0)

    @property
    def coordinates(self) -> tuple[tuple[str, str], ...] | None:
        named = self.plant.coordinates
        return None if named is None else (*named, ("adaptation", ""))

    def adaptation(self, t: Array, q: Float[Array, " k"], v: Float[Array, " k"]) -> Float[Array, ""]:
        """dα̂/dt."""
        q, v, alpha = q[:-1], v[:-1], v[-1]
        size = length(velocities(self.law.task, t, q, v))
        return self.k1 * jnp.abs(self.law.bound(t, q, v)) * size - self.k2 * alpha

    def ultimate_bound(self, alpha: Numbers) -> Float[Array, ""]:
        """A bound that |β| cannot exceed in the end, if α Π bounds the uncertainty."""
        law, alpha = self.law, as_number("alpha", alpha, least=0)
        least, largest = extreme_eigenvalues(law.P)
        supply = self.k2 / self.k1 * alpha**2 + law.epsilon / 2
        V = supply * jnp.maximum(largest / (2 * law.kappa * (1 + law.rho_E)), 1 / self.k2)
        return jnp.sqrt(V / least)


def _all_but_one(n: int) -> int:
    return n - 1


class _Adapting(AbstractDynamics):
    """The plant's dynamics and, with unit mass, the adaptation."""

    plant: AbstractDynamics
    system: Adaptive

    def terms(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        M, Q = self.plant.terms(t, q[:-1], v[:-1])
        return jnp.pad(M, ((0, 1), (0, 1))).at[-1, -1].set(1.0), jnp.append(Q, self.system.adaptation(t, q, v))

    def energy(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, ""] | None:
        return self.plant.energy(t, q[:-1], v[:-1])


class _OnPlant(AbstractControl):
    """The law on the plant's part of the coordinates, with the learned bound."""

    law: Robust

    @property
    def actuators(self) -> Callable:
        return lambda t, q: jnp.pad(self.law.matrix(t, q[:-1], q[:-1]), ((0, 1), (0, 0)))

    @property
    def task(self) -> tuple[AbstractConstraint, ...]:
        return tuple(OnPart(constraint, _all_but_one) for constraint in self.law.task)

    @property
    def held(self) -> bool:
        return False

    @property
    def inputs(self) -> Any:
        return self.law.inputs

    def command(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], passive: Terms) -> Command:
        q, v, alpha = q[:-1], v[:-1], v[-1]
        return self.law.against(t, q, v, alpha * self.law.bound(t, q, v))
