"""Complementarity problems of contact forces, in scaled units (W has the diagonal 1, or 0).

    u = W x + c,    0 ≤ u_n ⊥ x_n ≥ 0,    ‖x_t‖ ≤ r = μ x_n + limit,    x_t = −r u_t / ‖u_t‖ where u_t ≠ 0

The solution is the fixed point of x_n = max(0, x_n − u_n), x_t = projection of x_t − u_t onto the ball of radius r
(Alart & Curnier, Comput. Methods Appl. Mech. Eng. 92 (1991) 353). Gauss–Seidel sweeps find which rows act, Newton's
method on the fixed-point equation then converges in a few iterations. Derivatives are those of the equation, by the
implicit function theorem.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .rows import Layout

MAX_ROUNDS = 60
"""Largest number of rounds of sweeps and one Newton iteration."""

SWEEPS = 6
"""Gauss–Seidel sweeps per round."""

TOLERANCE = 64
"""Largest residual, in units in the last place of the largest entry of c."""

REGULARISATION, REFINEMENTS = 1e-7, 3
"""Forces of redundant contacts are not unique. Equations are solved with this multiple of the identity added, and
refined: the error decreases by this factor each time, and the forces are those of least norm."""


class Cone(NamedTuple):
    """The allowed forces.

    Attributes
    ----------
    active
        Whether each gap may have a force (gaps,).
    friction, limit
        The radius of each friction force is ``friction`` times the contact force plus ``limit`` (groups,).
    direction
        Unit vector of the slip where it is known, 0 where the friction force is to be determined (groups, dim).
    """

    active: Bool[Array, " gaps"]
    friction: Float[Array, " groups"]
    limit: Float[Array, " groups"]
    direction: Float[Array, "groups dim"]

    def radius(self, layout: Layout, normal: Float[Array, " gaps"]) -> Float[Array, " groups"]:
        """Largest friction forces."""
        return self.friction * layout.at_normal(normal) + self.limit


def norm(x: Float[Array, "groups dim"]) -> Float[Array, " groups"]:
    """Length of each row; its derivative at zero is zero."""
    square = jnp.sum(x**2, axis=-1)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)


def unit(x: Float[Array, "groups dim"]) -> Float[Array, "groups dim"]:
    """Each row divided by its length; zero rows stay zero."""
    length = norm(x)[..., None]
    return jnp.where(length > 0, x / jnp.where(length > 0, length, 1), 0)


def solve_complementarity(
    W: Float[Array, "rows rows"], c: Float[Array, " rows"], cone: Cone, layout: Layout
) -> tuple[Float[Array, " rows"], Bool[Array, ""]]:
    """The forces x, differentiable, and whether they satisfy the equations to rounding."""
    W_fixed, c_fixed, cone_fixed = jax.lax.stop_gradient((W, c, cone))
    largest = jnp.max(jnp.abs(c_fixed), initial=0) + jnp.max(cone_fixed.limit, initial=0)
    allowed = TOLERANCE * jnp.finfo(c.dtype).eps * largest

    def defect(x):
        return x - _projected(x, W_fixed, c_fixed, cone_fixed, layout)

    size = lambda x: jnp.max(jnp.abs(defect(x)), initial=0)

    def round_of(state):
        x, _, rounds = state
        x = jax.lax.fori_loop(0, SWEEPS, lambda _, x: _sweep(x, W_fixed, c_fixed, cone_fixed, layout), x)
        newton = x - solve_regularised(jax.jacfwd(defect)(x), defect(x))
        x_size, newton_size = size(x), size(newton)
        better = newton_size < x_size
        return jnp.where(better, newton, x), jnp.where(better, newton_size, x_size), rounds + 1

    def unsolved(state):
        _, error, rounds = state
        return (error > allowed) & (rounds < MAX_ROUNDS)

    start = jnp.zeros_like(c_fixed), jnp.asarray(jnp.inf, c.dtype), jnp.zeros((), jnp.int32)
    x, error, _ = jax.lax.while_loop(unsolved, round_of, start)
    slope = jax.jacfwd(defect)(x)
    residual = x - _projected(x, W, c, cone, layout)  # zero, with the derivatives of the equation
    correction = residual - jax.lax.stop_gradient(residual)
    x = x - solve_regularised(slope, correction)
    return x, jax.lax.stop_gradient(error <= 1e4 * allowed)


def _projected(x, W, c, cone, layout):
    """The right-hand side of the fixed-point equation."""
    normal, tangential = layout.split(x - W @ x - c)
    normal = jnp.where(cone.active, jnp.maximum(normal, 0), 0)
    return layout.join(normal, _friction(tangential, cone.radius(layout, normal), cone.direction))


def _friction(trial, radius, direction):
    """Project ``trial`` onto the ball, or the known force if the direction of slip is known."""
    length, radius = norm(trial), radius[:, None]
    inside = (length <= radius[:, 0])[:, None]
    on_ball = jnp.where(inside, trial, radius * unit(trial))
    known = jnp.any(direction != 0, axis=-1)[:, None]
    return jnp.where(known, -radius * direction, on_ball)


def _sweep(x, W, c, cone, layout):
    """One Gauss–Seidel sweep over all contacts. The friction force follows its contact force."""
    diagonal = jnp.where(jnp.diagonal(W) > 0, jnp.diagonal(W), 1)

    def update_normal(i, x):
        value = jnp.where(cone.active[i], jnp.maximum(x[i] - (W[i] @ x + c[i]) / diagonal[i], 0), 0)
        return x.at[i].set(value)

    def update_group(i, x):
        rows = layout.gaps + layout.dim * i + jnp.arange(layout.dim)
        trial = x[rows] - (W[rows] @ x + c[rows]) / jnp.max(diagonal[rows])
        radius = cone.radius(layout, x[: layout.gaps])[i]
        return x.at[rows].set(_friction(trial[None], radius[None], cone.direction[i][None])[0])

    x = jax.lax.fori_loop(0, layout.gaps, update_normal, x) if layout.gaps else x
    return jax.lax.fori_loop(0, layout.groups, update_group, x) if layout.groups else x


def solve_regularised(G: Float[Array, "m m"], rhs: Float[Array, " m"]) -> Float[Array, " m"]:
    """Solve G x = rhs, where G may be singular and the equations are consistent."""
    if not rhs.size:
        return rhs
    inverse = _inverse(G + REGULARISATION * jnp.eye(rhs.size, dtype=rhs.dtype))
    x = inverse @ rhs
    for _ in range(REFINEMENTS):
        x = x + inverse @ (rhs - G @ x)
    return x


def _inverse(G):
    """Inverse by Gauss–Jordan elimination with partial pivoting, in elementary arithmetic for kernels."""
    m = G.shape[0]
    index = jnp.arange(m)

    def eliminate(j, X):
        pivot = jnp.argmax(jnp.where(index >= j, jnp.abs(X[:, j]), -1.0))
        row_j, row_p = X[j], X[pivot]
        X = X.at[pivot].set(row_j)
        row = row_p / row_p[j]
        X = X - jnp.where(index == j, 0, X[:, j])[:, None] * row
        return X.at[j].set(row)

    X = jax.lax.fori_loop(0, m, eliminate, jnp.concatenate([G, jnp.eye(m, dtype=G.dtype)], axis=1))
    return X[:, m:]
