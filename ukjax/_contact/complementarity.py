"""Complementarity problems of contact forces, in scaled units (W has the diagonal 1, or 0).

    u = W x + c,    0 ≤ u_n ⊥ x_n ≥ 0,    ‖x_t‖ ≤ r = μ x_n + limit,    x_t = −r u_t / ‖u_t‖ where u_t ≠ 0

For any ρ > 0 the solution is the fixed point of x_n = max(0, x_n − ρ u_n), x_t = projection of x_t − ρ u_t onto the
ball of radius r (Alart & Curnier, Comput. Methods Appl. Mech. Eng. 92 (1991) 353). Projected Gauss–Seidel sweeps (Jean,
ibid. 177 (1999) 235) find which rows act. Regularised Newton steps on the fixed-point equation then converge in a few
iterations, also where W is singular and the forces are not unique. Derivatives are those of the equation, by the
implicit function theorem.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .rows import Layout

MAX_ROUNDS = 300
"""Largest number of rounds."""

SWEEPS, MAX_NEWTON_STEPS, PROGRESS = 8, 30, 0.8
"""Iterations per round. Sweeps converge without Newton steps, but slowly. Newton steps start from the result of the
sweeps. They end when a step does not reduce the residual to this share. Where friction is at rest and its force is the
largest allowed, each step only halves the residual."""

CYCLE = ((10, 1.5), (100, 1.8), (1, 1.0))
"""ρ of the Newton steps and relaxation of the sweeps of a round. A local minimum of the error for one ρ is not one for
another ρ; sweeps without over-relaxation do not diverge."""

DIVERGES = 8
"""Relative error above which sweeps start again from the best forces."""

TOLERANCE, ENOUGH = 1024, 64e4
"""Errors, in units in the last place of the largest entry of c: iterations end below the first one, and below the
second one if they make no more progress."""

REGULARISATION, REFINEMENTS = 8, 4
"""Forces of redundant contacts are not unique. Equations are solved with this multiple of √eps added to the diagonal,
and refined: the error decreases by this factor each time, and the forces are those of least norm."""

NEWTON_REFINEMENTS = 2
"""Refinements of a Newton step."""

MAX_UNROLLED = 32
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
    W: Float[Array, "rows rows"],
    c: Float[Array, " rows"],
    cone: Cone,
    layout: Layout,
    guess: Float[Array, " rows"] | None = None,
) -> tuple[Float[Array, " rows"], Float[Array, ""]]:
    """The best forces x of the iterations, without derivatives, and the largest residual of their equations.

    The residual is relative to the largest entry of c and of the limits. See ``is_exact``. Iterations start from
    ``guess``, or from zero if its residual is smaller.
    """
    W, c, cone, guess = jax.lax.stop_gradient((W, c, cone, guess))
    largest = jnp.max(jnp.abs(c), initial=0) + jnp.max(cone.limit, initial=0)
    largest = jnp.where(largest == 0, 1, largest)
    eps = jnp.finfo(c.dtype).eps
    cycle = jnp.asarray(CYCLE, c.dtype)
    defect = lambda x, rho: (x - _projected(x, W, c, rho, cone, layout)) / rho
    size_of = lambda x, rho: norm(defect(x, rho)[None])[0]
    error_of = lambda x: jnp.max(jnp.abs(defect(x, 1.0)), initial=0) / largest

    def newton(rho, x, error):
        """Newton steps from x, as long as each reduces the residual: the last x, and its error."""

        def converges(state):
            _, _, error, decreases, steps = state
            return decreases & (error > TOLERANCE * eps) & (steps < MAX_NEWTON_STEPS)

        def step(state):
            x, size, error, _, steps = state
            trial = x - solve_regularised(_slope(x, W, c, rho, cone, layout), defect(x, rho), NEWTON_REFINEMENTS)
            trial_size = size_of(trial, rho)
            better = trial_size < size
            x, error = jnp.where(better, trial, x), jnp.where(better, error_of(trial), error)
            return x, jnp.minimum(trial_size, size), error, trial_size < PROGRESS * size, steps + 1

        start = x, size_of(x, rho), error, jnp.asarray(True), jnp.zeros((), jnp.int32)
        x, _, error, _, _ = jax.lax.while_loop(converges, step, start)
        return x, error

    def round_of(state):
        swept, best, error, _, rounds = state
        rho, relaxation = cycle[rounds % len(CYCLE)]
        swept = jax.lax.fori_loop(0, SWEEPS, lambda _, x: _sweep(x, W, c, relaxation, cone, layout), swept)
        swept_error = error_of(swept)
        swept = jnp.where(swept_error <= DIVERGES, swept, best)
        new, new_error = newton(rho, swept, error_of(swept))
        better = new_error < error
        best, error = jnp.where(better, new, best), jnp.where(better, new_error, error)
        is_done = (error <= TOLERANCE * eps) | (error <= ENOUGH * eps) & ~better
        return swept, best, error, is_done, rounds + 1

    def unsolved(state):
        *_, is_done, rounds = state
        return ~is_done & (rounds < MAX_ROUNDS)

    x, zero = jnp.zeros_like(c), jnp.zeros((), jnp.int32)
    error = error_of(x)
    if guess is not None:
        error_of_guess = error_of(guess)
        is_better = error_of_guess < error
        x, error = jnp.where(is_better, guess, x), jnp.where(is_better, error_of_guess, error)
    _, x, error, _, _ = jax.lax.while_loop(unsolved, round_of, (x, x, error, error <= TOLERANCE * eps, zero))
    return _projected(x, W, c, 0.0, cone, layout), error  # rounding errors of forces that do not act become zero


def is_exact(error: Float[Array, ""]) -> Bool[Array, ""]:
    """Whether the error of ``solve_complementarity`` is a rounding error: below 1.4e-10 in float64."""
    return error <= ENOUGH * jnp.finfo(error.dtype).eps


@partial(jax.custom_jvp, nondiff_argnums=(4,))
def with_derivatives(
    x: Float[Array, " rows"], W: Float[Array, "rows rows"], c: Float[Array, " rows"], cone: Cone, layout: Layout
) -> Float[Array, " rows"]:
    """The solution x with its derivatives by W, c and the cone, by the implicit function theorem."""
    return x


@with_derivatives.defjvp
def _derivative(layout, primals, tangents):
    x, W, c, cone = primals
    x = with_derivatives(x, W, c, cone, layout)  # for second derivatives
    residual = lambda x, W, c, cone: x - _projected(x, W, c, 1.0, cone, layout)
    slope = jax.jacfwd(residual)(x, W, c, cone)
    _, change = jax.jvp(partial(residual, x), (W, c, cone), tangents[1:])
    return x, -solve_regularised(slope, change)


def _sweep(x, W, c, relaxation, cone, layout):
    """Change the force of each gap, then each friction force, to satisfy its own row (Gauss–Seidel)."""

    def push(i, x):
        force = jnp.maximum(x[i] - relaxation * (W[i] @ x + c[i]), 0)
        return x.at[i].set(jnp.where(cone.active[i], force, 0))

    if layout.gaps:
        x = jax.lax.fori_loop(0, layout.gaps, push, x)
    if not layout.groups:
        return x
    radius = cone.radius(layout, x[: layout.gaps])

    def rub(k, x):
        first = layout.gaps + k * layout.dim
        rows = jax.lax.dynamic_slice_in_dim(W, first, layout.dim)
        own = jax.lax.dynamic_slice_in_dim(rows, first, layout.dim, axis=1)
        stiffness = jnp.maximum(jnp.max(jnp.sum(jnp.abs(own), axis=1)), 1)  # at least the largest eigenvalue
        slip = rows @ x + jax.lax.dynamic_slice_in_dim(c, first, layout.dim)
        trial = jax.lax.dynamic_slice_in_dim(x, first, layout.dim) - relaxation / stiffness * slip
        force = _friction(trial[None], radius[k][None], cone.direction[k][None])[0]
        return jax.lax.dynamic_update_slice_in_dim(x, force, first, axis=0)

    return jax.lax.fori_loop(0, layout.groups, rub, x)


def _projected(x, W, c, rho, cone, layout):
    """The right-hand side of the fixed-point equation."""
    normal, tangential = layout.split(x - rho * (W @ x + c))
    normal = jnp.where(cone.active, jnp.maximum(normal, 0), 0)
    return layout.join(normal, _friction(tangential, cone.radius(layout, normal), cone.direction))


def _slope(x, W, c, rho, cone, layout):
    """The derivative of (x − ``_projected``) / ρ by x (rows, rows)."""
    identity = jnp.eye(x.size, dtype=x.dtype)
    normal, tangential = layout.split(x - rho * (W @ x + c))
    pushes = cone.active & (normal > 0)
    radius, length = cone.radius(layout, jnp.where(pushes, normal, 0)), norm(tangential)
    known = jnp.any(cone.direction != 0, axis=-1)
    is_inside = ~known & (length <= radius)
    outward = jnp.where(known[:, None], -cone.direction, unit(tangential)) * ~is_inside[:, None]
    # Outside of the ball the projection is r e with e = y / ‖y‖, and de = (I − e eᵀ) dy / ‖y‖.
    turning = jnp.where(is_inside, 1, jnp.where(known, 0, radius / jnp.where(length > 0, length, 1)))
    rows = identity - rho * W
    of_normal, of_slip = pushes[:, None] * rows[: layout.gaps], rows[layout.gaps :]
    of_slip = of_slip.reshape(layout.groups, layout.dim, x.size)
    along = jnp.sum(outward[..., None] * of_slip, axis=1, keepdims=True)
    growth = jax.vmap(layout.at_normal, in_axes=1, out_axes=1)(of_normal) * cone.friction[:, None]
    of_friction = turning[:, None, None] * (of_slip - outward[..., None] * along)
    of_friction = of_friction + outward[..., None] * growth[:, None]
    return (identity - jnp.concatenate([of_normal, of_friction.reshape(-1, x.size)])) / rho


def _friction(trial, radius, direction):
    """Project ``trial`` onto the ball, or the known force if the direction of slip is known."""
    length, radius = norm(trial), radius[:, None]
    inside = (length <= radius[:, 0])[:, None]
    on_ball = jnp.where(inside, trial, radius * unit(trial))
    known = jnp.any(direction != 0, axis=-1)[:, None]
    return jnp.where(known, -radius * direction, on_ball)


def solve_regularised(
    G: Float[Array, "m m"], rhs: Float[Array, " m"], refinements: int = REFINEMENTS
) -> Float[Array, " m"]:
    """Solve G x = rhs, where G may be singular and the equations are consistent."""
    m = rhs.size
    if not m:
        return rhs
    regular = G + REGULARISATION * jnp.finfo(rhs.dtype).eps ** 0.5 * jnp.eye(m, dtype=rhs.dtype)
    solve = _by_elimination(regular) if m <= MAX_UNROLLED else _by_lapack(regular)
    refine = lambda x, _: (x + solve(rhs - G @ x), None)
    return jax.lax.scan(refine, jnp.zeros_like(rhs), length=refinements)[0]


def _by_lapack(G):
    factors = jax.scipy.linalg.lu_factor(G)
    return lambda rhs: jax.scipy.linalg.lu_solve(factors, rhs)


def _by_elimination(G):
    """Solve by LU factors without pivoting: rows of G that do not act are unit rows, the others nearly definite."""
    pivots, rows, columns = [], [], []  # of the matrices that are left after each elimination
    while G.shape[0]:
        pivots.append(G[0, 0])
        rows.append(G[0, 1:])
        columns.append(G[1:, 0] / G[0, 0])
        G = G[1:, 1:] - columns[-1][:, None] * rows[-1]

    def solve(rhs):
        y = []
        for column in columns:
            y.append(rhs[0])
            rhs = rhs[1:] - column * rhs[0]
        x = rhs  # empty
        for value, row, pivot in zip(reversed(y), reversed(rows), reversed(pivots), strict=True):
            x = jnp.concatenate([(value - row @ x)[None] / pivot, x])
        return x

    return solve
