"""Drift correction: project the state onto the constraints after each integration step."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..._kernel import assumption_failed, per_member, rare_cond
from ..._solve import AbstractMethod, FastPath, solve
from ..._system import AbstractSystem, mass_of, shifted
from .scaling import Scale


class MethodPerLevel(NamedTuple):
    """Linear solvers for accelerations and for corrections of positions and of velocities.

    Each level may have its own set of independent rows.
    """

    acceleration: AbstractMethod
    position: AbstractMethod
    velocity: AbstractMethod

    @property
    def same_rows_at_every_level(self) -> bool:
        """Whether all levels use the same static set of rows."""
        methods = self.acceleration, self.position, self.velocity
        return len({getattr(method, "kept", None) for method in methods}) == 1

    @property
    def is_sparse(self) -> bool:
        """Whether the solver for accelerations is sparse: it loops over a band instead of unrolling."""
        return self.acceleration.is_sparse

    @property
    def has_fallback(self) -> bool:
        """Always true: if this method fails for a motion, the motion is computed again by another one."""
        return True

    @property
    def drops_rows(self) -> bool:
        """Whether a level may drop rows as redundant, which is valid only as long as they stay redundant."""
        methods = self.acceleration, self.position, self.velocity
        return any(method.drops_rows for method in methods if isinstance(method, FastPath))


class CorrectionResult(NamedTuple):
    """Result of a drift correction.

    Attributes
    ----------
    q, v
        The corrected state (nq,), (n,).
    off
        Whether the state is still off the constraints.
    needs_fallback
        Whether the method was not applicable at some point.
    moved
        Change of q (nq,), 0 where the residual before was only rounding. Rounding, divided by a row that has nearly
        vanished, may move q far, which says nothing about the step.
    independence
        Independence of the rows, small near a singular pose: see ``AbstractFactorisation.independence``.
    """

    q: Float[Array, " nq"]
    v: Float[Array, " n"]
    off: Bool[Array, ""]
    needs_fallback: Bool[Array, ""]
    moved: Float[Array, " nq"]
    independence: Float[Array, ""]


def assumption_failed_for(method: AbstractMethod) -> Bool[Array, ""]:
    """Whether an assumption failed that the fast path does not check itself.

    Its kernel leaves out branches that are taken before the method is called.
    """
    return assumption_failed() if isinstance(method, FastPath) and method.assumes else jnp.asarray(False)


def same_at_every_level(method: AbstractMethod) -> MethodPerLevel:
    """The same method for all three levels, whatever their rows."""
    return MethodPerLevel(method, method, method)


@per_member
def methods_at(
    system: AbstractSystem, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], method: AbstractMethod
) -> MethodPerLevel:
    """``method`` restricted to the rows that are independent at (t, q, v), a point on the constraints.

    Off the constraints, redundant rows look independent.
    """
    if not method.finds_rank:
        return same_at_every_level(method)
    terms = system.passive(t, q, v)
    M = jax.lax.stop_gradient((terms.M + terms.M.T) / 2)

    def active(A):
        return method.active(M, jax.lax.stop_gradient(A))

    A = system.position_slope(t, q, v)
    position = active(A)
    if not system.velocity_follows:
        velocity = active(system.velocity_slope(t, q, v))
        return MethodPerLevel(active(terms.A), position, velocity)
    if system.control is not None or terms.A.shape[0] != A.shape[0]:
        return MethodPerLevel(active(terms.A), position, position)
    return same_at_every_level(position)  # A = ∂φ/∂q = ∂φ̇/∂v


@per_member
def correct_drift(
    system: AbstractSystem,
    t: Array,
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
    levels: MethodPerLevel,
    scale: Scale,
) -> CorrectionResult:
    """Correct q ← q − K φ and v ← v − K (φ̇, ψ), K = M⁻¹Aᵀ(A M⁻¹Aᵀ)⁺, until only rounding is left.

    This is Newton's method in the metric of M: it preserves the order of the integrator (Hairer, Lubich & Wanner,
    Geometric Numerical Integration, IV.4). After a short step one K is used for two corrections each of q and v, which
    reduce an error h⁵ to h¹⁵. If the first correction leaves a larger residual than that allows, K is recomputed.
    """
    false, linearised = jnp.asarray(False), None
    needs_fallback, moved = false, jnp.zeros_like(q)
    if system.of_level("position"):
        q, linearised, moved = _position(system, t, q, v, levels.position, scale)
        needs_fallback = linearised[2].needs_fallback
    elif system.velocity_follows:
        return CorrectionResult(q, v, false, false, moved, jnp.asarray(jnp.inf, q.dtype))
    velocity = lambda v: system.velocity_residual(t, q, v)
    if not system.velocity_follows:
        linearised = _linearised(system.velocity_slope(t, q, v), mass_of(system, t, q, v), levels.velocity)
        needs_fallback = needs_fallback | linearised[2].needs_fallback
    v, _ = jax.lax.scan(lambda v, _: (v + _correction(linearised, velocity(v)), None), v, length=2)
    off = scale.relative_violation(system.violation(t, q, v)) > scale.max_violation(q)
    M, A, response = linearised
    needs_fallback = needs_fallback | assumption_failed_for(levels.acceleration)
    return CorrectionResult(q, v, off, needs_fallback, moved, response.independence(M, A))


def _position(system, t, q, v, method, scale):
    """q with φ = 0; the linearisation used last; and the change of q, see ``CorrectionResult``.

    A loop, so that everything is compiled once.
    """
    residual = lambda q: system.position_residual(t, q)
    linearised = lambda q: _linearised(system.position_slope(t, q, v), mass_of(system, t, q, v), method)

    def newton(state, first):
        q, last = state
        phi = residual(q)
        is_far = jnp.max(jnp.abs(phi) / scale.rows[: phi.size]) > jnp.finfo(q.dtype).eps ** 0.625
        last = rare_cond(first | is_far, lambda: linearised(q), lambda: last)
        return (shifted(system.kinematic_map, q, _correction(last, phi)), last), scale.rounding_only(phi)

    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), eqx.filter_eval_shape(linearised, q))
    (q_on, last), rounding_only = jax.lax.scan(newton, (q, zeros), jnp.array([True, False]))
    return q_on, last, jnp.where(rounding_only[0], 0, q_on - q)


def _linearised(A, M, method):
    return M, A, method.factorise(*jax.lax.stop_gradient((M, A)))


def _correction(linearised, residual):
    M, A, response = linearised
    return solve(M, A, jnp.zeros_like(A[0]), -residual, response)
