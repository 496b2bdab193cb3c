"""The small correction after each step of a simulation, which keeps it on the constraints."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._batch import per_member
from .._constraint import AccelerationConstraint, Holonomic, Pfaffian
from .._solve import AbstractMethod, solve
from .._system import AbstractSystem


class Levels(eqx.Module):
    """How to solve for accelerations, and for corrections of positions and of velocities: each has rows of its own."""

    acceleration: AbstractMethod
    position: AbstractMethod
    velocity: AbstractMethod


def at_every_level(method: AbstractMethod) -> Levels:
    """The same method, whatever the rows."""
    return Levels(method, method, method)


@per_member
def keeping_rows(
    system: AbstractSystem, t: Array, q: Float[Array, " n"], v: Float[Array, " n"], method: AbstractMethod
) -> Levels:
    """``method`` with the rows that count at (t, q, v), a point on the constraints: off them, redundant rows look
    independent."""
    terms = system.passive(t, q, v)
    M = jax.lax.stop_gradient((terms.M + terms.M.T) / 2)

    def keep(A):
        return method.keeping(method.respond(M, jax.lax.stop_gradient(A)).kept)

    position = keep(jax.jacfwd(lambda q: system.position_residual(t, q))(q))
    if not all(isinstance(c, Holonomic) for c in system.held):
        velocity = keep(jax.jacfwd(lambda v: system.velocity_residual(t, q, v))(v))
        return Levels(keep(terms.A), position, velocity)
    if system.control is not None:
        return Levels(keep(terms.A), position, position)
    return at_every_level(position)  # A = ∂φ/∂q = ∂φ̇/∂v


@per_member
def onto_constraints(
    system: AbstractSystem, t: Array, q: Float[Array, " n"], v: Float[Array, " n"], levels: Levels
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """q ← q − K φ and v ← v − K (φ̇, ψ), K = M⁻¹Aᵀ(A M⁻¹Aᵀ)⁺, until rounding is all that is left.

    Newton's method in the metric of M: the order of the integrator is kept (Hairer, Lubich & Wanner, Geometric
    Numerical Integration, IV.4). After a short step one K serves two corrections of each, which take an error h⁵ to
    h¹⁵; where the first leaves more than that allows, K is made anew.
    """
    if not system.position_residual(t, q).size:
        return q, _velocity(system, t, q, v, levels)

    def residual(q):
        return system.position_residual(t, q)

    def linearised(q):
        A = jax.jacfwd(residual)(q)
        M = _mass(system, t, q, v)
        return M, A, levels.position.respond(*jax.lax.stop_gradient((M, A)))

    def answer(known, missed):
        M, A, response = known
        return solve(M, A, jnp.zeros_like(q), -missed, response)

    def newton(found, first):
        q, missed, _ = found

        def anew():
            known = linearised(q)
            nearer = q + answer(known, missed)
            return nearer, residual(nearer), known

        far = jnp.max(jnp.abs(missed)) > jnp.finfo(q.dtype).eps ** 0.625 * (1 + jnp.max(jnp.abs(q)))
        return jax.lax.cond(first | far, anew, lambda: found), None

    unknown = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), eqx.filter_eval_shape(linearised, q))
    start = q, residual(q), unknown
    (q, missed, known), _ = jax.lax.scan(newton, start, jnp.array([True, False]))
    q = q + answer(known, missed)
    if not all(isinstance(c, Holonomic | AccelerationConstraint) for c in system.held):
        return q, _velocity(system, t, q, v, levels)
    for _ in range(2):
        v = v + answer(known, system.velocity_residual(t, q, v))
    return q, v


def correct(
    residual: Callable, x: Float[Array, " n"], M: Float[Array, "n n"], method: AbstractMethod
) -> Float[Array, " n"]:
    """One Newton step x − K residual(x); exact where the residual is linear."""
    missed = residual(x)
    return x if missed.size == 0 else x + _answer(residual, x, M, method)(missed)


def linear_in_velocity(system: AbstractSystem) -> bool:
    """Whether one Newton step on the velocities is exact."""
    return all(isinstance(c, Holonomic | Pfaffian | AccelerationConstraint) for c in system.held)


def _answer(residual, x, M, method):
    A = jax.jacfwd(residual)(x)
    response = method.respond(*jax.lax.stop_gradient((M, A)))
    return lambda missed: solve(M, A, jnp.zeros_like(x), -missed, response)


def _velocity(system, t, q, v, levels):
    for _ in range(1 if linear_in_velocity(system) else 2):
        v = correct(lambda v: system.velocity_residual(t, q, v), v, _mass(system, t, q, v), levels.velocity)
    return v


def _mass(system, t, q, v):
    M = system.dynamics.terms(t, q, v)[0]
    return (M + M.T) / 2
