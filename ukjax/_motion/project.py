"""Onto the constraints: consistent initial conditions."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._check import as_array, check_finite, constant, kind_of, known, number
from .._check_terms import check_terms
from .._haste import at_once
from .._precision import Numbers
from .._solve import AbstractMethod, AbstractResponse, choose, coordinate_scale, row_scale, solve
from .._system import AbstractSystem, dynamics_of, mass_of
from .._terms import Terms
from .around import point_of, seen_from
from .assemble import without_redundant
from .correct import Levels, at_every_level
from .diagnose import check_model, worst_row
from .given import check_rates, taken_in
from .hold import holding
from .pattern import with_pattern
from .scale import Scale, scales
from .small_rows import with_noise_left_out

MOST_ITERATIONS = 200


def project(
    model: AbstractSystem,
    t: Numbers,
    q0: Numbers,
    v0: Numbers,
    method: str | AbstractMethod = "orthogonal",
    hold: Iterable[str] = (),
) -> tuple[Float[Array, " nq"], Float[Array, " n"]]:
    """Consistent initial conditions: the point on the constraints nearest to q0 (n,), v0 (n,) at time t.

        min (q − q0)ᵀ M (q − q0)  with φ(t, q) = 0,      then  min (v − v0)ᵀ M (v − v0)  with φ̇ = 0 and ψ = 0,

    with M at q0 for the first and at the new q for the second. (Where q̇ = N(q) v, q − q0 stands for the x with which
    q̇ = N(q) x leads from q0 to q in a unit of time, so that what N keeps is kept.) Redundant constraints are no
    trouble. Differentiable, with exact first and second derivatives, by the conditions of the minimum (not through the
    iteration).

    ``hold`` names coordinates that stay as they are given, value and rate, while the rest is moved to fit them: those
    of ``model.coordinates``, or q1, q2, ...

    Raises ``ValueError`` if no such point is found: the constraint that remains violated is named. Under ``jit`` the
    result is NaN instead.
    """
    if not isinstance(model, AbstractSystem):
        raise ValueError(
            f"model must be a ukjax.System to be projected onto its constraints, got {kind_of(model)}: "
            "rows A and b alone do not say where the constraints are"
        )
    t, q0, v0 = number("t", t, "s"), as_array("q0", q0), as_array("v0", v0)
    if q0.ndim != 1 or not q0.size or (v0.shape != q0.shape if model.rates is None else v0.ndim != 1):
        raise ValueError(f"q0 and v0 must both have shape (n,), got shapes {q0.shape} and {v0.shape}")
    for name, value in (("t", t), ("q0", q0), ("v0", v0)):
        check_finite(name, value)
    model = holding(model, hold, t, q0, v0)
    model, q0, v0, t = taken_in(model, q0, v0, t)
    check_rates(model, q0, v0)
    method, all_known = with_pattern(choose(method), model, t, q0, v0), known(model, t, q0, v0)
    given: Any = model, t, q0, v0
    here = constant(given)  # within jax.grad these are known as well
    scale = scales(*(here if known(here) else given))
    seen, x0, sizes = seen_from(model, q0, v0, scale)
    given = seen, t, x0, v0
    here, usual = constant(given), method.usual()
    if usual is not None and known(here):
        nearby = _nearby(usual, here, sizes)
        if nearby is not None and all_known:
            return point_of(seen, nearby[0]), nearby[1]
        if nearby is not None:
            x, v, unusual = _with_derivatives(seen, t, x0, v0, *nearby)
            if not constant(unusual):
                return point_of(seen, x), v
    if all_known:  # before the long way is compiled
        check_terms(_masses(model, t, q0, v0), f" at t = {float(t):g} s")
        if usual is not None:
            method = with_noise_left_out(method, model, t, q0, v0)
    x, v, reached, (last_x, last_v) = _project(seen, t, x0, v0, sizes, method)
    if all_known and not reached:
        check_model(model, t, q0, v0, method)
        worst = worst_row(model, t, point_of(seen, last_x), last_v, scale)
        raise ValueError(
            f"no consistent initial conditions found near q0 = {np.asarray(q0)}: at t = {float(t):g} s constraint "
            f"{worst} still has residual {worst.size:.3g} after {MOST_ITERATIONS} iterations. Either the constraints "
            "cannot be met (a path out of reach, links too short), or q0 is too far away: start closer"
        )
    return point_of(seen, x), v


def _nearby(usual, here, scale):
    """The result by the usual method, and with which rows that was; None where that is not sure."""
    model, t, q0, v0 = here
    levels = at_every_level(usual)
    while levels is not None:
        q, v, sure = _project_nearby(model, t, q0, v0, scale, levels)
        if sure:
            return q, v, levels
        levels = without_redundant(levels, model, t, q0, v0)
    return None


class Sizes(NamedTuple):
    """What rounding is measured by: the sizes of the entries of what is looked for, ``x``, and of the terms of the
    residual, ``rows``."""

    x: Float[Array, " n"]
    rows: Float[Array, " k"]

    @classmethod
    def of_positions(cls, system: AbstractSystem, t: Array, q: Array, scale: Scale) -> "Sizes":
        return cls(scale.q, scale.of(system.position_residual, t, q))

    @classmethod
    def of_velocities(cls, system: AbstractSystem, t: Array, q: Array, v: Array, scale: Scale) -> "Sizes":
        return cls(scale.v, scale.of(system.velocity_residual, t, q, v))

    def change(self, step: Float[Array, " n"]) -> Float[Array, ""]:
        """How much changes with this step."""
        return jnp.max(jnp.abs(step) / self.x)

    def missed(self, residual: Float[Array, " k"]) -> Float[Array, ""]:
        """The worst of a residual."""
        return jnp.max(_beside(jnp.abs(residual), self.rows), initial=0)


def _beside(x, y):
    return jnp.where(x > 0, x / jnp.maximum(y, jnp.finfo(x.dtype).tiny), 0)


class Approach(NamedTuple):
    """How Newton's method goes: by how much it changed its result last; whether it is there, as near as rounding lets
    it come; whether it is sure to come there, since the changes shrink by half each time."""

    change: Float[Array, ""]
    there: Bool[Array, ""]
    sure: Bool[Array, ""]

    @classmethod
    def begun(cls, dtype: Any) -> "Approach":
        return cls(jnp.asarray(jnp.inf, dtype), jnp.asarray(False), jnp.asarray(True))

    def after(self, change: Array, missed: Array, unusual: Array) -> "Approach":
        """One step further."""
        eps = jnp.finfo(change.dtype).eps
        shrinks, rounding = change < self.change / 2, missed <= 8 * eps
        there = (change <= 64 * eps) & (missed <= eps**0.6) | (~shrinks & rounding)
        return Approach(change, there, self.sure & (shrinks | there) & ~unusual)


def project_nearby(
    system: AbstractSystem, t: Array, q0: Float[Array, " nq"], v0: Float[Array, " n"], scale: Scale, levels: Levels
) -> tuple[Float[Array, " nq"], Float[Array, " n"], Bool[Array, ""]]:
    """The result for a start that is near, of a system that is usual; and whether it is sure."""
    if system.constraints and system.control is None and all(each.level == "position" for each in system.constraints):
        return _approached_in_turn(system, t, q0, v0, scale, levels.position)
    position = lambda q: system.position_residual(t, q)
    sizes = Sizes.of_positions(system, t, q0, scale)
    slope = lambda q: system.position_slope(t, q, v0)
    q, found_q = _approached(position, slope, q0, mass_of(system, t, q0, v0), sizes, levels.position)
    velocity = lambda v: system.velocity_residual(t, q, v)
    sizes = Sizes.of_velocities(system, t, q, v0, scale)
    slope = lambda v: system.velocity_slope(t, q, v)
    v, found_v = _approached(velocity, slope, v0, mass_of(system, t, q, v0), sizes, levels.velocity)
    return q, v, found_q & found_v


_project_nearby = at_once(project_nearby)


def _approached_in_turn(system, t, q0, v0, scale, method):
    """``_approached`` for positions and then for velocities, which have the same rows A: one loop, in which everything
    stands once, is compiled in half the time of two."""
    of_q, of_v = Sizes(scale.q, scale.rows), Sizes.of_velocities(system, t, q0, v0, scale)

    def nearer(state):
        q, v, reached, approach, k = state
        on = reached > 0  # the constraints on positions
        choose = lambda of_v, of_q: jax.tree.map(lambda x, y: jnp.where(on, x, y), of_v, of_q)
        x, x0, sizes = choose(v, q), choose(v0, q0), choose(of_v, of_q)
        M = mass_of(system, t, jnp.where(on, q, q0), v0)
        A = system.position_slope(t, q, v0)
        missed = choose(system.velocity_residual(t, q, v), system.position_residual(t, q))
        response = method.respond(M, A)
        step = response.both(M, M @ (x0 - x), -missed)[0]
        approach = approach.after(sizes.change(step), sizes.missed(missed), response.unusual)
        x = x + step
        there = approach.there
        again = approach._replace(change=jnp.where(there, jnp.inf, approach.change).astype(x.dtype))
        return jnp.where(on, q, x), jnp.where(on, x, v), reached + there, again, k + 1

    def far(state):
        _, _, reached, approach, k = state
        return approach.sure & (reached < 2) & (k < MOST_ITERATIONS)

    start = q0, v0, jnp.zeros((), int), Approach.begun(q0.dtype), 0
    q, v, reached, approach, _ = jax.lax.while_loop(far, nearer, start)
    return q, v, approach.sure & (reached == 2)


def _approached(residual, slope, x0, M, sizes, method):
    """The fixed point of x ← the point nearest to x0 where the residual, linear from x on, is 0.

    It obeys the conditions of the minimum, and is one if the iteration is drawn to it: near x0, where the change
    shrinks by half each time, there is no other.
    """
    if not sizes.rows.size:
        return x0, jnp.all(jnp.isfinite(x0))

    def nearer(state):
        x, approach, k = state
        A, missed = slope(x), residual(x)
        response = method.respond(M, A)
        step = response.both(M, M @ (x0 - x), -missed)[0]
        return x + step, approach.after(sizes.change(step), sizes.missed(missed), response.unusual), k + 1

    def far(state):
        _, approach, k = state
        return approach.sure & ~approach.there & (k < MOST_ITERATIONS)

    x, approach, _ = jax.lax.while_loop(far, nearer, (x0, Approach.begun(x0.dtype), 0))
    return x, approach.sure & approach.there


@at_once
def _masses(system, t, q, v):
    """Terms without anything but M."""
    none = jnp.zeros(0, q.dtype)
    return Terms(dynamics_of(system).mass(t, q, v), jnp.zeros_like(v), jnp.zeros((0, v.size), q.dtype), none)


def project_anywhere(system: AbstractSystem, t: Array, q0: Array, v0: Array, scale: Scale, method: AbstractMethod):
    """The result wherever it is, NaN if it is not found, the long way; whether it was; and what was tried last."""
    sizes = Sizes.of_positions(system, t, q0, scale)
    q, found_q, last_q = _nearest(
        lambda q: system.position_residual(t, q), q0, mass_of(system, t, q0, v0), sizes, method
    )
    if all(constraint.linear for constraint in system.held):
        v, _ = _exact_step(lambda v: system.velocity_residual(t, q, v), v0, mass_of(system, t, q, v0), method)
        last_v = v
        found_v = jnp.all(jnp.isfinite(v))
    else:
        sizes = Sizes.of_velocities(system, t, q, v0, scale)
        velocity = lambda v: system.velocity_residual(t, q, v)
        v, found_v, last_v = _nearest(velocity, v0, mass_of(system, t, q, v0), sizes, method)
    reached = found_q & found_v
    return jnp.where(found_q, q, jnp.nan), jnp.where(reached, v, jnp.nan), reached, (last_q, last_v)


_project = at_once(project_anywhere)


def _exact_step(residual, x, M, method):
    """Newton's step, exact where the residual is linear; and whether that was beyond the method."""
    missed = residual(x)
    if not missed.size:
        return x, jnp.asarray(False)
    A = jax.jacfwd(residual)(x)
    response = method.respond(*constant((M, A)))
    return x + solve(M, A, jnp.zeros_like(x), -missed, response), response.unusual


def _nearest(
    residual: Callable, x0: Float[Array, " n"], M: Float[Array, "n n"], sizes: Sizes, method: AbstractMethod
) -> tuple[Float[Array, " n"], Bool[Array, ""], Float[Array, " n"]]:
    """argmin (x − x0)ᵀ M (x − x0) with residual(x) = 0, whether it was found, and the last iterate.

    Found by steps along the constraints towards x0, each followed by Newton's method back onto them, so that the
    rank of redundant rows is judged where they are redundant. Derivatives are those of the conditions of the minimum.
    """
    if residual(x0).size == 0:
        return x0, jnp.all(jnp.isfinite(x0)), x0
    x, found = _iterate(_fixed(residual, x0), constant(x0), constant(M), constant(sizes), method)
    x = _with_slope(residual, x0, M, x, Conditions.at(residual, x0, M, x, method))
    return x, found & jnp.all(jnp.isfinite(x)), constant(x)


def _fixed(residual, x0):
    """It without derivatives by anything but x: a user's function may hold the traced values of one in its closure."""
    return constant(eqx.filter_closure_convert(residual, x0))


class Conditions(NamedTuple):
    """Those of the minimum at x, M (x − x0) − Aᵀλ = 0 and residual = 0: the constraints' pull λ, the derivative H of
    the first, and the method's response to H and A, all constants."""

    lam: Float[Array, " m"]
    H: Float[Array, "n n"]
    response: AbstractResponse

    @classmethod
    def at(cls, residual: Callable, x0: Array, M: Array, x: Array, method: AbstractMethod) -> "Conditions":
        residual, x0, M, x = _fixed(residual, x), *constant((x0, M, x))
        A = jax.jacfwd(residual)(x)
        response = method.respond(M, A)
        lam = response.multipliers(M @ (x - x0))
        H = jax.jacfwd(lambda x: M @ (x - x0) - jax.vjp(residual, x)[1](lam)[0])(x)
        H = (H + H.T) / 2
        # H need only be positive on the null space of A. Adding weight along A's rows changes nothing there.
        rows = row_scale(A, coordinate_scale(M))[:, None] * A
        weight = jnp.sqrt(jnp.sum((H - M) ** 2)) / jnp.maximum(jnp.sum(coordinate_scale(M) ** -2), 1e-30)
        firm = method.keeping(response.kept).respond(H + weight * rows.T @ rows, A)
        return constant(cls(lam, H, firm))

    def solved(self, force: Float[Array, " n"], missing: Float[Array, " m"]) -> tuple[Array, Array]:
        """x and λ with H x − Aᵀλ = ``force`` and −A x = ``missing``."""
        x = self.response.motion(force, -missing)
        return x, self.response.multipliers(self.H @ x - force)


def _with_slope(residual, x0, M, x, conditions):
    """The minimum x as a function of what the residual, x0 and M come from: by the implicit function theorem, so that
    no iteration is differentiated."""

    n = x0.size

    def missed(at):
        x, lam = at[:n], at[n:]
        residue, pull = jax.vjp(residual, x)
        return jnp.concatenate([M @ (x - x0) - pull(lam)[0], -residue])

    def solve_linear(linear, known):
        solved = lambda known: jnp.concatenate(conditions.solved(known[:n], known[n:]))

        def refined(linear, known):
            found = solved(known)
            return found + solved(known - linear(found))

        return jax.lax.custom_linear_solve(linear, known, refined, symmetric=True)

    # As one vector: JAX transposes a solve only if all that is known depends on what is differentiated.
    start = jnp.concatenate([constant(x), conditions.lam])
    return jax.lax.custom_root(missed, start, lambda _, at: at, solve_linear)[:n]


@eqx.filter_jit
def _with_derivatives(system, t, q0, v0, q, v, levels):
    """A result that is known, as a function of what it comes from; and whether that was beyond the method."""
    position = lambda q: system.position_residual(t, q)
    unusual = jnp.asarray(False)
    if position(q).size:
        M = mass_of(system, t, q0, v0)
        conditions = Conditions.at(position, q0, M, q, levels.position)
        q, unusual = _with_slope(position, q0, M, q, conditions), conditions.response.unusual
    else:
        q = q0
    velocity, M = lambda v: system.velocity_residual(t, q, v), mass_of(system, t, q, v0)
    if not velocity(v).size:
        return q, v0, unusual
    if all(constraint.linear for constraint in system.held):
        v, beyond = _exact_step(velocity, v0, M, levels.velocity)
    else:
        conditions = Conditions.at(velocity, v0, M, v, levels.velocity)
        v, beyond = _with_slope(velocity, v0, M, v, conditions), conditions.response.unusual
    return q, v, unusual | beyond


def _iterate(residual, x0, M, sizes, method):
    """Onto the constraints, then along them towards x0, by shorter steps where that overshoots or leaves them."""
    eps = jnp.finfo(x0.dtype).eps

    def least_change(x, force, rows, method):
        A = jax.jacfwd(residual)(x)
        return solve(M, A, force, rows, method.respond(M, A))

    def restore(x, method):
        return jax.lax.fori_loop(0, 4, lambda _, x: x + least_change(x, 0 * x, -residual(x), method), x)

    def step(state):
        x, share, change, k = state
        towards = least_change(x, M @ (x0 - x), 0 * residual(x), method)
        share = jnp.where(sizes.change(towards) > 0.9 * change, share / 2, share)
        tried = restore(x + share * towards, method)
        kept = sizes.missed(residual(tried)) < small
        return (
            jnp.where(kept, tried, x),
            jnp.where(kept, share, share / 4),
            jnp.where(kept, sizes.change(towards), change),
            k + 1,
        )

    def far(state):
        _, _, change, k = state
        return (change > 64 * eps) & (k < MOST_ITERATIONS)

    start, small = _least_squares(residual, x0, M, sizes), eps**0.6
    # Rows that are redundant are so on the constraints, not beside them: the rank found here holds for what follows.
    method = method.keeping(method.respond(M, jax.jacfwd(residual)(start)).kept)
    start = restore(start, method)
    x, _, change, _ = jax.lax.while_loop(far, step, (start, jnp.ones((), x0.dtype), jnp.asarray(jnp.inf, x0.dtype), 0))
    return x, (change < small) & (sizes.missed(residual(x)) < small)


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
