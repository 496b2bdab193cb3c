"""Complementarity problems of contact forces, in scaled units (W has the diagonal 1, or 0).

    u = W x + c,    0 ≤ u_n ⊥ x_n ≥ 0,    ‖x_t‖ ≤ r = μ x_n + limit,    x_t = −r u_t / ‖u_t‖ where u_t ≠ 0

The solution is the fixed point of x_n = max(0, x_n − u_n), x_t = projection of x_t − u_t onto the ball of radius r
(Alart & Curnier, Comput. Methods Appl. Mech. Eng. 92 (1991) 353). Projected gradient steps find which rows act,
and Newton's method on the fixed-point equation then converges in a few iterations. Derivatives are those of the
equation, by the implicit function theorem.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .rows import Layout

MAX_ROUNDS = 300
"""Largest number of rounds."""

GRADIENT_STEPS, NEWTON_STEPS = 10, 3
"""Iterations per round. The gradient steps converge by themselves, if slowly; Newton's method starts from them in each
round, and its result is discarded unless it solves the equations."""

TOLERANCE = 64
"""Largest residual, in units in the last place of the largest entry of c."""

REGULARISATION, REFINEMENTS = 8, 4
"""Forces of redundant contacts are not unique. Equations are solved with this multiple of √eps added to the diagonal,
and refined: the error decreases by this factor each time, and the forces are those of least norm."""

MAX_UNROLLED = 16
"""Largest number of equations that are solved in elementary arithmetic, as kernels need; LAPACK solves larger ones."""


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
    """The forces x, without derivatives, and whether they satisfy the equations to rounding."""
    W, c, cone = jax.lax.stop_gradient((W, c, cone))
    largest = jnp.max(jnp.abs(c), initial=0) + jnp.max(cone.limit, initial=0)
    allowed = TOLERANCE * jnp.finfo(c.dtype).eps * largest
    weight = 1 / jnp.maximum(jnp.sum(jnp.abs(W), axis=1), 1)
    normal, tangential = layout.split(weight)
    weight = layout.join(normal, jnp.broadcast_to(jnp.min(tangential, axis=1, keepdims=True), tangential.shape))

    def defect(x):
        return x - _projected(x, W, c, 1.0, cone, layout)

    size = lambda x: jnp.max(jnp.abs(defect(x)), initial=0)

    def round_of(state):
        y, *_, rounds = state
        y = jax.lax.fori_loop(0, GRADIENT_STEPS, lambda _, y: _projected(y, W, c, weight, cone, layout), y)
        newton = lambda x, _: (x - solve_regularised(jax.jacfwd(defect)(x), defect(x)), None)
        x, _ = jax.lax.scan(newton, y, length=NEWTON_STEPS)
        better = size(x) < size(y)
        x = jnp.where(better, x, y)
        return y, x, size(x), rounds + 1

    def unsolved(state):
        *_, error, rounds = state
        return (error > allowed) & (rounds < MAX_ROUNDS)

    zeros = jnp.zeros_like(c)
    start = zeros, zeros, jnp.asarray(jnp.inf, c.dtype), jnp.zeros((), jnp.int32)
    _, x, error, _ = jax.lax.while_loop(unsolved, round_of, start)
    return x, error <= 1e4 * allowed


def with_derivatives(
    x: Float[Array, " rows"], W: Float[Array, "rows rows"], c: Float[Array, " rows"], cone: Cone, layout: Layout
) -> Float[Array, " rows"]:
    """The solution x with its derivatives by W, c and the cone: one Newton iteration of value zero."""
    slope = jax.jacfwd(lambda x: x - _projected(x, *jax.lax.stop_gradient((W, c, 1.0, cone)), layout))(x)
    residual = x - _projected(x, W, c, 1.0, cone, layout)
    return x - solve_regularised(slope, residual - jax.lax.stop_gradient(residual))


def _projected(x, W, c, weight, cone, layout):
    """The right-hand side of the fixed-point equation, for gradient steps of this ``weight``."""
    normal, tangential = layout.split(x - weight * (W @ x + c))
    normal = jnp.where(cone.active, jnp.maximum(normal, 0), 0)
    return layout.join(normal, _friction(tangential, cone.radius(layout, normal), cone.direction))


def _friction(trial, radius, direction):
    """Project ``trial`` onto the ball, or the known force if the direction of slip is known."""
    length, radius = norm(trial), radius[:, None]
    inside = (length <= radius[:, 0])[:, None]
    on_ball = jnp.where(inside, trial, radius * unit(trial))
    known = jnp.any(direction != 0, axis=-1)[:, None]
    return jnp.where(known, -radius * direction, on_ball)


def solve_regularised(G: Float[Array, "m m"], rhs: Float[Array, " m"]) -> Float[Array, " m"]:
    """Solve G x = rhs, where G may be singular and the equations are consistent."""
    m = rhs.size
    if not m:
        return rhs
    regular = G + REGULARISATION * jnp.finfo(rhs.dtype).eps ** 0.5 * jnp.eye(m, dtype=rhs.dtype)
    solve = _by_elimination(regular) if m <= MAX_UNROLLED else _by_lapack(regular)
    refine = lambda x, _: (x + solve(rhs - G @ x), None)
    return jax.lax.scan(refine, jnp.zeros_like(rhs), length=REFINEMENTS)[0]


def _by_lapack(G):
    factors = jax.scipy.linalg.lu_factor(G)
    return lambda rhs: jax.scipy.linalg.lu_solve(factors, rhs)


def _by_elimination(G):
    """Solve by LU factors without pivoting: rows of G that do not act are unit rows, the others nearly definite."""
    m = G.shape[0]
    for j in range(m - 1):
        factor = G[j + 1 :, j] / G[j, j]
        rest = G[j + 1 :, j + 1 :] - factor[:, None] * G[j, j + 1 :]
        G = G.at[j + 1 :, j].set(factor).at[j + 1 :, j + 1 :].set(rest)

    def solve(rhs):
        y = list(rhs)
        for i in range(m):
            for j in range(i):
                y[i] = y[i] - G[i, j] * y[j]
        for i in reversed(range(m)):
            for j in range(i + 1, m):
                y[i] = y[i] - G[i, j] * y[j]
            y[i] = y[i] / G[i, i]
        return jnp.stack(y)

    return solve
