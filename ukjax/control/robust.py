"""Robust constraint following: a task kept near although the model is wrong by a bounded amount.

Y. H. Chen & X. Zhang, J. Franklin Inst. 347 (2010) 69. With β = A v − c, the error of the task in velocities, the
nominal law of ``Servo`` is completed by a pull back and by a push against the worst uncertainty, both in the task's
accelerations, so that the structure's constraints and the choice of actuators are served as they are there:

    u = G⁺ (b̄ − κ P⁻¹ β − P⁻¹ γ μ ρ),    μ = ρ β,    γ = 1 / ((1 + ρ_E) max(|μ|, ε)),

G and b̄ of the nominal model. For square A and B = I this is p1 + p2 + p3 of the paper. Let δ be what the uncertainty
adds to β̇ with the u = G⁺ b̄, and Δ = G_actual G⁺ − I. If ρ ≥ |P δ| and the symmetric part of P Δ P⁻¹ is at least
ρ_E > −1, then V = βᵀPβ falls as V̇ ≤ −2 κ (1 + ρ_E) |β|² + ε/2.
"""

from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._check import as_number, as_numbers, check_function
from .._constraint import AbstractConstraint, rows
from .._control import AbstractControl, Command, allocate, square_matrix, undriven
from .._functions import Constant, as_function, vector
from .._names import names_and_units
from .._norm import length
from .._precision import Numbers, as_float
from .._terms import Terms
from .task import apply_inverse, definite, following_error, task_of


class Robust(AbstractControl):
    """Constraint following under uncertainty no larger than ``rho``: β ends within ``ultimate_bound``.

    ``actuators``, ``task``, ``inputs`` as in ``Servo``. ``model`` is the nominal model the law knows, a system or a
    function (t, q, v) -> ``Terms``; the system that carries the control is the actual one. ``rho(t, q, v)`` or a number
    bounds |P δ|, ``rho_E`` > −1 the wrongness of the masses; ``epsilon`` > 0 is the width of the layer in which the
    push is smooth; ``kappa`` [1/s] with ``P`` (m, m) the pull.
    """

    actuators: Callable
    task: tuple[AbstractConstraint, ...]
    model: Callable
    rho: Callable
    epsilon: Array
    kappa: Array
    P: Array
    rho_E: Array
    held: bool = eqx.field(static=True)
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
        self.P, self.rho_E = definite("P", P), as_number("rho_E", rho_E, above=-1)
        self.held = False
        self.inputs = names_and_units("inputs", inputs)

    def command(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], passive: Terms) -> Command:
        return self.against(t, q, v, self.bound(t, q, v))

    def bound(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, ""]:
        """What ``rho`` says, one number; ``ValueError`` for anything else."""
        rho = vector("rho", self.rho, t, q, v)
        if rho.shape != (1,):
            raise ValueError(f"rho must return one number, got shape {rho.shape}")
        return rho[0]

    def against(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], rho: Numbers) -> Command:
        """The command against an uncertainty ``rho`` given as a number."""
        A, b = rows(self.task, t, q, v)
        beta = following_error(self.task, t, q, v, b.size)
        size = jnp.maximum(jnp.abs(as_float(rho)) * length(beta), self.epsilon)
        push = as_float(rho) ** 2 * beta / ((1 + self.rho_E) * size)
        b = b - apply_inverse(square_matrix("P", self.P, b.size), self.kappa * beta + push)
        B = self.matrix(t, q, v)
        p = B.shape[1]
        return allocate(undriven(self.model, t, q, v), A, b, B, jnp.eye(p, dtype=q.dtype), jnp.zeros((p,), q.dtype))

    def ultimate_bound(self) -> Float[Array, ""]:
        """A bound that |β| cannot exceed in the end: √(ε λ_max / (4 κ (1 + ρ_E) λ_min)), λ the eigenvalues of P."""
        least, largest = extreme_eigenvalues(self.P)
        return jnp.sqrt(self.epsilon / (4 * self.kappa * (1 + self.rho_E)) * largest / least)


def extreme_eigenvalues(P: Array) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The smallest and the largest eigenvalue of a matrix given as a number, a diagonal or all of it."""
    values = jnp.linalg.eigvalsh(P) if P.ndim == 2 else P
    return jnp.min(values), jnp.max(values)
