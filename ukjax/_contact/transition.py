"""Change of the contact mode at an instant: impacts, contacts that close or open, friction that sticks or slips."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._solve import AbstractMethod
from .._system import AbstractSystem, shifted
from .complementarity import norm, solve_complementarity, solve_regularised, unit
from .mode import ROUNDING, Mode, scaled_cone
from .rows import ContactRows, Layout, Response, contacts_at, response_of, restitutions

RESTING_SPEED = 1e-11
"""Approach speeds below this share of the speed scale have no rebound: the impacts have accumulated, and the contact
stays closed."""

SETTLING = 2
"""Newton iterations of the drift correction. After a step the first one leaves an error that is squared."""

NEAR = 16
"""Gaps below this multiple of their rounding error are closed at the instant."""


class Transition(NamedTuple):
    """Result of a transition.

    Attributes
    ----------
    q, v, mode
        State and mode after it.
    impulse
        Impulses Λ (rows,), zero without an impact.
    solved
        Whether the complementarity problems were solved. False if no contact forces are consistent (Painlevé).
    """

    q: Float[Array, " nq"]
    v: Float[Array, " n"]
    mode: Mode
    impulse: Float[Array, " rows"]
    solved: Bool[Array, ""]


class Setting(NamedTuple):
    """What contact computations of one motion have in common.

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
    """

    system: AbstractSystem
    layout: Layout
    method: AbstractMethod
    gap_rounding: Float[Array, " gaps"]
    rate_size: Float[Array, " rows"]

    def contacts(self, t: Array, q: Array, v: Array) -> ContactRows:
        """The contacts at one state."""
        return contacts_at(self.system.nonsmooth, self.system.kinematic_map, self.layout, t, q, v)

    def response(self, t: Array, q: Array, v: Array, contacts: ContactRows) -> Response:
        """The response to contact forces at one state."""
        return response_of(self.system(t, q, v), contacts, self.layout, self.method)


def settle(setting: Setting, t: Array, q: Array, v: Array, mode: Mode) -> tuple[Array, Array]:
    """q and v with closed gaps at zero, and closed and sticking rows at rest: the drift correction of a mode."""
    layout = setting.layout
    stick = jnp.broadcast_to(mode.sticking[:, None], mode.direction.shape)
    closed, at_rest = layout.join(mode.closed, jnp.zeros_like(stick)), layout.join(mode.closed, stick)

    def correct(state, _):
        q, v = state
        contacts = setting.contacts(t, q, v)
        response = setting.response(t, q, v, contacts)
        gaps = layout.join(contacts.gap, jnp.zeros_like(mode.direction))
        q = shifted(setting.system.kinematic_map, q, _correction(response, closed, -gaps))
        return (q, v + _correction(response, at_rest, -contacts.rate)), None

    return jax.lax.scan(correct, (q, v), length=SETTLING)[0]


def _correction(response, acting, rows):
    """Change (n,) that moves the ``acting`` rows by ``rows``, and is the smallest in the metric of M."""
    s, D = response.scale, (acting & response.movable).astype(rows.dtype)
    G = D[:, None] * (s[:, None] * response.W * s) * D + jnp.diag(1 - D)
    return (s * D * solve_regularised(G, D * s * rows)) @ response.directions


def transition(
    setting: Setting,
    t: Array,
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
    mode: Mode,
    released: Bool[Array, " events"],
) -> Transition:
    """The state and the mode after an instant, from those before it.

    ``released`` marks closed gaps and sticking friction forces whose event this is: they open, or slip.
    """
    layout, system = setting.layout, setting.system
    contacts = setting.contacts(t, q, v)
    is_near = jax.lax.stop_gradient(contacts.gap <= NEAR * setting.gap_rounding) | mode.closed
    q = settle(setting, t, q, v, Mode(is_near, jnp.zeros_like(mode.sticking), jnp.zeros_like(mode.direction)))[0]

    # Impact: Newton's law for all closed gaps at once.
    contacts = setting.contacts(t, q, v)
    response = setting.response(t, q, v, contacts)
    rate, slip = layout.split(contacts.rate)
    normal_size, slip_size = layout.split(setting.rate_size)
    approach = jax.lax.stop_gradient(rate < -ROUNDING * normal_size) & is_near
    is_impact = jnp.any(approach)
    rebound = jnp.where(approach & (-rate > RESTING_SPEED * normal_size), restitutions(system.nonsmooth, t, q), 0)
    wanted = layout.join(rate * (1 + rebound), slip)
    s = response.scale
    W = s[:, None] * response.W * s
    impact_contacts = contacts._replace(limit=jnp.zeros_like(contacts.limit))  # a bounded force has no impulse
    cone = scaled_cone(impact_contacts, response, layout, is_near, jnp.zeros_like(slip))
    impulse, impact_solved = solve_complementarity(W, s * wanted, cone, layout)
    impulse = jnp.where(is_impact, s * impulse, 0)
    v = v + impulse @ response.directions

    # Contact forces just after the instant decide which gaps stay closed, and which friction forces stick.
    contacts = setting.contacts(t, q, v)
    response = setting.response(t, q, v, contacts)
    rate, slip = jax.lax.stop_gradient(layout.split(contacts.rate))
    s = response.scale
    W, c = s[:, None] * response.W * s, s * response.free
    released_gap, released_friction = released[: layout.gaps], released[layout.gaps :]
    rests = is_near & (jnp.abs(rate) <= 4 * RESTING_SPEED * normal_size)
    speed, direction = norm(slip), unit(slip)
    slip_rounding = 4 * RESTING_SPEED * jnp.max(slip_size, axis=1, initial=0)
    was_stuck = mode.sticking & released_friction
    slips = speed > slip_rounding
    cone = scaled_cone(contacts, response, layout, rests, jnp.where(slips[:, None], direction, 0))
    force, solved = jax.lax.stop_gradient(solve_complementarity(W, c, cone, layout))
    normal, tangential = layout.split(force)
    row_acceleration = layout.split(W @ force + c)[0]
    size = jnp.maximum(jnp.max(jnp.abs(c), initial=0), jnp.max(cone.limit, initial=0))
    tolerance = 1e3 * ROUNDING * size
    has_force, accelerates = normal > tolerance, row_acceleration > tolerance
    closed = rests & (has_force | ~accelerates & ~(released_gap & mode.closed))
    has_contact = layout.at_normal(closed.astype(force.dtype)) > 0
    acts = has_contact | (jnp.asarray(layout.normal_of) < 0) if layout.groups else jnp.zeros(0, bool)
    radius = cone.radius(layout, normal)
    holds = norm(tangential) < radius - tolerance
    sticking = acts & ~slips & holds & ~was_stuck
    begins = acts & ~slips & ~sticking
    onset = -unit(tangential)
    new_direction = jnp.where((acts & slips)[:, None], direction, jnp.where(begins[:, None], onset, 0))
    mode = Mode(closed, sticking, jax.lax.stop_gradient(new_direction))
    q, v = settle(setting, t, q, v, mode)
    return Transition(q, v, mode, impulse, solved & (impact_solved | ~is_impact))


def directions_along(mode: Mode, contacts: ContactRows, layout: Layout) -> Mode:
    """The mode with the direction of each slip as it is now."""
    direction = jax.lax.stop_gradient(unit(layout.split(contacts.rate)[1]))
    turning = mode.slipping()[:, None] & (direction != 0)
    return mode._replace(direction=jnp.where(turning, direction, mode.direction))
