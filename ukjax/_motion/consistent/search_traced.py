"""Search for the nearest point on the constraints, from any distance, as one traced program."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..._jaxpr.tracing import without_derivatives
from ..._kernel import per_member
from ..._solve import AbstractMethod, coordinate_scale, inverse_cholesky, row_scale, solve
from ..._system import AbstractSystem, mass_of
from ..stepper.scaling import Scale
from .newton import MAX_ITERATIONS, Sizes
from .optimality import Conditions, exact_step, fixed, with_slope

MAX_SIZE_OF_SEARCH_KERNEL = 20
"""Largest number of coordinates plus rows for which the search is compiled as one kernel. For a leg, with 17, a kernel
takes 20 s of CPU time with tracing, and XLA 33 s; for a Stewart platform, with 43, LLVM takes longer than XLA."""

DAMPING_FACTOR = 8.0
"""Factor by which the damping of the Levenberg–Marquardt method changes after each step."""


def project_by_search(system: AbstractSystem, t: Array, q0: Array, v0: Array, scale: Scale, method: AbstractMethod):
    """The nearest point, NaN if it is not found; whether it was found; and the last iterate (q, v)."""
    small = q0.size + scale.rows.size <= MAX_SIZE_OF_SEARCH_KERNEL
    return (per_member(_project) if small else _project)(system, t, q0, v0, scale, method)


def _project(system, t, q0, v0, scale, method):
    sizes = Sizes.of_positions(system, t, q0, scale)
    q, found_q, last_q = _nearest(
        lambda q: system.position_residual(t, q), q0, mass_of(system, t, q0, v0), sizes, method
    )
    if all(constraint.linear for constraint in system.enforced):
        v, _ = exact_step(lambda v: system.velocity_residual(t, q, v), v0, mass_of(system, t, q, v0), method)
        last_v = v
        found_v = jnp.all(jnp.isfinite(v))
    else:
        sizes = Sizes.of_velocities(system, t, q, v0, scale)
        velocity = lambda v: system.velocity_residual(t, q, v)
        v, found_v, last_v = _nearest(velocity, v0, mass_of(system, t, q, v0), sizes, method)
    reached = found_q & found_v
    return jnp.where(found_q, q, jnp.nan), jnp.where(reached, v, jnp.nan), reached, (last_q, last_v)


def _nearest(
    residual: Callable, x0: Float[Array, " n"], M: Float[Array, "n n"], sizes: Sizes, method: AbstractMethod
) -> tuple[Float[Array, " n"], Bool[Array, ""], Float[Array, " n"]]:
    """argmin (x − x0)ᵀ M (x − x0) with residual(x) = 0, whether it was found, and the last iterate.

    The iteration moves along the constraints towards x0. After each step Newton's method returns to the constraints,
    where the rank of redundant rows is determined. Derivatives follow from the optimality conditions.
    """
    if residual(x0).size == 0:
        return x0, jnp.all(jnp.isfinite(x0)), x0
    x, is_found = _iterate(
        fixed(residual, x0), without_derivatives(x0), without_derivatives(M), without_derivatives(sizes), method
    )
    x = with_slope(residual, x0, M, x, Conditions.at(residual, x0, M, x, method))
    return x, is_found & jnp.all(jnp.isfinite(x)), without_derivatives(x)


def _iterate(residual, x0, M, sizes, method):
    """Move onto the constraints, then along them towards x0, as in ``search_numpy``.

    A step that does not come nearer to x0, or leaves the constraints, is shortened.
    """
    eps = jnp.finfo(x0.dtype).eps

    def least_change(x, force, rows, method):
        A = jax.jacfwd(residual)(x)
        return solve(M, A, force, rows, method.factorise(M, A))

    def restore(x, method):
        return jax.lax.fori_loop(0, 4, lambda _, x: x + least_change(x, 0 * x, -residual(x), method), x)

    def squared_distance(x):
        return (x - x0) @ M @ (x - x0)

    def step(state):
        x, direction, share, k = state
        tried = restore(x + share * direction, method)
        next_step = least_change(tried, M @ (x0 - tried), 0 * residual(tried), method)
        gain = share * (direction @ M @ direction) / 2
        # Near the end the gain is smaller than rounding; then the lengths of the steps are compared instead.
        shorter = sizes.change(next_step) < sizes.change(direction)
        is_nearer = jnp.where(
            gain > eps**0.5 * squared_distance(x), squared_distance(x) - squared_distance(tried) > gain, shorter
        )
        # The first iterate is always accepted.
        is_accepted = (k == 0) | is_nearer & (sizes.relative_residual(residual(tried)) < tolerance)
        x, direction = jnp.where(is_accepted, tried, x), jnp.where(is_accepted, next_step, direction)
        return x, direction, jnp.where(is_accepted, jnp.minimum(1, 2 * share), share / 2), k + 1

    def is_running(state):
        _, direction, share, k = state
        return (k == 0) | (sizes.change(direction) > 64 * eps) & (share > eps) & (k < MAX_ITERATIONS)

    start, tolerance = _least_squares(residual, x0, M, sizes), eps**0.6
    # Redundant rows are dependent only at points on the constraints. The rank determined here is used from now on.
    method = method.with_active_rows(method.factorise(M, jax.jacfwd(residual)(start)).kept)
    x, direction, _, _ = jax.lax.while_loop(is_running, step, (start, 0 * x0, jnp.ones((), x0.dtype), 0))
    return x, (sizes.change(direction) < tolerance) & (sizes.relative_residual(residual(x)) < tolerance)


def _least_squares(residual, x0, M, sizes):
    """A point near the constraints, by the Levenberg–Marquardt method, which is robust to nearly redundant rows.

    The step of the scaled residual r with the slope J is −Jᵀ (J Jᵀ + μ I)⁻¹ r. The damping μ decreases after a step
    that shortens r, and increases after any other, which is not taken. The solvers of optimistix need LAPACK, which a
    kernel cannot call.
    """
    unit = coordinate_scale(M)
    unit = unit * jnp.max(sizes.x / unit)
    row_unit = row_scale(jax.jacfwd(residual)(x0), unit)
    row_unit = jnp.where(row_unit > 0, row_unit, 1)
    tolerance = float(jnp.finfo(x0.dtype).eps) ** 0.7
    scaled_residual = lambda y: row_unit * residual(x0 + unit * y)
    one = jnp.ones((), x0.dtype)

    def step(state):
        y, damping, _, k = state
        r, J = scaled_residual(y), jax.jacfwd(scaled_residual)(y)
        L_inverse = inverse_cholesky(J @ J.T + damping * jnp.eye(r.size, dtype=r.dtype))
        change = -J.T @ (L_inverse.T @ (L_inverse @ r))
        is_shorter = jnp.sum(scaled_residual(y + change) ** 2) < jnp.sum(r**2)  # False for NaN
        damping = jnp.where(is_shorter, jnp.maximum(damping / DAMPING_FACTOR, tolerance), damping * DAMPING_FACTOR)
        return jnp.where(is_shorter, y + change, y), damping, jnp.max(jnp.abs(change)), k + 1

    def is_running(state):
        y, damping, change, k = state
        is_moving = ~(change <= tolerance * (1 + jnp.max(jnp.abs(y))))  # True for NaN
        return is_moving & (damping < 1 / tolerance) & (k < MAX_ITERATIONS)

    y, *_ = jax.lax.while_loop(is_running, step, (jnp.zeros_like(x0), one, jnp.inf * one, 0))
    return x0 + unit * y
