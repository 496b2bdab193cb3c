"""RATTLE for configuration-dependent mass matrices: a variational step on positions and momenta.

The discrete Lagrangian of a step is h L(q_m, v), with the velocity v and the midpoint q_m of the step. Its ends are
q0 = q_m ⊕ (−h v/2) and q1 = q_m ⊕ (h v/2), where y = q ⊕ w is the midpoint rule of q̇ = N(q) w for a unit of time:
y = q + N((q + y)/2) w, so y = q + w for v = q̇. With π = M v the step is, for v = q̇,

    π⁺ = π0 + A(q0)ᵀ λ,      φ(q1) = 0,
    M(q_m) v = π⁺ + h/2 E(q_m, v),      π⁻ = M(q_m) v + h/2 E(q_m, v),
    π1 = π⁻ + A(q1)ᵀ μ,      A(q1) v1 + φ_t = 0,

where E = Q + Ṁ v = ∂L/∂q + F is the derivative of the momentum without constraint forces, of any dynamics with a
kinetic energy vᵀM v/2. The map of (q0, π0) to (q1, π1) is symmetric, and symplectic if the forces have a potential.
Multipliers do not appear: λ is eliminated by the constrained inverse W of (M, A) at the start of the step, A W = 0.
With constant M and Q(q) evaluated at the ends instead of the middle it would be the method of Andersen (1983).

The midpoint rule keeps the norm of a quaternion exactly. For other kinematic maps see ``_Transport``.

Sources: E. Hairer, C. Lubich & G. Wanner, Geometric Numerical Integration, 2006, VII.1; J. E. Marsden & M. West, Acta
Numerica 10 (2001) 357; S. Reich, SIAM J. Numer. Anal. 33 (1996) 475; M. Suzuki, Phys. Lett. A 146 (1990) 319.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..._check import repr_of
from ..._errors import InputError
from ..._kernel import per_member
from ..._kinematic_map import KinematicMap, columns, rate, settled
from ..._solve import solve
from ..._system import AbstractSystem, mass_of, refuse_states
from .base import AbstractStepper, StepEnd
from .drift_correction import MethodPerLevel, assumption_failed_for, correct_drift, methods_at

MAX_ITERATIONS = 60
"""Largest number of iterations of a step. They converge linearly, with a rate proportional to h."""

CONVERGED = 2.0
"""Change of v in an iteration, in units of the last place of the largest velocity, at which the iteration ends."""

ALMOST_CONVERGED = {"float64": 1e-10, "float32": 1e-3}
"""Relative change of v in the last iteration, above which the step has failed. Below, if the changes no longer
decrease, they are rounding: that of φ, divided by h."""

SUZUKI = 1 / (4 - 4 ** (1 / 3))
WEIGHTS = {2: (1.0,), 4: (SUZUKI, SUZUKI, 1 - 4 * SUZUKI, SUZUKI, SUZUKI)}
"""Lengths of the substeps of one step, relative to h, by the order of the method."""


class Rattle(AbstractStepper):
    """Symplectic steps for long motions of holonomic systems: ``simulate(..., solver=ukjax.Rattle(), dt=1e-3)``.

    The method is symmetric and symplectic on the constraints: the energy of a conservative system oscillates with an
    amplitude proportional to dt to the ``order``, and does not drift, over any number of steps. The motion backwards
    from the end with reversed velocities returns to the start, up to rounding. Positions and velocities satisfy the
    constraints up to rounding at the end of each step. See :doc:`/howto/long_motions`.

    The mass matrix may depend on the coordinates; constraints may be redundant, and the mass matrix singular as for
    ``constrained_motion``. Quaternions keep their norm. Forces that depend on velocities are allowed: the method stays
    symmetric and keeps its order, but is not symplectic then. The same is true for kinetic energies with terms linear
    in the velocities, such as in a rotating frame.

    Each step solves implicit equations by iteration, until only rounding is left. A step that is too long for that
    ends the motion. Constraints on velocities or accelerations, contacts, tasks of a ``Servo``, and controls with
    first-order states are not available.

    Parameters
    ----------
    order
        2, or 4 by a symmetric composition of five steps of order 2.

    Raises
    ------
    InputError
        If ``order`` is not 2 or 4.

    References
    ----------
    H. C. Andersen, J. Comput. Phys. 52 (1983) 24; E. Hairer, C. Lubich & G. Wanner, Geometric Numerical Integration,
    Springer 2006, VII.1; J. E. Marsden & M. West, Acta Numerica 10 (2001) 357.
    """

    order: int = eqx.field(static=True, default=2)

    def __check_init__(self):
        if isinstance(self.order, bool) or self.order not in WEIGHTS:
            raise InputError(f"order must be 2 or 4, got {repr_of(self.order)}")

    def check(self, model: Any, drift: str) -> None:
        if not isinstance(model, AbstractSystem):
            raise InputError(
                "solver=Rattle() needs a ukjax.System: a function that returns Terms has no constraints φ = 0"
            )
        if drift != "projection":
            raise InputError(
                f"solver=Rattle() satisfies the constraints in each step: use drift='projection', got {drift!r}"
            )
        refuse_states("solver=Rattle()", model)
        if model.control is not None and model.control.projected:
            raise InputError("solver=Rattle() is not available for a system whose control enforces a task")
        for constraint in model.constraints:
            if constraint.level != "position":
                raise InputError(
                    f"solver=Rattle() is for constraints on positions, φ(t, q) = 0, and {constraint.name!r} is on "
                    f"{'velocities' if constraint.level == 'velocity' else 'accelerations'}: use the default solver"
                )

    def init(self, q, v) -> Any:
        return jnp.zeros_like(v)  # an acceleration, by which the first iterate of v is predicted

    def step(self, setting, carry, t, h, q, v) -> tuple[Any, StepEnd]:
        each, method, _, scale = setting
        levels = method if isinstance(method, MethodPerLevel) else each(methods_at, t, q, v, method)
        weights = WEIGHTS[self.order]

        def substep(state, part):
            begin, length = part
            q, v, guess, failed, needs_fallback = state
            q, v, guess, step_failed, step_fallback = each(
                _step_or_project, levels, t + begin * h, length * h, q, v, guess, scale
            )
            return (q, v, guess, failed | step_failed, needs_fallback | step_fallback), None

        false = jnp.zeros(q.shape[1:], bool)
        begins = np.concatenate([[0.0], np.cumsum(weights)[:-1]])
        parts = jnp.asarray(begins, q.dtype), jnp.asarray(weights, q.dtype)
        (q, v, carry, failed, needs_fallback), _ = jax.lax.scan(substep, (q, v, carry, false, false), parts)
        off = each(_is_off, t + h, q, v, scale)
        drops_rows = isinstance(method, MethodPerLevel) and method.drops_rows
        beyond = needs_fallback | off if drops_rows else needs_fallback
        return carry, StepEnd(q, v, off, failed, singular=false, inconsistent=false, beyond=beyond)


def _is_off(system, t, q, v, scale):
    return scale.relative_violation(system.violation(t, q, v)) > scale.max_violation(q)


@per_member
def _step_or_project(system, levels, t, h, q, v, guess, scale):
    """A step of h, or for h = 0 the projection of the start onto the constraints.

    Returns q and v; the acceleration over the step; whether the step failed; and whether the method for M and A was not
    applicable.
    """

    def project():
        end = correct_drift(system, t, q, v, levels, scale)
        return end.q, end.v, guess, jnp.asarray(False), end.needs_fallback

    return jax.lax.cond(h == 0, project, lambda: _step(system, levels, t, h, q, v, guess, scale))


def _step(system, levels, t, h, q, v, guess, scale):
    """A step of h: see ``_step_or_project``."""
    h = jnp.where(h == 0, 1, h)  # for h = 0 this is not used, but must not be NaN
    method, n = levels.position, v.size
    start = Start.of(system, t, h, q, v)
    response = method.factorise(*jax.lax.stop_gradient((start.M, start.A)))
    first = start.first(v + h / 2 * guess)
    # At a turning point all velocities are small, but not their errors.
    size = jax.lax.stop_gradient(jnp.max(jnp.maximum(jnp.abs(v), scale.v) / scale.unit))
    z, converged = jax.lax.custom_root(
        lambda z: start.defect(z, response),
        jax.lax.stop_gradient(first),
        lambda defect, z: _iterate(defect, z, scale.unit, size),
        lambda linear, y: _inverse(jax.vmap(linear)(jnp.eye(y.size, dtype=y.dtype)).T) @ y,
        has_aux=True,
    )
    middle = start.middle(z)
    _, momentum = start.momenta(middle)
    v0, end = jnp.zeros_like(v), (t + h, middle.q1)
    M, A = mass_of(system, *end, middle.v), system.position_slope(*end, middle.v)
    end_response = method.factorise(*jax.lax.stop_gradient((M, A)))
    v1 = solve(M, A, momentum, -system.velocity_residual(*end, v0), end_response)
    failed = converged == 0
    # The end of a failed step says nothing about the method.
    needs_fallback = response.needs_fallback | end_response.needs_fallback & ~failed
    needs_fallback = needs_fallback | assumption_failed_for(levels.acceleration)
    acceleration = jax.lax.stop_gradient(2 * (v1 - z[:n]) / h)
    return middle.q1, v1, acceleration, failed, needs_fallback


class Middle(NamedTuple):
    """Velocity of a step, its midpoint, and its end."""

    v: Float[Array, " n"]
    q: Float[Array, " nq"]
    q1: Float[Array, " nq"]


class Start(NamedTuple):
    """Start of a step of length h, with its momentum π0, M and A.

    The unknowns z of a step are v; for a kinematic map also q_m and q1, which are implicit then.
    """

    system: Any
    t: Array
    h: Array
    q: Float[Array, " nq"]
    momentum: Float[Array, " n"]
    M: Float[Array, "n n"]
    A: Float[Array, "m n"]

    @classmethod
    def of(cls, system: Any, t: Array, h: Array, q: Array, v: Array) -> "Start":
        M = mass_of(system, t, q, v)
        return cls(system, t, h, q, M @ v, M, system.position_slope(t, q, v))

    def first(self, v: Float[Array, " n"]) -> Float[Array, " k"]:
        """The unknowns for a prediction of v."""
        if self.system.kinematic_map is None:
            return v
        q_dot = rate(self.system.kinematic_map, self.q, v)
        return jnp.concatenate([v, self.q + self.h / 2 * q_dot, self.q + self.h * q_dot])

    def middle(self, z: Float[Array, " k"]) -> Middle:
        """The midpoint and the end for these unknowns; q_m and q1 by a Newton iteration."""
        kinematic_map, half, (v, q, q1) = self.system.kinematic_map, self.h / 2, self._split(z)
        if kinematic_map is None:
            return Middle(v, self.q + half * v, self.q + self.h * v)
        q = settled(kinematic_map, _turned(kinematic_map, self.q, half * v, q))
        return Middle(v, q, settled(kinematic_map, _turned(kinematic_map, q, half * v, q1)))

    def defect(self, z: Float[Array, " k"], response: Any) -> Float[Array, " k"]:
        """z minus the next iterate: zero if z solves the step. Its Jacobian is the unit matrix up to terms of h."""
        middle = self.middle(z)
        needed, _ = self.momenta(middle)
        phi = self.system.position_residual(self.t + self.h, middle.q1)
        of_v = solve(self.M, self.A, needed - self.momentum, phi / self.h, response)
        if self.system.kinematic_map is None:
            return of_v
        _, q, q1 = self._split(z)
        return jnp.concatenate([of_v, q - middle.q, q1 - middle.q1])

    def momenta(self, middle: Middle) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """π⁺ at the start and π⁻ at the end that belong to a midpoint and a velocity."""
        system, t, (v, q, _) = self.system, self.t + self.h / 2, middle
        q_dot, zero = rate(system.kinematic_map, q, v), jnp.zeros_like(self.h)
        # Ṁ v at constant v: M along the motion.
        momentum_at = lambda s: mass_of(system, t + s, q + s * q_dot, v) @ v
        momentum, change = jax.jvp(momentum_at, (zero,), (zero + 1,))
        terms = system(t, q, v)
        impulse = self.h / 2 * (terms.Q + change if terms.c is None else terms.Q + terms.c + change)
        if system.kinematic_map is None:
            return momentum - impulse, momentum + impulse
        return _Transport.of(system.kinematic_map, self.q, middle, self.h).momenta(momentum, impulse)

    def _split(self, z):
        n, nq = self.momentum.size, self.q.size
        return z[:n], z[n : n + nq], z[n + nq :]


def _turned(kinematic_map, q, w, y):
    """q ⊕ w, by a Newton iteration from y: exact if N is linear in q, as for quaternions."""
    slope = jax.jacfwd(lambda q: rate(kinematic_map, q, w))(q)
    missed = y - q - rate(kinematic_map, (q + y) / 2, w)
    return y - _inverse(jnp.eye(q.size, dtype=q.dtype) - slope / 2) @ missed


class _Transport(NamedTuple):
    """Derivatives of q0 = q_m ⊕ (−w) and q1 = q_m ⊕ w, w = h v/2, in the frames N(q0), N(q_m), N(q1).

    From y = q + N(c) w with c = (q + y)/2 follows (1 − B/2) dy = (1 + B/2) dq + N(c) dw, B the derivative of N(c) w
    with respect to c. With dq = N(q_m) η the ends move by N(q0) J0 (η − G0 dw) and N(q1) J1 (η + G1 dw). Then

        π⁻ = J1⁻ᵀ (σ + h E/2),    π⁺ = J0⁻ᵀ (σ − h E/2),    (G0 + G1)ᵀ σ/2 + h (G1 − G0)ᵀ E/4 = M v

    are the derivatives of h L(q_m, v) with respect to q1 and −q0. E has a term less than Q + Ṁ v: the brackets of the
    columns of N, which are not derivatives of L.

    Attributes
    ----------
    start, end
        J0⁻¹ and J1⁻¹ (n, n).
    G0, G1
        See above (n, n).
    bracket
        The matrix C (n, n) with E = Q + Ṁ v − C π.
    """

    start: Float[Array, "n n"]
    end: Float[Array, "n n"]
    G0: Float[Array, "n n"]
    G1: Float[Array, "n n"]
    bracket: Float[Array, "n n"]
    half: Array

    @classmethod
    def of(cls, kinematic_map: KinematicMap, q0: Array, middle: Middle, h: Array) -> "_Transport":
        v, q, q1 = middle
        unit, N = jnp.eye(q.size, dtype=q.dtype), lambda q: columns(kinematic_map, q, v)
        slope = lambda q, w: jax.jacfwd(lambda q: rate(kinematic_map, q, w))(q)
        c0, c1, N_m = (q0 + q) / 2, (q + q1) / 2, N(q)
        B0, B1 = slope(c0, h / 4 * v), slope(c1, h / 4 * v)  # each divided by 2
        left = _inverse(N_m.T @ N_m) @ N_m.T  # left N_m = 1
        to_0, to_1 = left @ _inverse(unit - B0), left @ _inverse(unit + B1)
        along = jax.jvp(N, (q,), (N_m @ v,))[1] - slope(q, v) @ N_m  # [N v, N e_j]
        return cls(
            start=to_0 @ (unit + B0) @ N(q0),
            end=to_1 @ (unit - B1) @ N(q1),
            G0=to_0 @ N(c0),
            G1=to_1 @ N(c1),
            bracket=(left @ along).T,
            half=h / 2,
        )

    def momenta(self, momentum: Array, impulse: Array) -> tuple[Array, Array]:
        """π⁺ and π⁻ for M v and h (Q + Ṁ v)/2."""
        impulse = impulse - self.half * self.bracket @ momentum
        sigma = (momentum - impulse @ (self.G1 - self.G0) / 2) @ _inverse((self.G0 + self.G1) / 2)
        return (sigma - impulse) @ self.start, (sigma + impulse) @ self.end


def _inverse(C: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """The inverse of a matrix near the unit matrix, or positive definite: elimination without pivots, in a kernel."""
    k = len(C)

    def eliminate(i, X):
        row = X[i] / X[i, i]
        return (X - X[:, i][:, None] * row).at[i].set(row)

    return jax.lax.fori_loop(0, k, eliminate, jnp.concatenate([C, jnp.eye(k, dtype=C.dtype)], axis=1))[:, k:]


class Iteration(NamedTuple):
    """Unknowns z, the last two changes of v, relative to the largest velocity, and the number of iterations."""

    z: Float[Array, " k"]
    change: Float[Array, ""]
    before: Float[Array, ""]
    count: Int[Array, ""]

    @property
    def ended(self) -> Bool[Array, ""]:
        """Whether only rounding is left, or the iteration fails."""
        rounding = CONVERGED * jnp.finfo(self.z.dtype).eps
        stagnates = self.succeeded & (self.change > 0.9 * self.before)
        return (self.change <= rounding) | stagnates | ~jnp.isfinite(self.change) | (self.count >= MAX_ITERATIONS)

    @property
    def succeeded(self) -> Bool[Array, ""]:
        """Whether the last change is small."""
        return self.change < ALMOST_CONVERGED[str(self.z.dtype)]


def _iterate(
    defect: Any, z: Float[Array, " k"], unit: Float[Array, " n"], size: Array
) -> tuple[Float[Array, " k"], Array]:
    """Subtract ``defect(z)`` from z until only rounding is left; 1 if that succeeded, otherwise 0.

    Changes of v count in its ``unit``, relative to the largest velocity, which is at least ``size``.
    """
    norm = lambda z: jnp.max(jnp.abs(z[: unit.size]) / unit)

    def advance(state):
        change = defect(state.z)
        z = state.z - change
        relative = norm(change) / jnp.maximum(norm(z), size)
        return Iteration(z, relative, state.change, state.count + 1)

    infinite = jnp.full((), jnp.finfo(z.dtype).max, z.dtype)
    state = Iteration(z, infinite, infinite, jnp.zeros((), np.int32))
    last = jax.lax.while_loop(lambda state: ~state.ended, advance, state)
    return last.z, last.succeeded.astype(z.dtype)  # JAX does not differentiate roots with a boolean
