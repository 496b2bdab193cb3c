"""The small correction after each step of a simulation, which keeps it on the constraints."""

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
    """How to solve for accelerations, and for corrections of positions and of velocities: each has rows of its own."""

    acceleration: AbstractMethod
    position: AbstractMethod
    velocity: AbstractMethod

    @property
    def uniform(self) -> bool:
        """Whether the same rows count at all of them, as far as that is part of the program."""
        methods = self.acceleration, self.position, self.velocity
        return len({getattr(method, "kept", None) for method in methods}) == 1

    @property
    def all_count(self) -> bool:
        """Whether no row is left out as part of the program."""
        methods = self.acceleration, self.position, self.velocity
        return all(getattr(method, "kept", None) is None for method in methods)

    @property
    def is_sparse(self) -> bool:
        """Whether accelerations are found in loops."""
        return self.acceleration.is_sparse

    @property
    def has_fallback(self) -> bool:
        """Whether what cannot be done is left to another method: for one in another attempt, always."""
        return True

    @property
    def drops_rows(self) -> bool:
        """Whether there may be rows that are known not to count, and so only kept as long as that is true."""
        methods = self.acceleration, self.position, self.velocity
        return any(method.drops_rows for method in methods if isinstance(method, FastPath))


class CorrectionResult(NamedTuple):
    """q and v on the constraints; whether they are ``off`` them all the same; whether anything was beyond what the
    method can do; how far q was ``moved``, 0 where the residual before was only rounding: divided by a row that has
    nearly vanished, rounding may move q far, and says nothing about the step that led there."""

    q: Float[Array, " nq"]
    v: Float[Array, " n"]
    off: Bool[Array, ""]
    needs_fallback: Bool[Array, ""]
    moved: Float[Array, " nq"]


def assumption_failed_for(method: AbstractMethod) -> Bool[Array, ""]:
    """What the usual method does not see for itself: choices before this that its kernel leaves out."""
    return assumption_failed() if isinstance(method, FastPath) and method.assumes else jnp.asarray(False)


def same_at_every_level(method: AbstractMethod) -> MethodPerLevel:
    """The same method, whatever the rows."""
    return MethodPerLevel(method, method, method)


@per_member
def methods_at(
    system: AbstractSystem, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], method: AbstractMethod
) -> MethodPerLevel:
    """``method`` with the rows that count at (t, q, v), a point on the constraints: off them, redundant rows look
    independent."""
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
    """q ← q − K φ and v ← v − K (φ̇, ψ), K = M⁻¹Aᵀ(A M⁻¹Aᵀ)⁺, until rounding is all that is left.

    Newton's method in the metric of M: the order of the integrator is kept (Hairer, Lubich & Wanner, Geometric
    Numerical Integration, IV.4). After a short step one K serves two corrections of each, which take an error h⁵ to
    h¹⁵; where the first leaves more than that allows, K is made anew.
    """
    none, known = jnp.asarray(False), None
    needs_fallback, moved = none, jnp.zeros_like(q)
    if system.of_level("position"):
        q, known, moved = _position(system, t, q, v, levels.position, scale)
        needs_fallback = known[2].needs_fallback
    elif system.velocity_follows:
        return CorrectionResult(q, v, none, none, moved)
    velocity = lambda v: system.velocity_residual(t, q, v)
    if not system.velocity_follows:
        known = _linearised(system.velocity_slope(t, q, v), mass_of(system, t, q, v), levels.velocity)
        needs_fallback = needs_fallback | known[2].needs_fallback
    v, _ = jax.lax.scan(lambda v, _: (v + _answer(known, velocity(v)), None), v, length=2)
    off = scale.missed(system.violation(t, q, v)) > scale.kept(q)
    return CorrectionResult(q, v, off, needs_fallback | assumption_failed_for(levels.acceleration), moved)


def _position(system, t, q, v, method, scale):
    """q on φ = 0; the K with which it came there; and how far it moved, see ``CorrectionResult``: one copy of everything, in
    a loop."""
    residual = lambda q: system.position_residual(t, q)
    linearised = lambda q: _linearised(system.position_slope(t, q, v), mass_of(system, t, q, v), method)

    def newton(found, first):
        q, known = found
        missed = residual(q)
        far = jnp.max(jnp.abs(missed) / scale.rows[: missed.size]) > jnp.finfo(q.dtype).eps ** 0.625
        known = rare_cond(first | far, lambda: linearised(q), lambda: known)
        return (shifted(system.kinematic_map, q, _answer(known, missed)), known), scale.rounding_only(missed)

    unknown = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), eqx.filter_eval_shape(linearised, q))
    (on, known), rounding_only = jax.lax.scan(newton, (q, unknown), jnp.array([True, False]))
    return on, known, jnp.where(rounding_only[0], 0, on - q)


def _linearised(A, M, method):
    return M, A, method.factorise(*jax.lax.stop_gradient((M, A)))


def _answer(known, missed):
    M, A, response = known
    return solve(M, A, jnp.zeros_like(A[0]), -missed, response)
