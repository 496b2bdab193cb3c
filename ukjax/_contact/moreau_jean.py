"""Moreau–Jean time stepping: contacts, impacts and friction over a step of fixed length.

    q_m = q + h/2 N v,      v⁺ = v + h a(q_m, v) + P Jᵀ Λ,      q⁺ = q_m + h/2 N v⁺

The impulses Λ of the step obey the complementarity of contact with the velocities at its end (J. J. Moreau 1988;
Acary & Brogliato 2008, ch. 10). So any number of contacts may change within a step. Then q⁺ is projected onto the
constraints and onto g ≥ 0, and v⁺ is reduced to balance the work of this shift, see ``push_out``. The method has order
1.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._kinematic_map import KinematicMap, rate, settled
from .._system import shifted
from .complementarity import is_exact, norm, solve_complementarity, unit, with_derivatives
from .mode import ContactMode, rounding, scaled_cone
from .rows import Response, gaps, restitutions
from .transition import NEAR, Setting, multipliers

ACCEPTED = 1e-6
"""Largest relative residual of the contact equations with which a motion continues."""


class MoreauJean(eqx.Module):
    """Time stepping for systems with many contacts: ``simulate(..., solver=ukjax.MoreauJean(), dt=1e-3)``.

    Each step of length dt evaluates M, Q, A and b once, at its midpoint, and solves one complementarity problem for the
    impulses of all contacts and friction forces. Changes of contact within a step need no smaller step. A gap acts if,
    without contact forces, it would be closed at the middle or at the end of the step. So a body may come to rest with
    a gap of up to g dt². The order of convergence is 1; without contact it is 2 for forces that do not depend on
    velocities. A motion stops where the best impulses leave a residual above 1e-6 of the largest contact speed; nearly
    all residuals are rounding errors.

    Each step ends without penetration: positions are projected (Acary, Comput. Methods Appl. Mech. Eng. 256 (2013)
    224), and the energy that the projection would add is taken from the kinetic energy. Without friction and with one
    coefficient of restitution, impacts add no energy, and with restitution 1 they conserve it. Errors of the smooth
    motion remain, and errors of order m (g dt)² where a contact opens and closes within one step. The law of impact
    itself may increase the energy, with friction or with different coefficients of restitution (Kane).

    Without ``MoreauJean``, ``simulate`` ends its steps where a contact changes. This is exact, but slower if many
    contacts change. A derivative of a motion with rebounds is that of the discrete steps: the instants of impacts have
    no derivative in it, so it does not converge to the derivative of the motion. Use the default for such derivatives.
    Moreau, in: Nonsmooth Mechanics and Applications, CISM 302 (1988); Jean, Comput. Methods Appl. Mech. Eng. 177 (1999)
    235.
    """


class Shifted(NamedTuple):
    """State at the end of a step while it is projected.

    Attributes
    ----------
    q, v
        The state.
    rate
        Rates of the rows (rows,).
    lost
        The energy that the impulses on gaps have dissipated, minus the part that the projection has used.
    """

    q: Float[Array, " nq"]
    v: Float[Array, " n"]
    rate: Float[Array, " rows"]
    lost: Float[Array, ""]


class MoreauJeanStep(NamedTuple):
    """Result of a step.

    Attributes
    ----------
    end
        State at its end, before the projections.
    mode
        Gaps with an impulse, sticking friction, and directions of slip.
    impulse
        Λ (rows,).
    solved
        Whether the complementarity problem was solved.
    response
        The response of the contacts to forces, at the middle of the step.
    pull
        Accelerations of the rows by the forces without those of contacts (rows,).
    """

    end: Shifted
    mode: ContactMode
    impulse: Float[Array, " rows"]
    solved: Bool[Array, ""]
    response: Response
    pull: Float[Array, " rows"]


def moreau_jean_step(
    setting: Setting,
    t: Array,
    h: Array,
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
    guess: Float[Array, " rows"],
) -> MoreauJeanStep:
    """A step from t to t + h. ``guess``: the impulses of the step before it, or zeros."""
    layout, kinematic_map = setting.layout, setting.system.kinematic_map
    middle = moved(kinematic_map, q, v, h / 2)
    contacts = setting.contacts(t + h / 2, middle, v)
    response = setting.response(t + h / 2, middle, v, contacts)
    before, _ = layout.split(contacts.rate)
    pull = contacts.J @ response.acceleration
    free, slip = layout.split(contacts.rate + h * pull)
    # Gaps that would be closed at the middle or at the end of the step. Their slopes are not enough: the gap of a body
    # that passes by has a minimum.
    end = moved(kinematic_map, middle, v + h * response.acceleration, h / 2)
    nearest = jnp.minimum(contacts.gap, gaps(setting.system.nonsmooth, t + h, end))
    active = jax.lax.stop_gradient(nearest <= NEAR * setting.gap_rounding)
    # An approach is not an impact if it is no faster than the forces cause within two steps: the contact rests.
    is_impact = -before > 2 * jnp.abs(free - before)
    rebound = jnp.where(is_impact, restitutions(setting.system.nonsmooth, t, q) * before, 0)
    s = response.scale
    W = s[:, None] * response.W * s
    bounded = contacts._replace(limit=h * contacts.limit, static_limit=h * contacts.static_limit)
    c = s * layout.join(free + rebound, slip)

    guess = jnp.where(s > 0, guess / jnp.where(s > 0, s, 1), 0)

    def solve(may_stick, _):
        cone = scaled_cone(bounded, response, layout, active, jnp.zeros_like(slip), may_stick)
        scaled, error = solve_complementarity(W, c, cone, layout, guess)
        _, sliding = layout.split(W @ scaled + c)
        sticks = norm(sliding) <= 1e3 * rounding(c.dtype) * jnp.max(jnp.abs(c), initial=0)
        return may_stick & sticks, (cone, scaled, is_exact(error) | (error <= ACCEPTED))

    # Contacts that slip at the end of the step under the bounds of static friction get the bounds of sliding.
    may_stick = jnp.ones(layout.groups, bool)
    _, solutions = jax.lax.scan(solve, may_stick, length=2 if layout.has_static else 1)
    cone, scaled, solved = jax.tree.map(lambda x: x[-1], solutions)
    scaled = with_derivatives(scaled, W, c, cone, layout)
    impulse = s * scaled
    v = v + h * response.acceleration + impulse @ response.directions
    q = moved(kinematic_map, middle, v, h / 2)
    rate = layout.join(free, slip) + response.W @ impulse
    lost = jnp.maximum(-(layout.split(impulse)[0] @ (before + layout.split(rate)[0])) / 2, 0)
    mode = _mode(scaled, W, s * layout.join(free, slip), cone, layout)
    return MoreauJeanStep(Shifted(q, v, rate, lost), mode, impulse, solved, response, pull)


def moved(
    kinematic_map: KinematicMap | None, q: Float[Array, " nq"], v: Float[Array, " n"], h: Array
) -> Float[Array, " nq"]:
    """q after a time h at constant v, by the classical Runge–Kutta method for q̇ = N(q) v.

    The norm of a quaternion changes by h⁵, so that it does not drift.
    """
    if kinematic_map is None:
        return q + h * v

    def stage(carry, c):
        total, slope = carry
        slope = rate(kinematic_map, q + c[0] * h * slope, v)
        return (total + c[1] * h * slope, slope), None

    weights = jnp.asarray([[0, 1 / 6], [1 / 2, 1 / 3], [1 / 2, 1 / 3], [1, 1 / 6]], q.dtype)
    (q_end, _), _ = jax.lax.scan(stage, (q, jnp.zeros_like(q)), weights)
    return settled(kinematic_map, q_end)


def _mode(scaled, W, c, cone, layout):
    """Which gaps had an impulse, which friction forces stuck, and the directions of slip."""
    scaled, W, c, cone = jax.lax.stop_gradient((scaled, W, c, cone))
    normal, tangential = layout.split(scaled)
    zero = rounding(c.dtype) * (jnp.max(jnp.abs(scaled), initial=0) + jnp.finfo(c.dtype).tiny)
    closed = normal > zero
    radius = cone.radius(layout, normal)
    acts = radius > zero
    _, slip = layout.split(W @ scaled + c)
    moves = norm(slip) > 1e3 * rounding(c.dtype) * jnp.max(jnp.abs(c), initial=0)
    slips = acts & moves & (norm(tangential) >= radius * (1 - 1e3 * rounding(c.dtype)))
    direction = jnp.where(slips[:, None], -unit(tangential), 0)
    return ContactMode(closed, acts & ~slips, direction)


def push_out(setting: Setting, t: Array, state: Shifted, response: Response, pull: Array) -> Shifted:
    """One Newton iteration towards the nearest q with g ≥ 0, in the metric of M: negative gaps are set to zero,
    unless all of them are rounding errors.

    The work of the shift against the forces is taken from the energy that the impulses of the step have dissipated,
    then from the kinetic energy along the shift. So the step adds no energy.

    ``response`` and ``pull`` may be those of a state nearby.
    """
    layout, gap = setting.layout, gaps(setting.system.nonsmooth, t, state.q)
    no_friction = jnp.zeros((layout.groups, layout.dim), gap.dtype)

    def shift():
        force = multipliers(response, layout.join(gap < 0, no_friction != 0), layout.join(-gap, no_friction))
        change, moves = force @ response.directions, response.W @ force
        size, speed, work = force @ moves, force @ state.rate, -force @ pull
        due = jnp.maximum(work - state.lost, 0)
        left = speed**2 - 2 * due * size
        left = jnp.where(left > 0, jnp.sqrt(jnp.where(left > 0, left, 1)), 0)
        speeds_up = jnp.where(speed < 0, -left, left) - speed
        gain = jnp.where(size > 0, speeds_up / jnp.where(size > 0, size, 1), 0)
        return Shifted(
            q=shifted(setting.system.kinematic_map, state.q, change),
            v=state.v + gain * change,
            rate=state.rate + gain * moves,
            lost=jnp.maximum(state.lost - work, 0),
        )

    return jax.lax.cond(jnp.any(gap < -setting.gap_rounding), shift, lambda: state)
