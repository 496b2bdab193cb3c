"""Motion in a contact mode: which gaps are closed, and which friction forces stick."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._precision import Numbers
from .._solve import AbstractMethod
from .._system import AbstractVariant
from .._terms import Terms
from .complementarity import Cone, norm, solve_regularised, unit
from .rows import ContactRows, Layout, Response, contacts_at, response_of


def rounding(dtype: Any) -> float:
    """Forces and slip velocities below this share of their scale count as zero: 2e-12 in float64, 6e-6 in float32."""
    return float(jnp.finfo(dtype).eps) ** 0.75


class ContactMode(NamedTuple):
    """Contact mode.

    Attributes
    ----------
    closed
        Whether each gap is closed (gaps,).
    sticking
        Whether each friction force sticks (groups,).
    direction
        Direction of the slip of each slipping friction force, otherwise 0 (groups, dim).
    """

    closed: Bool[Array, " gaps"]
    sticking: Bool[Array, " groups"]
    direction: Float[Array, "groups dim"]

    def acts(self) -> Bool[Array, ""]:
        """Whether a gap is closed, or a friction force acts."""
        return jnp.any(self.closed) | jnp.any(self.sticking) | jnp.any(self.slipping())

    def slipping(self) -> Bool[Array, " groups"]:
        """Whether each friction force slips."""
        return jnp.any(self.direction != 0, axis=-1)


def all_open(layout: Layout, dtype: Any) -> ContactMode:
    """The mode without any contact or friction."""
    return ContactMode(
        jnp.zeros(layout.gaps, bool), jnp.zeros(layout.groups, bool), jnp.zeros((layout.groups, layout.dim), dtype)
    )


class ContactForces(NamedTuple):
    """Contact forces at one state in a mode.

    Attributes
    ----------
    contacts, response
        The contacts, and their response to forces.
    force
        λ (rows,).
    scaled
        λ divided by the scale of its row, in the units of ``allowed``.
    allowed
        Largest friction forces in the same units (groups,).
    size
        Size of the forces in the same units.
    """

    contacts: ContactRows
    response: Response
    force: Float[Array, " rows"]
    scaled: Float[Array, " rows"]
    allowed: Float[Array, " groups"]
    size: Float[Array, ""]


def scaled_cone(
    contacts: ContactRows, response: Response, layout: Layout, active: Any, direction: Any, static: Any = False
) -> Cone:
    """The cone of allowed forces for forces divided by ``response.scale``; where ``static`` is True, that of static
    friction."""
    normal, tangential = layout.split(response.scale)
    tangential = tangential[:, 0]
    friction, limit = contacts.friction, contacts.limit
    if layout.has_static:
        friction = jnp.where(static, contacts.static_friction, friction)
        limit = jnp.where(static, contacts.static_limit, limit)
    return Cone(
        active=active,
        friction=friction * layout.at_normal(normal) / tangential,
        limit=limit / tangential,
        direction=direction,
    )


class Unknowns(NamedTuple):
    """The unknown contact forces z in a mode: λ/s = T z + λ₀.

    Attributes
    ----------
    acting
        Whether a row has an unknown force: that of a closed gap, or of sticking friction (rows,).
    T
        Slipping friction is a multiple of its contact force (rows, rows).
    given
        λ₀ (rows,), the given forces of slipping friction.
    cone
        The allowed forces.
    """

    acting: Bool[Array, " rows"]
    T: Float[Array, "rows rows"]
    given: Float[Array, " rows"]
    cone: Cone


def unknowns_in(mode: ContactMode, contacts: ContactRows, response: Response, layout: Layout) -> Unknowns:
    """The unknown contact forces in a mode."""
    dtype = response.free.dtype
    _, slip = layout.split(contacts.rate)
    size = jnp.max(jnp.abs(contacts.rate), initial=0)
    slipping = mode.slipping()
    direction = unit(slip + rounding(slip.dtype) * size * mode.direction) if layout.dim > 1 else mode.direction
    direction = jnp.where(slipping[:, None], jnp.where(direction == 0, mode.direction, direction), 0)
    cone = scaled_cone(contacts, response, layout, mode.closed, direction, mode.sticking)
    stick = jnp.broadcast_to(mode.sticking[:, None], direction.shape)
    acting = layout.join(mode.closed, stick) & response.movable
    coupling = jax.vmap(
        lambda normal: layout.join(
            jnp.zeros(layout.gaps, dtype), -direction * (cone.friction * layout.at_normal(normal))[:, None]
        )
    )(jnp.eye(layout.gaps, dtype=dtype))  # row i: friction of slipping rows for a unit force of gap i
    T = jnp.diag(acting.astype(dtype)).at[:, : layout.gaps].add(coupling.T * acting[: layout.gaps])
    given = layout.join(jnp.zeros(layout.gaps, dtype), -direction * cone.limit[:, None])
    return Unknowns(acting, T, given, cone)


def forces_in(mode: ContactMode, contacts: ContactRows, response: Response, layout: Layout) -> ContactForces:
    """The contact forces in a mode: closed gaps and sticking friction have no acceleration.

    The ``Unknowns`` z solve the rows D (W T z + W λ₀ + c) = 0, where D selects those of closed and sticking contacts.
    """
    s = response.scale
    W, c = s[:, None] * response.W * s, s * response.free
    acting, T, given, cone = unknowns_in(mode, contacts, response, layout)
    D = acting.astype(c.dtype)
    G = D[:, None] * (W @ T) * D + jnp.diag(1 - D)
    z = solve_regularised(G, -D * (c + W @ given))
    scaled = T @ z + given
    allowed = cone.radius(layout, layout.split(scaled)[0])
    size = jnp.maximum(jnp.max(jnp.abs(c), initial=0), jnp.max(allowed, initial=0))
    return ContactForces(contacts, response, s * scaled, scaled, allowed, jax.lax.stop_gradient(size))


class InContact(AbstractVariant):
    """The system ``plant`` in a contact mode: its Terms have the contact forces in c.

    The control of the plant does not use the contact forces.
    """

    mode: ContactMode
    layout: Layout
    method: AbstractMethod

    def __call__(self, t: Numbers, q: Numbers, v: Numbers) -> Terms:
        terms = self.plant(t, q, v)

        def contact_force():
            forces = self.forces_at(terms, t, q, v)
            return forces.force @ forces.contacts.J

        push = jax.lax.cond(self.mode.acts(), contact_force, lambda: jnp.zeros_like(terms.Q))
        return Terms(terms.M, terms.Q, terms.A, terms.b, push if terms.c is None else terms.c + push)

    def forces(self, t: Any, q: Any, v: Any) -> ContactForces:
        """The contact forces."""
        return self.forces_at(self.plant(t, q, v), t, q, v)

    def forces_at(self, terms: Terms, t: Any, q: Any, v: Any) -> ContactForces:
        """The contact forces, from the Terms without them."""
        contacts = contacts_at(self.plant.nonsmooth, self.kinematic_map, self.layout, t, q, v)
        response = response_of(terms, contacts, self.layout, self.method)
        return forces_in(self.mode, contacts, response, self.layout)


class EventValues(NamedTuple):
    """Values that are positive as long as a mode holds, gaps first, then friction forces.

    An open gap: its distance. A closed gap: its force. Sticking friction: the difference between its force and the
    largest allowed. Slipping friction: its slip along the direction of the mode. ``rounding`` is the size of their
    rounding errors.
    """

    value: Float[Array, " events"]
    rounding: Float[Array, " events"]


def event_values(
    forces: ContactForces, mode: ContactMode, layout: Layout, gap_rounding: Array, rate_size: Array
) -> EventValues:
    """The event values of a mode. ``gap_rounding`` (gaps,), ``rate_size`` (rows,): sizes of the rates."""
    normal, tangential = layout.split(forces.scaled)
    _, slip = layout.split(forces.contacts.rate)
    along = jnp.sum(slip * mode.direction, axis=-1)
    stick = forces.allowed - norm(tangential)
    inactive = jnp.ones_like(along)  # friction of an open gap
    friction = jnp.where(mode.sticking, stick, jnp.where(mode.slipping(), along, inactive))
    value = jnp.concatenate([jnp.where(mode.closed, normal, forces.contacts.gap), friction])
    share = rounding(value.dtype)
    force_rounding = share * forces.size
    slip_rounding = share * jnp.max(layout.split(rate_size)[1], axis=1, initial=0)
    roundings = jnp.concatenate(
        [
            jnp.where(mode.closed, force_rounding, gap_rounding),
            jnp.where(mode.sticking, force_rounding, slip_rounding),
        ]
    )
    return EventValues(value, jax.lax.stop_gradient(roundings))
