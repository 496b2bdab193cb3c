"""Adaptive robust constraint following: the bound on the uncertainty is estimated online."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._check import as_number, kind_of
from .._constraint import AbstractConstraint, OnPart, velocities
from .._control import AbstractControl, Command
from .._dynamics import AbstractDynamics
from .._errors import InputError
from .._functions import vector_of
from .._norm import length
from .._precision import Numbers
from .._system import AbstractSystem, refuse_contacts
from .._terms import Terms
from .robust import Robust, extreme_eigenvalues


class Adaptive(AbstractSystem):
    """System under ``Robust`` control whose uncertainty bound is estimated online.

    The bound is ρ = α̂ Π(t, q, v), with the adaptation law

        dα̂/dt = k1 Π |β| − k2 α̂,

    of Chen & Zhang, J. Franklin Inst. 347 (2010) 69. The law only requires that α Π bounds the uncertainty for some α,
    which need not be known. α̂ is the velocity of one additional coordinate with unit mass: the state of this system is
    q = (q of the plant, ∫α̂ dt) and v = (v of the plant, α̂). If α̂ ≥ 0 at the start, α̂ remains nonnegative.

    With V = βᵀPβ + (α̂ − α)²/k1, V̇ ≤ −2 κ (1 + ρ_E) |β|² − (k2/k1) (α̂ − α)² + (k2/k1) α² + ε/2, from which
    ``ultimate_bound`` follows.

    Parameters
    ----------
    plant
        The actual system, without control and without a kinematic map.
    law
        Robust control law. Its ``rho`` is Π here.
    k1
        Adaptation gain, a positive number.
    k2
        Leakage [1/s], a nonnegative number.

    Raises
    ------
    InputError
        If an argument has the wrong type or sign, or ``plant`` has a control or a kinematic map.
    """

    plant: AbstractSystem
    law: Robust
    k1: Array
    k2: Array

    def __init__(self, plant: AbstractSystem, law: Robust, *, k1: Numbers, k2: Numbers):
        if not isinstance(plant, AbstractSystem):
            raise InputError(f"plant must be a ukjax.System, got {kind_of(plant)}")
        refuse_contacts("Adaptive", plant)
        if not isinstance(law, Robust):
            raise InputError(f"law must be a ukjax.control.Robust, got {kind_of(law)}")
        if plant.control is not None:
            raise InputError("plant must be without control of its own: it is driven by law")
        if plant.kinematic_map is not None:
            raise InputError("plant must have the rates of its coordinates as velocities, but has a kinematic map")
        self.plant, self.law = plant, law
        self.k1, self.k2 = as_number("k1", k1, above=0), as_number("k2", k2, "1/s", least=0)

    @property
    def dynamics(self) -> "AbstractDynamics":
        return _AugmentedDynamics(self.plant.dynamics, self)

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        return tuple(OnPart(constraint, _plant_size) for constraint in self.plant.constraints)

    @property
    def control(self) -> "AbstractControl":
        return _PlantControl(self.law)

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
        """Return dα̂/dt for the state of this system (with the additional coordinate)."""
        q, v, alpha = q[:-1], v[:-1], v[-1]
        beta_norm = length(velocities(self.law.task, t, q, v))
        return self.k1 * jnp.abs(self.law.bound(t, q, v)) * beta_norm - self.k2 * alpha

    def ultimate_bound(self, alpha: Numbers) -> Float[Array, ""]:
        """Return the ultimate bound of |β|, as t → ∞, if ``alpha`` Π bounds the uncertainty; in the unit of β."""
        law, alpha = self.law, as_number("alpha", alpha, least=0)
        least, largest = extreme_eigenvalues(law.P)
        rate_bound = self.k2 / self.k1 * alpha**2 + law.epsilon / 2
        V = rate_bound * jnp.maximum(largest / (2 * law.kappa * (1 + law.rho_E)), 1 / self.k2)
        return jnp.sqrt(V / least)


def _plant_size(n: int) -> int:
    return n - 1


class _AugmentedDynamics(AbstractDynamics):
    """Dynamics of the plant, augmented by the adaptation law as a coordinate with unit mass."""

    plant: AbstractDynamics
    system: Adaptive

    def terms(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        M, Q = self.plant.terms(t, q[:-1], v[:-1])
        return jnp.pad(M, ((0, 1), (0, 1))).at[-1, -1].set(1.0), jnp.append(Q, self.system.adaptation(t, q, v))

    def energy(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, ""] | None:
        return self.plant.energy(t, q[:-1], v[:-1])


class _PlantControl(AbstractControl):
    """Control law evaluated on the coordinates of the plant, with the estimated bound."""

    law: Robust

    @property
    def actuators(self) -> Callable:
        return lambda t, q: jnp.pad(self.law.matrix(t, q[:-1], q[:-1]), ((0, 1), (0, 0)))

    @property
    def task(self) -> tuple[AbstractConstraint, ...]:
        return tuple(OnPart(constraint, _plant_size) for constraint in self.law.task)

    @property
    def projected(self) -> bool:
        return False

    @property
    def inputs(self) -> Any:
        return self.law.inputs

    def command(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], passive: Terms) -> Command:
        q, v, alpha = q[:-1], v[:-1], v[-1]
        return self.law.command_for_bound(t, q, v, alpha * self.law.bound(t, q, v))
