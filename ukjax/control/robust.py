"""Robust constraint following: the task is followed approximately although the model has a bounded error.

Y. H. Chen & X. Zhang, J. Franklin Inst. 347 (2010) 69. Let β = A v − c be the velocity error of the task. Two terms are
added to the nominal law of ``Servo``: feedback of β, and a term that dominates the worst uncertainty. Both are
accelerations of the task, so structural constraints and redundant actuators are treated as in ``Servo``:

    u = G⁺ (b̄ − κ P⁻¹ β − P⁻¹ γ μ ρ),    μ = ρ β,    γ = 1 / ((1 + ρ_E) max(|μ|, ε)),

with G and b̄ of the nominal model. For square A and B = I this is p1 + p2 + p3 of the paper. Let δ be the change of β̇
by the uncertainty for u = G⁺ b̄, and Δ = G_actual G⁺ − I. If ρ ≥ |P δ| and the symmetric part of P Δ P⁻¹ is at least
ρ_E > −1, then V = βᵀPβ falls as V̇ ≤ −2 κ (1 + ρ_E) |β|² + ε/2.
"""

from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._check import as_number, as_numbers, check_function
from .._constraint import AbstractConstraint, rows
from .._control import AbstractControl, Command, allocate, passive_mobility, square_matrix
from .._errors import InputError
from .._functions import Constant, as_function, vector
from .._names import names_and_units
from .._norm import length
from .._precision import Numbers, as_float
from .._terms import Terms
from .task import apply_inverse, as_definite, following_error, task_of


class Robust(AbstractControl):
    """Constraint following under an uncertainty bounded by ``rho``: |β| finally stays within ``ultimate_bound``.

        u = G⁺ (b̄ − κ P⁻¹ β − P⁻¹ γ μ ρ),    μ = ρ β,    γ = 1 / ((1 + ρ_E) max(|μ|, ε)),    β = A v − c

    with G and b̄ of the nominal model (see ``Servo``). The system with this control is the actual system. δ is the
    change of β̇ by the uncertainty for u = G⁺ b̄, and ρ_E bounds the symmetric part of P (G_actual G⁺ − I) P⁻¹ from
    below. Source: Chen & Zhang, J. Franklin Inst. 347 (2010) 69.

    Parameters
    ----------
    actuators
        B (n, p), one column per actuator: an array or a function of (t, q).
    task
        One constraint or several, as in ``Servo``, but no ``AccelerationConstraint``.
    model
        Nominal model that the law uses: a system or a function (t, q, v) -> ``Terms``.
    rho
        Bound on |P δ|: a nonnegative number or a function of (t, q, v).
    epsilon
        Width of the boundary layer in which the robust term is smooth, a positive number.
    kappa
        Feedback gain of β [1/s], a nonnegative number.
    P
        Positive definite matrix: a number, (m,) or (m, m).
    rho_E
        Lower bound ρ_E of the relative error of G, a number larger than −1. It is 0 or less if the nominal G may be
        exact.
    inputs
        Name and unit of each actuator: ``(("u1", "N m"), ...)``.

    Raises
    ------
    InputError
        If an argument has the wrong type or sign. Wrong shapes are reported when the control is evaluated.
    """

    actuators: Callable
    task: tuple[AbstractConstraint, ...]
    model: Callable
    rho: Callable
    epsilon: Array
    kappa: Array
    P: Array
    rho_E: Array
    projected: bool = eqx.field(static=True)
    inputs: tuple[tuple[str, str], ...] | None = eqx.field(static=True)

    def __init__(
        self,
        actuators: Any,
        task: Any,
        model: Callable,
        rho: Any,
        *,
        epsilon: Numbers = 0.01,
        kappa: Numbers = 1.0,
        P: Numbers = 1.0,
        rho_E: Numbers = 0.0,
        inputs: Iterable[tuple[str, str]] | None = None,
    ):
        self.actuators = as_function("actuators", actuators, "t, q")
        check_function("model", model, "t, q, v")
        self.task, self.model = task_of(task), model
        self.rho = as_function("rho", rho, "t, q, v")
        if isinstance(self.rho, Constant):
            as_numbers("rho", self.rho.value, least=0)
        self.epsilon, self.kappa = as_number("epsilon", epsilon, above=0), as_number("kappa", kappa, "1/s", least=0)
        self.P, self.rho_E = as_definite("P", P), as_number("rho_E", rho_E, above=-1)
        self.projected = False
        self.inputs = names_and_units("inputs", inputs)

    def command(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], passive: Terms) -> Command:
        return self.command_for_bound(t, q, v, self.bound(t, q, v))

    def bound(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, ""]:
        """Evaluate ``rho``. Raises ``InputError`` if it does not return one number."""
        rho = vector("rho", self.rho, t, q, v)
        if rho.shape != (1,):
            raise InputError(f"rho must return one number, got shape {rho.shape}")
        return rho[0]

    def command_for_bound(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], rho: Numbers) -> Command:
        """Return the command for the bound ``rho`` given as a number."""
        A, b = rows(self.task, t, q, v)
        beta = following_error(self.task, t, q, v, b.size)
        magnitude = jnp.maximum(jnp.abs(as_float(rho)) * length(beta), self.epsilon)
        robust_term = as_float(rho) ** 2 * beta / ((1 + self.rho_E) * magnitude)
        b = b - apply_inverse(square_matrix("P", self.P, b.size), self.kappa * beta + robust_term)
        B = self.matrix(t, q, v)
        p = B.shape[1]
        return allocate(
            passive_mobility(self.model, t, q, v), A, b, B, jnp.eye(p, dtype=q.dtype), jnp.zeros((p,), q.dtype)
        )

    def ultimate_bound(self) -> Float[Array, ""]:
        """Return the ultimate bound of |β|: √(ε λ_max / (4 κ (1 + ρ_E) λ_min)), λ the eigenvalues of P."""
        least, largest = extreme_eigenvalues(self.P)
        return jnp.sqrt(self.epsilon / (4 * self.kappa * (1 + self.rho_E)) * largest / least)


def extreme_eigenvalues(P: Array) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the smallest and the largest eigenvalue of a number, a diagonal (m,) or a symmetric matrix (m, m)."""
    values = jnp.linalg.eigvalsh(P) if P.ndim == 2 else P
    return jnp.min(values), jnp.max(values)
