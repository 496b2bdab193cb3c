"""The nearest point on the constraints, of a start that is near them: one small program."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..._system import AbstractSystem, mass_of
from ..stepper.drift_correction import MethodPerLevel
from ..stepper.scaling import Scale

MOST_ITERATIONS = 200


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


class NewtonProgress(NamedTuple):
    """How Newton's method goes: by how much it changed its result last; whether it is there, as near as rounding lets
    it come; whether it is sure to come there, since the changes shrink by half each time."""

    change: Float[Array, ""]
    there: Bool[Array, ""]
    sure: Bool[Array, ""]

    @classmethod
    def begun(cls, dtype: Any) -> "NewtonProgress":
        return cls(jnp.asarray(jnp.inf, dtype), jnp.asarray(False), jnp.asarray(True))

    def after(self, change: Array, missed: Array, needs_fallback: Array) -> "NewtonProgress":
        """One step further."""
        eps = jnp.finfo(change.dtype).eps
        shrinks, rounding = change < self.change / 2, missed <= 8 * eps
        there = (change <= 64 * eps) & (missed <= eps**0.6) | (~shrinks & rounding)
        return NewtonProgress(change, there, self.sure & (shrinks | there) & ~needs_fallback)


def project_by_newton(
    system: AbstractSystem,
    t: Array,
    q0: Float[Array, " nq"],
    v0: Float[Array, " n"],
    scale: Scale,
    levels: MethodPerLevel,
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
        response = method.factorise(M, A)
        step = response.motion_and_multipliers(M, M @ (x0 - x), -missed)[0]
        approach = approach.after(sizes.change(step), sizes.missed(missed), response.needs_fallback)
        x = x + step
        there = approach.there
        again = approach._replace(change=jnp.where(there, jnp.inf, approach.change).astype(x.dtype))
        return jnp.where(on, q, x), jnp.where(on, x, v), reached + there, again, k + 1

    def far(state):
        _, _, reached, approach, k = state
        return approach.sure & (reached < 2) & (k < MOST_ITERATIONS)

    start = q0, v0, jnp.zeros((), int), NewtonProgress.begun(q0.dtype), 0
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
        response = method.factorise(M, A)
        step = response.motion_and_multipliers(M, M @ (x0 - x), -missed)[0]
        return x + step, approach.after(sizes.change(step), sizes.missed(missed), response.needs_fallback), k + 1

    def far(state):
        _, approach, k = state
        return approach.sure & ~approach.there & (k < MOST_ITERATIONS)

    x, approach, _ = jax.lax.while_loop(far, nearer, (x0, NewtonProgress.begun(x0.dtype), 0))
    return x, approach.sure & approach.there
