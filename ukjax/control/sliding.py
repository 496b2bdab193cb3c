"""Generalised sliding mode control: an uncertain system tracks the exact motion of its nominal model.

F. E. Udwadia & T. Wanichanon, J. Appl. Mech. 81 (2014) 041020. The nominal model under its constraints,
M q̈ = Q + Qᶜ, is integrated together with the actual system. The actual system receives the nominal constraint force
and a correction:

    M_a q̈_a = Q_a + Qᶜ + M u,    u = −L ė − κ f(s/ε),    s = ė + L e,    e = q_a − q.

Let Γ bound the change of ë + L ė by the uncertainty for κ f = 0, and let α₀ = 1 − |I − M_a⁻¹M| > 0. If
κ ≥ (Γ + β₀)/α₀ for some β₀ > 0, then |s| finally stays within ε, and every error |e_i| within ε/L_i.
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
from .._errors import InputError
from .._precision import Numbers
from .._system import AbstractSystem, refuse_contacts
from .._terms import Terms


def saturation(x: Array) -> Array:
    """Return x clipped to [−1, 1], the simplest odd and monotone f."""
    return jnp.clip(x, -1.0, 1.0)


class SlidingMode(AbstractSystem):
    """System of 2 n coordinates (q, q_a) in which the actual system tracks the nominal one by sliding mode control.

        M_a q̈_a = Q_a + Qᶜ + M u,    u = −L ė − κ f(s/ε),    s = ė + L e,    e = q_a − q

    with M, Q and Qᶜ of the nominal system. Every coordinate of the actual system has an actuator; the control is the
    whole force Qᶜ + M u on it. Source: Udwadia & Wanichanon, J. Appl. Mech. 81 (2014) 041020.

    Parameters
    ----------
    nominal
        Nominal system of n coordinates. Its constraints are the task.
    actual
        The same machine with its actual masses and forces, without constraints.
    L
        Decay rate of the error on s = 0 [1/s]: a positive number, or (n,).
    kappa
        Switching gain κ, a nonnegative number, in the unit of the accelerations.
    epsilon
        Width of the boundary layer around s = 0, a positive number, in the unit of the velocities.
    shape
        Function f, odd and monotone, applied to s/ε (n,). Default: s/ε limited to [−1, 1].

    Raises
    ------
    InputError
        If an argument has the wrong type or sign, if a system has a control, non-ideal constraints or a kinematic map,
        or if ``actual`` has constraints.
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
                raise InputError(f"{name} must be a ukjax.System, got {kind_of(system)}")
            refuse_contacts("SlidingMode", system)
            if system.control is not None or system.nonideal is not None:
                raise InputError(f"{name} must be without control and without non-ideal constraints")
            if system.kinematic_map is not None:
                raise InputError(
                    f"{name} must have the rates of its coordinates as velocities, but has a kinematic map"
                )
        if actual.constraints:
            raise InputError("actual must be without constraints: it is made to follow those of nominal")
        check_function("shape", shape, "x")
        self.nominal, self.actual, self.shape = nominal, actual, shape
        self.L = as_numbers("L", L, above=0, below=math.inf)
        self.kappa, self.epsilon = as_number("kappa", kappa, least=0), as_number("epsilon", epsilon, above=0)

    @property
    def dynamics(self) -> "AbstractDynamics":
        return _StackedDynamics(self.nominal.dynamics, self.actual.dynamics)

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        return tuple(OnPart(constraint, _half) for constraint in self.nominal.constraints)

    @property
    def control(self) -> "AbstractControl":
        return _TrackingControl(self)

    @property
    def coordinates(self) -> tuple[tuple[str, str], ...] | None:
        named = self.nominal.coordinates
        return None if named is None else (*((f"{name} nominal", unit) for name, unit in named), *named)


def _half(n: int) -> int:
    if n % 2:
        raise InputError(
            f"q and v of a SlidingMode system must hold n entries of nominal and then n of actual, got {n} entries"
        )
    return n // 2


class _StackedDynamics(AbstractDynamics):
    """Block-diagonal dynamics of two uncoupled systems."""

    first: AbstractDynamics
    second: AbstractDynamics

    def terms(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        n = _half(q.size)
        (M1, Q1), (M2, Q2) = self.first.terms(t, q[:n], v[:n]), self.second.terms(t, q[n:], v[n:])
        return jnp.pad(M1, ((0, n), (0, n))) + jnp.pad(M2, ((n, 0), (n, 0))), jnp.concatenate([Q1, Q2])

    def energy(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> None:
        return None


class _TrackingControl(AbstractControl):
    """Control force Qᶜ + M u on the actual system."""

    system: SlidingMode

    @property
    def actuators(self) -> Callable:
        return lambda t, q: jnp.eye(q.size)[:, _half(q.size) :]

    @property
    def task(self) -> tuple[AbstractConstraint, ...]:
        return ()

    @property
    def projected(self) -> bool:
        return False

    @property
    def inputs(self) -> Any:
        return None

    def command(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], passive: Terms) -> Command:
        system, n = self.system, _half(q.size)
        if system.L.shape not in ((), (n,)):
            raise InputError(f"L must be a number or have shape ({n},), one per coordinate, got shape {system.L.shape}")
        nominal_force = constrained_motion(system.nominal(t, q[:n], v[:n])).constraint_force
        M, _ = system.nominal.dynamics.terms(t, q[n:], v[n:])
        e, e_dot = q[n:] - q[:n], v[n:] - v[:n]
        s = e_dot + system.L * e
        switching_term = as_array("shape", call("shape", system.shape, s / system.epsilon), verb="return")
        if switching_term.shape != s.shape:
            raise InputError(f"shape must return shape {s.shape} like its argument, got shape {switching_term.shape}")
        u = -system.L * e_dot - system.kappa * switching_term
        return no_task(nominal_force + M @ u)
