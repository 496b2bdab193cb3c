"""The nearest point on the constraints, wherever it is, in one program: where no host can look on."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..._check import without_derivatives
from ..._solve import AbstractMethod, coordinate_scale, row_scale, solve
from ..._system import AbstractSystem, mass_of
from ..stepper.scaling import Scale
from .newton import MOST_ITERATIONS, Sizes
from .optimality import Conditions, exact_step, fixed, with_slope


def project_by_search(system: AbstractSystem, t: Array, q0: Array, v0: Array, scale: Scale, method: AbstractMethod):
    """The result wherever it is, NaN if it is not found, the long way; whether it was; and what was tried last."""
    sizes = Sizes.of_positions(system, t, q0, scale)
    q, found_q, last_q = _nearest(
        lambda q: system.position_residual(t, q), q0, mass_of(system, t, q0, v0), sizes, method
    )
    if all(constraint.linear for constraint in system.held):
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

    Found by steps along the constraints towards x0, each followed by Newton's method back onto them, so that the
    rank of redundant rows is judged where they are redundant. Derivatives are those of the conditions of the minimum.
    """
    if residual(x0).size == 0:
        return x0, jnp.all(jnp.isfinite(x0)), x0
    x, found = _iterate(
        fixed(residual, x0), without_derivatives(x0), without_derivatives(M), without_derivatives(sizes), method
    )
    x = with_slope(residual, x0, M, x, Conditions.at(residual, x0, M, x, method))
    return x, found & jnp.all(jnp.isfinite(x)), without_derivatives(x)


def _iterate(residual, x0, M, sizes, method):
    """Onto the constraints, then along them towards x0, by shorter steps where one leads no nearer or leaves them: as
    ``nearest`` does it."""
    eps = jnp.finfo(x0.dtype).eps

    def least_change(x, force, rows, method):
        A = jax.jacfwd(residual)(x)
        return solve(M, A, force, rows, method.factorise(M, A))

    def restore(x, method):
        return jax.lax.fori_loop(0, 4, lambda _, x: x + least_change(x, 0 * x, -residual(x), method), x)

    def away(x):
        return (x - x0) @ M @ (x - x0)

    def step(state):
        x, towards, share, k = state
        tried = restore(x + share * towards, method)
        further = least_change(tried, M @ (x0 - tried), 0 * residual(tried), method)
        gain = share * (towards @ M @ towards) / 2
        # So near the end that rounding hides what is gained, it shows in the steps themselves.
        shorter = sizes.change(further) < sizes.change(towards)
        nearer = jnp.where(gain > eps**0.5 * away(x), away(x) - away(tried) > gain, shorter)
        kept = (k == 0) | nearer & (sizes.missed(residual(tried)) < small)  # at first there was no step
        x, towards = jnp.where(kept, tried, x), jnp.where(kept, further, towards)
        return x, towards, jnp.where(kept, jnp.minimum(1, 2 * share), share / 2), k + 1

    def far(state):
        _, towards, share, k = state
        return (k == 0) | (sizes.change(towards) > 64 * eps) & (share > eps) & (k < MOST_ITERATIONS)

    start, small = _least_squares(residual, x0, M, sizes), eps**0.6
    # Rows that are redundant are so on the constraints, not beside them: the rank found here holds for what follows.
    method = method.with_active_rows(method.factorise(M, jax.jacfwd(residual)(start)).kept)
    x, towards, _, _ = jax.lax.while_loop(far, step, (start, 0 * x0, jnp.ones((), x0.dtype), 0))
    return x, (sizes.change(towards) < small) & (sizes.missed(residual(x)) < small)


def _least_squares(residual, x0, M, sizes):
    """A point near the constraints, by Levenberg and Marquardt, which rows that are nearly redundant do not mislead."""
    import optimistix as optx  # takes a while, and is hardly ever needed

    coordinate = coordinate_scale(M)
    coordinate = coordinate * jnp.max(sizes.x / coordinate)
    row = row_scale(jax.jacfwd(residual)(x0), coordinate)
    row = jnp.where(row > 0, row, 1)
    tolerance = float(jnp.finfo(x0.dtype).eps) ** 0.7
    found = optx.least_squares(
        lambda y, _: row * residual(x0 + coordinate * y),
        optx.LevenbergMarquardt(rtol=tolerance, atol=tolerance),
        jnp.zeros_like(x0),
        max_steps=MOST_ITERATIONS,
        throw=False,
    )
    return x0 + coordinate * found.value
