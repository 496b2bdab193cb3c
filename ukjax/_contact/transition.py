"""Change of the contact mode at an instant: impacts, contacts that close or open, friction that sticks or slips."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._solve import AbstractMethod
from .._system import AbstractSystem, shifted
from .complementarity import Cone, is_exact, norm, solve_complementarity, solve_regularised, unit, with_derivatives
from .mode import ContactMode, rounding, scaled_cone
from .rows import ContactRows, Layout, Response, contacts_at, response_of, restitutions

RESTING_EXPONENT = 0.7
"""Approach speeds below eps to this power of the speed scale, 1e-11 in float64, have no rebound: the impacts have
accumulated, and the contact stays closed."""

SHORTEST_FLIGHT = 8
"""Speeds have no rebound either if the contact would close again within this multiple of the rounding error of the
time."""

SETTLING = 2
"""Newton iterations of the drift correction. After a step, the first iteration squares the error."""

GAIN = 1e-9
"""An impact increases the energy if its work is positive by more than this share of the size of its terms."""

NEAR = 16
"""Gaps below this multiple of their rounding error are closed at the instant."""


class Transition(NamedTuple):
    """Result of a transition.

    Attributes
    ----------
    v, mode
        Velocities and mode after it.
    impulse
        Impulses Λ (rows,), zero without an impact.
    contacts, response
        The contacts after it, and their response to forces.
    solved
        Whether the complementarity problems were solved. False if no contact forces are consistent (Painlevé).
    several
        Whether other contact forces are consistent too, so that the motion is not determined (Painlevé).
    gains
        Whether the impact increases the energy (Kane).
    """

    v: Float[Array, " n"]
    mode: ContactMode
    impulse: Float[Array, " rows"]
    contacts: ContactRows
    response: Response
    solved: Bool[Array, ""]
    several: Bool[Array, ""]
    gains: Bool[Array, ""]


class Setting(NamedTuple):
    """Constants of the contact computations of one motion.

    Attributes
    ----------
    system
        The system without contact forces.
    layout
        Numbers of contact rows.
    method
        Solver for M and A.
    gap_rounding
        Rounding errors of the gaps (gaps,).
    rate_size
        Characteristic sizes of the rates of all rows (rows,).
    time_rounding
        Rounding error of the time [s].
    max_penetration
        Largest penetrations of a start that count as rounding (gaps,).
    grazing
        Minima of gaps that are zero within this distance have no derivative (gaps,).
    """

    system: AbstractSystem
    layout: Layout
    method: AbstractMethod
    gap_rounding: Float[Array, " gaps"]
    rate_size: Float[Array, " rows"]
    time_rounding: Float[Array, ""]
    max_penetration: Float[Array, " gaps"]
    grazing: Float[Array, " gaps"]

    def contacts(self, t: Array, q: Array, v: Array) -> ContactRows:
        """The contacts at one state."""
        return contacts_at(self.system.nonsmooth, self.system.kinematic_map, self.layout, t, q, v)

    def response(self, t: Array, q: Array, v: Array, contacts: ContactRows) -> Response:
        """The response to contact forces at one state."""
        return response_of(self.system(t, q, v), contacts, self.layout, self.method)


class Settled(NamedTuple):
    """State after the drift correction of a mode, with the contacts and their response there, to rounding."""

    q: Float[Array, " nq"]
    v: Float[Array, " n"]
    contacts: ContactRows
    response: Response


def settle(setting: Setting, t: Array, q: Array, v: Array, mode: ContactMode) -> Settled:
    """Set closed gaps to zero, and closed and sticking rows to rest: the drift correction of a mode."""
    layout = setting.layout
    stick = jnp.broadcast_to(mode.sticking[:, None], mode.direction.shape)
    closed, at_rest = layout.join(mode.closed, jnp.zeros_like(stick)), layout.join(mode.closed, stick)

    def evaluate(q, v):
        contacts = setting.contacts(t, q, v)
        response = lambda: setting.response(t, q, v, contacts)
        nothing = lambda: jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(response))
        return contacts, jax.lax.cond(mode.acts(), response, nothing)

    def correct(state, _):
        q, v, *_ = state
        contacts, response = evaluate(q, v)
        gaps = layout.join(contacts.gap, jnp.zeros_like(mode.direction))
        q = shifted(setting.system.kinematic_map, q, correction(response, closed, -gaps))
        return Settled(q, v + correction(response, at_rest, -contacts.rate), contacts, response), None

    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(evaluate, q, v))
    return jax.lax.scan(correct, Settled(q, v, *zeros), length=SETTLING)[0]


def correction(response: Response, acting: Bool[Array, " rows"], rows: Float[Array, " rows"]) -> Float[Array, " n"]:
    """Change (n,) that moves the ``acting`` rows by ``rows``, and is the smallest in the metric of M."""
    return multipliers(response, acting, rows) @ response.directions


def multipliers(response: Response, acting: Bool[Array, " rows"], rows: Float[Array, " rows"]) -> Float[Array, " rows"]:
    """The multipliers (rows,) of ``response.directions`` in that change."""
    s, D = response.scale, (acting & response.movable).astype(rows.dtype)
    G = D[:, None] * (s[:, None] * response.W * s) * D + jnp.diag(1 - D)
    return s * D * solve_regularised(G, D * s * rows)


def transition(
    setting: Setting,
    t: Array,
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
    mode: ContactMode,
    released: Bool[Array, " events"],
    derivatives: bool,
) -> Transition:
    """The velocities and the mode after an instant, from those before it.

    First the impact: Newton's law for all closed gaps at once. Then the contact forces just after the instant decide
    which gaps stay closed, and which friction forces stick. Both are complementarity problems, solved in one loop of
    two iterations, so that they are compiled once. With static friction there is a third: the forces after the friction
    that cannot stick has its bound of sliding. ``released`` marks the closed gaps and sticking friction forces that
    open or slip at this instant. ``derivatives``: the impact has derivatives.
    """
    layout, system = setting.layout, setting.system
    normal_size, slip_size = layout.split(setting.rate_size)
    resting_share, force_share = float(jnp.finfo(q.dtype).eps) ** RESTING_EXPONENT, rounding(q.dtype)
    slip_rounding = 4 * resting_share * jnp.max(slip_size, axis=1, initial=0)
    rebounds = restitutions(system.nonsmooth, t, q)

    def phase(carry, is_impact):
        v, is_near, may_stick, _ = carry
        contacts = setting.contacts(t, q, v)
        response = setting.response(t, q, v, contacts)
        rate, slip = layout.split(contacts.rate)
        is_near = jnp.where(is_impact, (contacts.gap <= NEAR * setting.gap_rounding) | mode.closed, is_near)
        s = response.scale
        W = s[:, None] * response.W * s

        fall = jnp.abs(layout.split(response.free)[0])
        resting = jnp.maximum(resting_share * normal_size, SHORTEST_FLIGHT * setting.time_rounding * fall)
        resting = jax.lax.stop_gradient(resting)
        approach = jax.lax.stop_gradient(rate < -force_share * normal_size) & is_near
        rebound = jnp.where(approach & (-rate > resting), rebounds, 0)
        rests = is_near & (jnp.abs(rate) <= 4 * resting)
        slips = norm(slip) > slip_rounding
        c = s * jnp.where(is_impact, layout.join(rate * (1 + rebound), slip), response.free)
        limit = jnp.where(is_impact, 0, contacts.limit)  # a bounded force has no impulse
        direction = jnp.where(slips[:, None] & ~is_impact, jax.lax.stop_gradient(unit(slip)), 0)
        active = jnp.where(is_impact, is_near, rests)
        static = ~is_impact & may_stick & ~slips
        static_limit = jnp.where(is_impact, 0, contacts.static_limit)
        bounded = contacts._replace(limit=limit, static_limit=static_limit)
        cone = scaled_cone(bounded, response, layout, active, direction, static)
        scaled, error = solve_complementarity(W, c, cone, layout)
        if derivatives:
            scaled = with_derivatives(scaled, W, c, cone, layout)
        has_impulse = is_impact & jnp.any(approach)
        impulse = jnp.where(has_impulse, s * scaled, 0)
        forces = Forces(contacts, response, active, slips, W, c, cone, scaled, W @ scaled + c)
        if layout.has_static:
            may_stick = may_stick & (is_impact | forces.rests(layout))
        after = v + impulse @ response.directions, is_near, may_stick, forces
        gains = _gains_energy(impulse, contacts.rate, response.W)
        return after, (impulse, is_exact(error) | is_impact & ~has_impulse, gains)

    released_gap, released_friction = released[: layout.gaps], released[layout.gaps :]
    may_stick = ~(mode.sticking & released_friction)
    nothing = jnp.zeros(layout.gaps, bool)
    shapes = jax.eval_shape(lambda: phase((v, nothing, may_stick, None), jnp.asarray(True)))[0][3]
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    phases = jnp.array([True, False, False] if layout.has_static else [True, False])
    (v, _, _, forces), (impulses, solved, gains) = jax.lax.scan(phase, (v, nothing, may_stick, zeros), phases)
    after = jax.lax.stop_gradient(forces)

    normal, tangential = layout.split(after.scaled)
    tolerance = after.tolerance()
    has_force, accelerates = normal > tolerance, layout.split(after.u)[0] > tolerance
    closed = after.active & (has_force | ~accelerates & ~(released_gap & mode.closed))
    acts = (layout.at_normal(closed.astype(normal.dtype)) > 0) | (np.asarray(layout.normal_of, int) < 0)
    holds = after.rests(layout) & (after.cone.radius(layout, normal) > tolerance)
    sticking = acts & ~after.slips & holds & may_stick
    begins = acts & ~after.slips & ~sticking
    onset, direction = -unit(tangential), unit(layout.split(after.contacts.rate)[1])
    direction = jnp.where((acts & after.slips)[:, None], direction, jnp.where(begins[:, None], onset, 0))
    new_mode = ContactMode(closed, sticking, direction)
    several = _has_several(after, closed, accelerates, layout)
    return Transition(
        v, new_mode, impulses[0], forces.contacts, forces.response, jnp.all(solved), several, jnp.any(gains)
    )


def _gains_energy(impulse, before, W):
    """Whether the work Λ·(u⁻ + u⁺)/2 of the impulses is positive, with the rates u of the rows.

    Newton's law with friction, or with different coefficients of restitution, can increase the energy: T. R. Kane & D.
    A. Levinson, Dynamics: Theory and Applications (1985), sec. 5.8.
    """
    impulse, before, W = jax.lax.stop_gradient((impulse, before, W))
    work, size = impulse * (before + W @ impulse / 2), jnp.abs(impulse) * (jnp.abs(before) + jnp.abs(W @ impulse))
    return jnp.sum(work) > GAIN * jnp.sum(size)


def _has_several(forces, closed, accelerates, layout):
    """Whether a sliding contact opens although a force could also keep it closed.

    Then a unit of the contact force, with its friction, causes a negative acceleration of the gap.
    """
    i = np.asarray(layout.normal_of, int)
    sliding = np.flatnonzero(i >= 0)
    if not sliding.size:
        return jnp.asarray(False)
    i = i[sliding]
    W = jnp.diagonal(forces.W)[: layout.gaps], forces.W[: layout.gaps, layout.gaps :]
    cross = W[1].reshape(layout.gaps, layout.groups, layout.dim)[i, sliding]
    own = W[0][i] - forces.cone.friction[sliding] * jnp.sum(cross * forces.cone.direction[sliding], axis=1)
    opens = forces.active & ~closed & accelerates
    return jnp.any(forces.slips[sliding] & opens[i] & (own < -rounding(own.dtype)))


class Forces(NamedTuple):
    """A complementarity problem of a transition, and its solution."""

    contacts: ContactRows
    response: Response
    active: Bool[Array, " gaps"]
    slips: Bool[Array, " groups"]
    W: Float[Array, "rows rows"]
    c: Float[Array, " rows"]
    cone: Cone
    scaled: Float[Array, " rows"]
    u: Float[Array, " rows"]

    def tolerance(self) -> Float[Array, ""]:
        """Largest rounding error of u."""
        size = jnp.maximum(jnp.max(jnp.abs(self.c), initial=0), jnp.max(self.cone.limit, initial=0))
        return jax.lax.stop_gradient(1e3 * rounding(self.c.dtype) * size)

    def rests(self, layout: Layout) -> Bool[Array, " groups"]:
        """Whether the slip of each friction force has no acceleration."""
        return jax.lax.stop_gradient(norm(layout.split(self.u)[1]) <= self.tolerance())


def directions_along(mode: ContactMode, contacts: ContactRows, layout: Layout) -> ContactMode:
    """The mode with the present direction of each slip."""
    direction = jax.lax.stop_gradient(unit(layout.split(contacts.rate)[1]))
    turning = mode.slipping()[:, None] & (direction != 0)
    return mode._replace(direction=jnp.where(turning, direction, mode.direction))
