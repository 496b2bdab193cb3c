"""Linearisation of the constrained motion on the tangent space of its constraints.

**Deviations.** A neighbouring motion has the deviation δq = N(q) ξ, δv from the motion (q, v) at the same time, where
q̇ = N(q) v. With the constrained acceleration v̇ = a(t, q, v),

    ξ̇ = δv + N⁺ (D(N v)[N ξ] − D(N ξ)[N v]),      δv̇ = a_q N ξ + a_v δv,

where D f[w] is the derivative of a function of q along w. The bracket is 0 for v = q̇. For a body that turns it is ξ ×
v. Then the equations are those of the frame that turns with the body.

**Tangent space.** Both motions satisfy the constraints φ(t, q) = 0, and r(t, q, v) = 0, which are φ̇ = 0 and ψ = 0:

    G ξ = 0,      G_r ξ + A δv = 0,      G = φ_q N,      G_r = r_q N,      A = r_v.

The deviation moves in this space, since the acceleration satisfies A v̇ = b. An equation in all coordinates would have
additional eigenvalues, those of deviations that violate the constraints.

**States.** The states x are some of the entries of ξ and δv, as many as the space has dimensions, and independent in
it. W selects them, x = W (ξ, δv), and Z is the basis of the space with W Z = I. The entries of ξ that are not states
follow from the states by the rows of G; those of δv follow by the rows of G_r and A. With the Jacobian J of (ξ̇, δv̇),

    ẋ = W J Z x.

This is exact along any motion, since W is constant, and Z (t) gives the deviation at each time. There is no term Ż.

**Derivatives.** W is constant also if a parameter changes, so that the entries of x do not change their meaning. Z is
the solution of linear equations with a unique solution: its derivative is exact, to any order, where the ranks are
constant. An orthonormal basis, from a singular value decomposition or from the eigenvectors of a projector, has no
derivative; only its space has one. At constant rank the eigenvalues of W J Z are the same for any W. If W changes from
one member of a batch to the next, the matrices change by a similarity transformation, and nothing else.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._equation import motion_by
from .._errors import InputError
from .._kernel import without_kernels
from .._kinematic_map import columns, count_states, rate, velocities_of
from .._run.compile import jit_unoptimised
from .._solve import AbstractMethod, rounding
from .._system import AbstractSystem, kinematic_map_of, shifted
from .._terms import Terms
from .states import States


class Tangent(NamedTuple):
    """A system linearised at a state; k states, p inputs, o outputs.

    Attributes
    ----------
    A, B, C
        Matrices (k, k), (k, p) and (o, k) of ẋ = A x + B u, y = C x.
    displacement, velocity
        Z: the displacement ξ (n, k) and the change of velocities (n, k) for a unit of each state.
    acceleration
        v̇ (n,) at the state.
    terms
        M, Q, A, b at the state.
    needs_fallback
        Whether the method is not applicable, so that the result may be wrong.
    """

    A: Float[Array, "k k"]
    B: Float[Array, "k p"]
    C: Float[Array, "o k"]
    displacement: Float[Array, "n k"]
    velocity: Float[Array, "n k"]
    acceleration: Float[Array, " n"]
    terms: Terms
    needs_fallback: Bool[Array, ""]


def tangent(
    system: AbstractSystem,
    t: Array,
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
    states: States,
    inputs: Callable,
    outputs: Callable,
    method: AbstractMethod,
) -> Tangent:
    """Linearise ``system`` at a state on its constraints.

    ``inputs(t, q, v)`` returns the generalised forces (n, p) of unit inputs, and ``outputs(t, q, v)`` returns y (o,).
    The result is NaN if the ``states`` are not independent, or are too many. Raises ``InputError`` if they are fewer
    than the numbers of rows allow.
    """
    forces = inputs(t, q, v)
    beside = lambda xi, delta: (t, shifted(kinematic_map_of(system), q, xi), v + delta)

    of_q, of_v = np.array(states.of_q, int), np.array(states.of_v, int)
    p, k = of_q.size, of_q.size + of_v.size
    displacement, velocity = basis(system, t, q, v, states)

    def evaluate(x_and_u):
        x, u = x_and_u[:k], x_and_u[k:]
        state = beside(displacement @ x, velocity @ x)
        motion = _motion(system, *state, forces @ u, method)
        return jnp.concatenate([motion[0], outputs(*state)]), motion

    J, motion = jax.jacfwd(evaluate, has_aux=True)(jnp.zeros(k + forces.shape[1], v.dtype))
    displacement_rate = velocity + _turning(system, q, v) @ displacement
    A = jnp.concatenate([displacement_rate[of_q], J[of_v, :k]])
    B = jnp.concatenate([jnp.zeros((p, forces.shape[1]), v.dtype), J[of_v, k:]])
    return Tangent(A, B, J[v.size :, :k], displacement, velocity, *motion)


def basis(
    system: AbstractSystem, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], states: States
) -> tuple[Float[Array, "n k"], Float[Array, "n k"]]:
    """Z: displacements and changes of velocities for a unit of each state; NaN or an error as in ``tangent``."""
    of_q, of_v, zero = np.array(states.of_q, int), np.array(states.of_v, int), jnp.zeros_like(v)
    p, k = of_q.size, of_q.size + of_v.size
    moving = v.size - count_states(kinematic_map_of(system))
    slope = system.position_slope(t, q, v)[:, :moving]
    displacement = _completed(slope, of_q, jnp.eye(p, k, dtype=v.dtype), 0.0)
    displacement = jnp.pad(displacement, ((0, v.size - moving), (0, 0)))
    beside = lambda xi: (t, shifted(kinematic_map_of(system), q, xi), v)
    by_displacement = jax.jacfwd(lambda xi: system.velocity_residual(*beside(xi)))(zero) @ displacement
    free = jnp.eye(k - p, k, p, dtype=v.dtype)
    return displacement, _completed(system.velocity_slope(t, q, v), of_v, free, -by_displacement)


compiled_tangent = jit_unoptimised(tangent)
compiled_basis = jit_unoptimised(basis)


def _motion(system, t, q, v, force, method):
    """v̇ with an additional ``force``; the terms of the equation of motion; whether the method needs a fallback."""
    terms = system(t, q, v)
    terms = Terms(terms.M, terms.Q + force, terms.A, terms.b, terms.c)
    motion, needs_fallback = without_kernels(motion_by)(method, terms)
    return motion.acceleration, terms, needs_fallback


def _turning(system, q, v):
    """The matrix (n, n) of ξ ↦ N⁺ (D(N v)[N ξ] − D(N ξ)[N v])."""
    kinematic_map = kinematic_map_of(system)
    if kinematic_map is None:
        return jnp.zeros((v.size, v.size), v.dtype)
    N = columns(kinematic_map, q, v)
    along = lambda x, y: jax.jvp(lambda q: rate(kinematic_map, q, x), (q,), (rate(kinematic_map, q, y),))[1]
    bracket = jax.vmap(lambda xi: along(v, xi) - along(xi, v), out_axes=1)(jnp.eye(v.size, dtype=v.dtype))
    return velocities_of(kinematic_map, N, bracket)


def _completed(A, chosen, free, rhs):
    """The Y (n, k) with the rows ``free`` (p, k) at the indices ``chosen`` and A Y = ``rhs``; NaN if none exists.

    The rows of A (m, n) may be redundant. The columns that are not chosen have full rank, so that the QR factorisation
    of these has a derivative.
    """
    m, n = A.shape
    others = np.setdiff1d(np.arange(n), chosen)
    if m < others.size:
        raise InputError(
            f"states must determine all {n} displacements and velocities: {chosen.size} are given, and for the other "
            f"{others.size} there are only {m} equations. Name more states"
        )
    Y = jnp.zeros((n, free.shape[1]), A.dtype).at[chosen].set(free)
    if not others.size:
        return _valid(A, Y, rhs)
    orthonormal, R = jnp.linalg.qr(A[:, others])
    missing = rhs - A[:, chosen] @ free
    Y = Y.at[others].set(jax.scipy.linalg.solve_triangular(R, orthonormal.T @ missing))
    length = jnp.sqrt(jnp.sum(A[:, others] ** 2, axis=0))
    is_determined = jnp.all(jnp.abs(jnp.diagonal(R)) > jnp.finfo(A.dtype).eps ** 0.5 * length)
    return jnp.where(is_determined, _valid(A, Y, rhs), jnp.nan)


def _valid(A, Y, rhs):
    """Y, or NaN unless A Y = ``rhs`` except for rounding."""
    terms = jnp.abs(A) @ jnp.abs(Y) + jnp.abs(rhs)
    limit = jnp.finfo(A.dtype).eps ** 0.5 * terms + rounding(A.dtype) * jnp.max(terms, initial=0)
    return jnp.where(jnp.all(jnp.abs(A @ Y - rhs) <= limit), Y, jnp.nan)
