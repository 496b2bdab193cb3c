"""Newton's method for the nearest point on the constraints, for starts close to them: one small program."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..._kernel import per_member
from ..._system import AbstractSystem, mass_of
from ..stepper.drift_correction import MethodPerLevel
from ..stepper.limits import MAX_SIZE_OF_SINGLE_KERNEL
from ..stepper.scaling import Scale

MAX_ITERATIONS = 200


class Sizes(NamedTuple):
    """Reference sizes for rounding: of the entries of the unknown, ``x``, and of the terms of the residual,
    ``rows``.
    """

    x: Float[Array, " n"]
    rows: Float[Array, " k"]

    @classmethod
    def of_positions(cls, system: AbstractSystem, t: Array, q: Array, scale: Scale) -> "Sizes":
        return cls(scale.q, scale.of(system.position_residual, t, q))

    @classmethod
    def of_velocities(cls, system: AbstractSystem, t: Array, q: Array, v: Array, scale: Scale) -> "Sizes":
        return cls(scale.v, scale.of(system.velocity_residual, t, q, v))

    def change(self, step: Float[Array, " n"]) -> Float[Array, ""]:
        """Largest entry of a step, relative to the sizes of x."""
        return jnp.max(jnp.abs(step) / self.x)

    def relative_residual(self, residual: Float[Array, " k"]) -> Float[Array, ""]:
        """Largest entry of a residual, relative to the sizes of its terms."""
        return jnp.max(_relative(jnp.abs(residual), self.rows), initial=0)


def _relative(x, y):
    return jnp.where(x > 0, x / jnp.maximum(y, jnp.finfo(x.dtype).tiny), 0)


class NewtonProgress(NamedTuple):
    """Progress of Newton's method.

    Attributes
    ----------
    change
        Relative size of the last step.
    converged
        Whether only rounding is left.
    contracting
        Whether convergence is certain so far: each step is at most half as long as the one before.
    """

    change: Float[Array, ""]
    converged: Bool[Array, ""]
    contracting: Bool[Array, ""]

    @classmethod
    def initial(cls, dtype: Any) -> "NewtonProgress":
        """Progress before the first iteration."""
        return cls(jnp.asarray(jnp.inf, dtype), jnp.asarray(False), jnp.asarray(True))

    def after(self, change: Array, residual_size: Array, needs_fallback: Array) -> "NewtonProgress":
        """Progress after one more iteration."""
        eps = jnp.finfo(change.dtype).eps
        shrinks, rounding = change < self.change / 2, residual_size <= 8 * eps
        converged = (change <= 64 * eps) & (residual_size <= eps**0.6) | (~shrinks & rounding)
        return NewtonProgress(change, converged, self.contracting & (shrinks | converged) & ~needs_fallback)


def project_by_newton(
    system: AbstractSystem,
    t: Array,
    q0: Float[Array, " nq"],
    v0: Float[Array, " n"],
    scale: Scale,
    levels: MethodPerLevel,
) -> tuple[Float[Array, " nq"], Float[Array, " n"], Bool[Array, ""]]:
    """The nearest point for a start close to the constraints, by the linear solvers ``levels``; and whether convergence
    is certain."""
    small = q0.size <= MAX_SIZE_OF_SINGLE_KERNEL  # then a kernel takes less time to compile
    return (per_member(_project) if small else _project)(system, t, q0, v0, scale, levels)


def _project(system, t, q0, v0, scale, levels):
    if (
        system.constraints
        and system.control is None
        and all(constraint.level == "position" for constraint in system.constraints)
    ):
        return _newton_shared_rows(system, t, q0, v0, scale, levels.position)
    position = lambda q: system.position_residual(t, q)
    sizes = Sizes.of_positions(system, t, q0, scale)
    slope = lambda q: system.position_slope(t, q, v0)
    q, converged_q = _newton(position, slope, q0, mass_of(system, t, q0, v0), sizes, levels.position)
    velocity = lambda v: system.velocity_residual(t, q, v)
    sizes = Sizes.of_velocities(system, t, q, v0, scale)
    slope = lambda v: system.velocity_slope(t, q, v)
    v, converged_v = _newton(velocity, slope, v0, mass_of(system, t, q, v0), sizes, levels.velocity)
    return q, v, converged_q & converged_v


def _newton_shared_rows(system, t, q0, v0, scale, method):
    """``_newton`` for positions and then for velocities, which have the same rows A.

    One loop, in which everything is compiled once: it compiles in half the time of two loops.
    """
    of_q, of_v = Sizes(scale.q, scale.rows), Sizes.of_velocities(system, t, q0, v0, scale)

    def iterate(state):
        q, v, levels_done, progress, k = state
        is_velocity = levels_done > 0  # positions have converged
        choose = lambda of_v, of_q: jax.tree.map(lambda x, y: jnp.where(is_velocity, x, y), of_v, of_q)
        x, x0, sizes = choose(v, q), choose(v0, q0), choose(of_v, of_q)
        M = mass_of(system, t, jnp.where(is_velocity, q, q0), v0)
        A = system.position_slope(t, q, v0)
        residual = choose(system.velocity_residual(t, q, v), system.position_residual(t, q))
        response = method.factorise(M, A)
        step = response.motion_and_multipliers(M, M @ (x0 - x), -residual)[0]
        progress = progress.after(sizes.change(step), sizes.relative_residual(residual), response.needs_fallback)
        x = x + step
        converged = progress.converged
        next_progress = progress._replace(change=jnp.where(converged, jnp.inf, progress.change).astype(x.dtype))
        return jnp.where(is_velocity, q, x), jnp.where(is_velocity, x, v), levels_done + converged, next_progress, k + 1

    def is_running(state):
        _, _, levels_done, progress, k = state
        return progress.contracting & (levels_done < 2) & (k < MAX_ITERATIONS)

    start = q0, v0, jnp.zeros((), int), NewtonProgress.initial(q0.dtype), 0
    q, v, levels_done, progress, _ = jax.lax.while_loop(is_running, iterate, start)
    return q, v, progress.contracting & (levels_done == 2)


def _newton(residual, slope, x0, M, sizes, method):
    """The fixed point of x ← the point nearest to x0 where the residual, linearised at x, is 0.

    It satisfies the optimality conditions, and is a minimum if the iteration contracts: near x0, where each change is
    at most half of the one before, there is no other stationary point.
    """
    if not sizes.rows.size:
        return x0, jnp.all(jnp.isfinite(x0))

    def iterate(state):
        x, progress, k = state
        A, residual_x = slope(x), residual(x)
        response = method.factorise(M, A)
        step = response.motion_and_multipliers(M, M @ (x0 - x), -residual_x)[0]
        return (
            x + step,
            progress.after(sizes.change(step), sizes.relative_residual(residual_x), response.needs_fallback),
            k + 1,
        )

    def is_running(state):
        _, progress, k = state
        return progress.contracting & ~progress.converged & (k < MAX_ITERATIONS)

    x, progress, _ = jax.lax.while_loop(is_running, iterate, (x0, NewtonProgress.initial(x0.dtype), 0))
    return x, progress.contracting & progress.converged
