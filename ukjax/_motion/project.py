"""Onto the constraints: consistent initial conditions."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._check import known
from .._precision import Numbers, as_float
from .._solve import AbstractMethod, choose, coordinate_scale, row_scale, solve
from .._system import AbstractSystem
from .diagnose import worst_row
from .small_rows import with_noise_left_out

MOST_ITERATIONS = 200


def project(
    model: AbstractSystem, t: Numbers, q0: Numbers, v0: Numbers, method: str | AbstractMethod = "orthogonal"
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Consistent initial conditions: the point on the constraints nearest to q0 (n,), v0 (n,) at time t.

        min (q − q0)ᵀ M (q − q0)  with φ(t, q) = 0,      then  min (v − v0)ᵀ M (v − v0)  with φ̇ = 0 and ψ = 0,

    with M at q0 for the first and at the new q for the second. Redundant constraints are no trouble. Differentiable,
    with exact first and second derivatives, by the conditions of the minimum (not through the iteration).

    Raises ``ValueError`` if no such point is found: the constraint that remains violated is named. Under ``jit`` the
    result is NaN instead.
    """
    if not isinstance(model, AbstractSystem):
        raise ValueError(
            f"model must be a ukjax.System to be projected onto its constraints, got {type(model).__name__}: "
            "rows A and b alone do not say where the constraints are"
        )
    t, q0, v0 = as_float(t), as_float(q0), as_float(v0)
    if q0.ndim != 1 or v0.shape != q0.shape:
        raise ValueError(f"q0 and v0 must both have shape (n,), got shapes {q0.shape} and {v0.shape}")
    method, all_known = choose(method), known(model, t, q0, v0)
    usual = method.usual()
    if usual is not None and all_known:
        q, v, sure = _project_nearby(model, t, q0, v0, usual)
        if sure:
            return q, v
        method = with_noise_left_out(method, model, t, q0, v0)
    q, v, reached, last = _project(model, t, q0, v0, method)
    if all_known and not reached:
        which, size = worst_row(model, t, *last)
        raise ValueError(
            f"no consistent initial conditions found near q0 = {np.asarray(q0)}: at t = {float(t):g} s constraint "
            f"{which} still has residual {size:.3g} after {MOST_ITERATIONS} iterations. Either the constraints cannot "
            "be met (a path out of reach, links too short), or q0 is too far away: start closer"
        )
    return q, v


@eqx.filter_jit
def _project_nearby(system, t, q0, v0, method):
    """The result for a start that is near, of a system that is usual; and whether it is sure."""
    if system.constraints and system.control is None and all(each.level == "position" for each in system.constraints):
        return _approached_in_turn(system, t, q0, v0, method)
    position = lambda q: system.position_residual(t, q)
    q, found_q = _approached(position, q0, _mass(system, t, q0, v0), method)
    velocity = lambda v: system.velocity_residual(t, q, v)
    v, found_v = _approached(velocity, v0, _mass(system, t, q, v0), method)
    return q, v, found_q & found_v


def _approached_in_turn(system, t, q0, v0, method):
    """``_approached`` for positions and then for velocities, which have the same rows A: one loop, in which everything
    stands once, is compiled in half the time of two."""
    eps = jnp.finfo(q0.dtype).eps
    size = lambda x: jnp.max(jnp.abs(x), initial=0)

    def nearer(state):
        q, v, reached, change, k, sure = state
        on = reached > 0  # the constraints on positions
        x, x0 = jnp.where(on, v, q), jnp.where(on, v0, q0)
        M = _mass(system, t, jnp.where(on, q, q0), v0)
        A = jax.jacfwd(lambda q: system.position_residual(t, q))(q)
        missed = jnp.where(on, system.velocity_residual(t, q, v), system.position_residual(t, q))
        response = method.respond(M, A)
        step = response.both(M, M @ (x0 - x), -missed)[0]
        shrinks = (size(step) < change / 2) | (size(step) < 64 * eps * (1 + size(x)))
        x = x + step
        there = size(step) <= 64 * eps * (1 + size(x))
        return (
            jnp.where(on, q, x),
            jnp.where(on, x, v),
            reached + there,
            jnp.where(there, jnp.inf, size(step)).astype(x.dtype),
            k + 1,
            sure & shrinks & ~response.unusual,
        )

    def far(state):
        _, _, reached, _, k, sure = state
        return sure & (reached < 2) & (k < MOST_ITERATIONS)

    start = q0, v0, jnp.zeros((), int), jnp.asarray(jnp.inf, q0.dtype), 0, jnp.asarray(True)
    q, v, reached, _, _, sure = jax.lax.while_loop(far, nearer, start)
    return q, v, sure & (reached == 2)


def _approached(residual, x0, M, method):
    """The fixed point of x ← the point nearest to x0 where the residual, linear from x on, is 0.

    It obeys the conditions of the minimum, and is one if the iteration is drawn to it: near x0, where the change
    shrinks by half each time, there is no other.
    """
    eps = jnp.finfo(x0.dtype).eps
    size = lambda x: jnp.max(jnp.abs(x), initial=0)
    if residual(x0).size == 0:
        return x0, jnp.all(jnp.isfinite(x0))

    def nearer(state):
        x, change, k, sure = state
        A = jax.jacfwd(residual)(x)
        response = method.respond(M, A)
        step = response.both(M, M @ (x0 - x), -residual(x))[0]
        shrinks = (size(step) < change / 2) | (size(step) < 64 * eps * (1 + size(x)))
        return x + step, size(step), k + 1, sure & shrinks & ~response.unusual

    def far(state):
        x, change, k, sure = state
        return sure & (change > 64 * eps * (1 + size(x))) & (k < MOST_ITERATIONS)

    start = x0, jnp.asarray(jnp.inf, x0.dtype), 0, jnp.asarray(True)
    x, change, _, sure = jax.lax.while_loop(far, nearer, start)
    return x, sure & (change <= 64 * eps * (1 + size(x)))


def _mass(system, t, q, v):
    M = system.dynamics.mass(t, q, v)
    return (M + M.T) / 2


@eqx.filter_jit
def _project(system, t, q0, v0, method):
    q, found_q, last_q = _nearest(lambda q: system.position_residual(t, q), q0, _mass(system, t, q0, v0), method)
    if all(constraint.linear for constraint in system.held):
        last_v = v = _exact_step(lambda v: system.velocity_residual(t, q, v), v0, _mass(system, t, q, v0), method)
        found_v = jnp.all(jnp.isfinite(v))
    else:
        v, found_v, last_v = _nearest(lambda v: system.velocity_residual(t, q, v), v0, _mass(system, t, q, v0), method)
    reached = found_q & found_v
    return jnp.where(found_q, q, jnp.nan), jnp.where(reached, v, jnp.nan), reached, (last_q, last_v)


def _exact_step(residual, x, M, method):
    """Newton's step, exact where the residual is linear."""
    missed = residual(x)
    if not missed.size:
        return x
    A = jax.jacfwd(residual)(x)
    response = method.respond(*jax.lax.stop_gradient((M, A)))
    return x + solve(M, A, jnp.zeros_like(x), -missed, response)


def _nearest(
    residual: Callable, x0: Float[Array, " n"], M: Float[Array, "n n"], method: AbstractMethod
) -> tuple[Float[Array, " n"], Bool[Array, ""], Float[Array, " n"]]:
    """argmin (x − x0)ᵀ M (x − x0) with residual(x) = 0, whether it was found, and the last iterate.

    Found by steps along the constraints towards x0, each followed by Newton's method back onto them, so that the
    rank of redundant rows is judged where they are redundant. Then two Newton steps on the conditions of the minimum,
    M (x − x0) = Aᵀλ and residual = 0, from that fixed point: they move nothing but carry the derivatives, one step
    the first, two steps the second as well.
    """
    constant = jax.lax.stop_gradient
    if residual(x0).size == 0:
        return x0, jnp.all(jnp.isfinite(x0)), x0
    # A user's function may hold the traced values of a derivative in its closure: those too are constants here.
    converted = eqx.filter_closure_convert(residual, x0)
    fixed = jax.tree.map(lambda leaf: constant(leaf) if eqx.is_array(leaf) else leaf, converted)
    x, found = _iterate(fixed, constant(x0), constant(M), method)

    A = jax.jacfwd(fixed)(x)
    response = method.respond(constant(M), A)
    lam = response.multipliers(constant(M) @ (x - constant(x0)))
    method = method.keeping(response.kept)
    polished, _ = jax.lax.fori_loop(0, 2, lambda _, at: _newton(residual, x0, M, at[0], at[1], method), (x, lam))
    return polished, found & jnp.all(jnp.isfinite(polished)), x


def _iterate(residual, x0, M, method):
    """Onto the constraints, then along them towards x0, by shorter steps where that overshoots or leaves them."""
    eps = jnp.finfo(x0.dtype).eps

    def least_change(x, force, rows, method):
        A = jax.jacfwd(residual)(x)
        return solve(M, A, force, rows, method.respond(M, A))

    def restore(x, method):
        return jax.lax.fori_loop(0, 4, lambda _, x: x + least_change(x, 0 * x, -residual(x), method), x)

    def size(x):
        return jnp.max(jnp.abs(x))

    def step(state):
        x, share, change, k = state
        towards = least_change(x, M @ (x0 - x), 0 * residual(x), method)
        share = jnp.where(size(towards) > 0.9 * change, share / 2, share)
        tried = restore(x + share * towards, method)
        kept = size(residual(tried)) < small
        return (
            jnp.where(kept, tried, x),
            jnp.where(kept, share, share / 4),
            jnp.where(kept, size(towards), change),
            k + 1,
        )

    def far(state):
        x, _, change, k = state
        return (change > 64 * eps * (1 + size(x))) & (k < MOST_ITERATIONS)

    start = _least_squares(residual, x0, M)
    small = eps**0.6 * (1 + size(start))
    # Rows that are redundant are so on the constraints, not beside them: the rank found here holds for what follows.
    method = method.keeping(method.respond(M, jax.jacfwd(residual)(start)).kept)
    start = restore(start, method)
    x, _, change, _ = jax.lax.while_loop(far, step, (start, jnp.ones((), x0.dtype), jnp.asarray(jnp.inf, x0.dtype), 0))
    return x, (change < small) & (size(residual(x)) < small)


def _least_squares(residual, x0, M):
    """A point near the constraints, by Levenberg and Marquardt, which rows that are nearly redundant do not mislead."""
    import optimistix as optx  # takes a while, and is hardly ever needed

    coordinate = coordinate_scale(M)
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


def _newton(residual, x0, M, x, lam, method):
    """One Newton step on M (x − x0) − A(x)ᵀλ = 0, residual(x) = 0, with the constraints' curvature in its matrix."""

    def force(x):
        _, pull = jax.vjp(residual, x)
        return M @ (x - x0) - pull(lam)[0]

    F, H = force(x), jax.jacfwd(force)(x)
    H = (H + H.T) / 2
    A = jax.jacfwd(residual)(x)
    # H need only be positive on the null space of A. Adding weight along A's rows changes nothing there.
    H_fixed, A_fixed, M_fixed = jax.lax.stop_gradient((H, A, M))
    rows = row_scale(A_fixed, coordinate_scale(M_fixed))[:, None] * A_fixed
    weight = jnp.sqrt(jnp.sum((H_fixed - M_fixed) ** 2)) / jnp.maximum(jnp.sum(coordinate_scale(M_fixed) ** -2), 1e-30)
    response = method.respond(H_fixed + weight * rows.T @ rows, A_fixed)
    dx = solve(H, A, -F, -residual(x), response)
    return x + dx, lam + jax.lax.stop_gradient(response).multipliers(H @ dx + F)
