"""Generalised sliding mode: an uncertain system made to follow the exact motion of its nominal model.

F. E. Udwadia & T. Wanichanon, J. Appl. Mech. 81 (2014) 041020. The nominal model under its constraints,
M q̈ = Q + Qᶜ, is integrated beside the actual system, which gets the nominal force and a correction:

    M_a q̈_a = Q_a + Qᶜ + M u,    u = −L ė − κ f(s/ε),    s = ė + L e,    e = q_a − q.

If κ ≥ (Γ + β₀)/α₀ with some β₀ > 0, Γ a bound of what the uncertainty does to ë + L ė while κ f = 0, and
α₀ = 1 − |I − M_a⁻¹M| > 0, then |s| ends within ε and every error |e_i| within ε/L_i.
"""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._check import as_array, as_number, as_numbers, call, check_function, kind_of
from .._constraint import AbstractConstraint, OnPart
from .._control import AbstractControl, Command, no_task
from .._dynamics import AbstractDynamics
from .._equation import constrained_motion
from .._precision import Numbers
from .._system import AbstractSystem
from .._terms import Terms


def saturation(x: Array) -> Array:
    """x, cut off at −1 and 1: the plainest odd and monotone f."""
    return jnp.clip(x, -1.0, 1.0)


class SlidingMode(AbstractSystem):
    """``nominal`` and ``actual`` side by side in 2 n coordinates (q, q_a), the second made to follow the first.

    ``nominal`` is a system of n coordinates whose constraints are the task; ``actual`` the same machine with the masses
    and forces it really has, without constraints, an actuator on every coordinate. ``L`` [1/s], a number or (n,), how
    fast the error decays on s = 0; ``kappa`` as above; ``epsilon`` the width of the layer around s = 0; ``shape`` is f.
    The control is the whole force Qᶜ + M u on the actual system.
    """

    nominal: AbstractSystem
    actual: AbstractSystem
    L: Array
    kappa: Array
    epsilon: Array
    shape: Callable

    def __init__(
        self,
        nominal: AbstractSystem,
        actual: AbstractSystem,
        *,
        L: Numbers,
        kappa: Numbers,
        epsilon: Numbers,
        shape: Callable = saturation,
    ):
        for name, system in (("nominal", nominal), ("actual", actual)):
            if not isinstance(system, AbstractSystem):
                raise ValueError(f"{name} must be a ukjax.System, got {kind_of(system)}")
            if system.control is not None or system.nonideal is not None:
                raise ValueError(f"{name} must be without control and without non-ideal constraints")
            if system.kinematic_map is not None:
                raise ValueError(f"{name} must have the rates of its coordinates for velocities, which it has not")
        if actual.constraints:
            raise ValueError("actual must be without constraints: those of nominal are what it is made to follow")
        check_function("shape", shape, "x")
        self.nominal, self.actual, self.shape = nominal, actual, shape
        self.L = as_numbers("L", L, above=0, below=math.inf)
        self.kappa, self.epsilon = as_number("kappa", kappa, least=0), as_number("epsilon", epsilon, above=0)

    @property
    def dynamics(self) -> "AbstractDynamics":
        return _Beside(self.nominal.dynamics, self.actual.dynamics)

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        return tuple(OnPart(constraint, _half) for constraint in self.nominal.constraints)

    @property
    def control(self) -> "AbstractControl":
        return _Following(self)

    @property
    def coordinates(self) -> tuple[tuple[str, str], ...] | None:
        named = self.nominal.coordinates
        return None if named is None else (*((f"{name} nominal", unit) for name, unit in named), *named)


def _half(n: int) -> int:
    if n % 2:
        raise ValueError(
            f"q and v of a SlidingMode system must hold n entries of nominal and then n of actual, got {n} entries"
        )
    return n // 2


class _Beside(AbstractDynamics):
    """Two systems that know nothing of each other."""

    first: AbstractDynamics
    second: AbstractDynamics

    def terms(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        n = _half(q.size)
        (M1, Q1), (M2, Q2) = self.first.terms(t, q[:n], v[:n]), self.second.terms(t, q[n:], v[n:])
        return jnp.pad(M1, ((0, n), (0, n))) + jnp.pad(M2, ((n, 0), (n, 0))), jnp.concatenate([Q1, Q2])

    def energy(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> None:
        return None


class _Following(AbstractControl):
    """Qᶜ + M u on the actual system."""

    system: SlidingMode

    @property
    def actuators(self) -> Callable:
        return lambda t, q: jnp.eye(q.size)[:, _half(q.size) :]

    @property
    def task(self) -> tuple[AbstractConstraint, ...]:
        return ()

    @property
    def held(self) -> bool:
        return False

    @property
    def inputs(self) -> Any:
        return None

    def command(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], passive: Terms) -> Command:
        system, n = self.system, _half(q.size)
        if system.L.shape not in ((), (n,)):
            raise ValueError(f"L must be a number or have shape ({n},), one per coordinate, got shape {system.L.shape}")
        nominal_force = constrained_motion(system.nominal(t, q[:n], v[:n])).constraint_force
        M, _ = system.nominal.dynamics.terms(t, q[n:], v[n:])
        e, e_dot = q[n:] - q[:n], v[n:] - v[:n]
        s = e_dot + system.L * e
        push = as_array("shape", call("shape", system.shape, s / system.epsilon), verb="return")
        if push.shape != s.shape:
            raise ValueError(f"shape must return shape {s.shape} like its argument, got shape {push.shape}")
        u = -system.L * e_dot - system.kappa * push
        return no_task(nominal_force + M @ u)
