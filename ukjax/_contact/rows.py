"""The contacts of a system at one state: gaps, their rates and Jacobian, and the response to contact forces."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from .._check_terms import symmetric
from .._constraint import AbstractNonsmooth
from .._kinematic_map import KinematicMap
from .._solve import AbstractMethod, solve
from .._terms import Terms

FORCE_FREE_LENGTH = 1e-12
"""A contact row whose response to a force is smaller than this share of the largest cannot be moved by a force."""


class Layout(NamedTuple):
    """Numbers of contact rows: ``gaps`` normal rows, then ``groups`` friction forces of ``dim`` components each.

    ``normal_of`` is the gap whose contact force limits each friction force, −1 for a given limit. ``has_static`` is
    whether some bound of friction differs while it sticks.
    """

    gaps: int
    groups: int
    dim: int
    normal_of: tuple[int, ...]
    has_static: bool

    @property
    def rows(self) -> int:
        """Number of all rows."""
        return self.gaps + self.groups * self.dim

    def split(self, x: Shaped[Array, " rows"]) -> tuple[Shaped[Array, " gaps"], Shaped[Array, "groups dim"]]:
        """The normal and the tangential part of a vector of all rows."""
        return x[: self.gaps], x[self.gaps :].reshape(self.groups, self.dim)

    def join(self, normal: Array, tangential: Array) -> Shaped[Array, " rows"]:
        """The inverse of ``split``."""
        return jnp.concatenate([normal, tangential.reshape(-1)])

    def at_normal(self, normal: Array) -> Array:
        """For each friction force, the entry of its gap; 0 for a given limit."""
        if not self.gaps or not self.groups:
            return jnp.zeros(self.groups, jnp.asarray(normal).dtype)
        index = np.asarray(self.normal_of)
        return jnp.where(index >= 0, normal[np.maximum(index, 0)], 0)


class ContactRows(NamedTuple):
    """The contacts of a system at one state, normal rows first.

    Attributes
    ----------
    gap
        g (gaps,).
    rate
        ġ and slip velocities (rows,).
    J, bias
        ``rate`` changes by J v̇ + bias, (rows, n) and (rows,).
    friction, limit
        The largest friction force is ``friction`` times the contact force plus ``limit`` (groups,).
    static_friction, static_limit
        The same where friction sticks.
    """

    gap: Float[Array, " gaps"]
    rate: Float[Array, " rows"]
    J: Float[Array, "rows n"]
    bias: Float[Array, " rows"]
    friction: Float[Array, " groups"]
    limit: Float[Array, " groups"]
    static_friction: Float[Array, " groups"]
    static_limit: Float[Array, " groups"]


def layout_of(constraints: tuple[AbstractNonsmooth, ...], t: Any, q: Any, v: Any) -> Layout:
    """The numbers of rows, without evaluating anything."""
    gaps, normal_of, dims = 0, [], [1]
    for constraint in constraints:
        m = jax.eval_shape(constraint.gaps, t, q).shape[0]
        groups, dim = jax.eval_shape(constraint.slips, t, q, v).shape
        if groups:
            dims.append(dim)
            normal_of += [gaps + i for i in range(m)] if m else [-1] * groups
        gaps += m
    has_static = any(constraint.has_static for constraint in constraints)
    return Layout(gaps, len(normal_of), max(dims), tuple(normal_of), has_static)


def gaps(constraints: tuple[AbstractNonsmooth, ...], t: Array, q: Float[Array, " nq"]) -> Float[Array, " gaps"]:
    """All gaps g(t, q)."""
    return jnp.concatenate([q[:0], *(constraint.gaps(t, q) for constraint in constraints)])


def restitutions(constraints: tuple[AbstractNonsmooth, ...], t: Array, q: Float[Array, " nq"]) -> Array:
    """The coefficient of restitution of each gap (gaps,)."""
    values = [each.restitutions(jax.eval_shape(each.gaps, t, q).shape[0]).astype(q.dtype) for each in constraints]
    return jnp.concatenate([q[:0], *values])


def contacts_at(
    constraints: tuple[AbstractNonsmooth, ...],
    kinematic_map: KinematicMap | None,
    layout: Layout,
    t: Array,
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
) -> ContactRows:
    """Evaluate all contacts."""
    parts = [each.rows(t, q, v, kinematic_map) for each in constraints]
    with_slip = [(each, part) for each, part in zip(constraints, parts, strict=True) if len(part.slip)]

    def joined(normal, tangential):
        """One array of all rows; friction in a plane has a second component that is zero."""
        padded = [
            jnp.pad(x, ((0, 0), (0, layout.dim - x.shape[1]), *((0, 0) for _ in x.shape[2:]))) for x in tangential
        ]
        flat = [x.reshape(-1, *x.shape[2:]) for x in padded]
        return jnp.concatenate([*normal, *flat])

    groups = [len(part.slip) for _, part in with_slip]
    of_each = list(zip((each for each, _ in with_slip), groups, strict=True))
    frictions = [each.coefficients(k) for each, k in of_each]
    limits = [each.limits(t, q, v, k) for each, k in of_each]
    static_frictions, static_limits = frictions, limits
    if layout.has_static:
        static_frictions = [each.static_coefficients(k) for each, k in of_each]
        static_limits = [each.static_limits(t, q, v, k) for each, k in of_each]
    joined_groups = lambda values: jnp.concatenate([q[:0], *values]).astype(q.dtype)
    slips = [part for _, part in with_slip]
    return ContactRows(
        gap=jnp.concatenate([part.gap for part in parts]),
        rate=joined([part.rate for part in parts], [part.slip for part in slips]),
        J=joined([part.J for part in parts], [part.slip_J for part in slips]),
        bias=joined([part.bias for part in parts], [part.slip_bias for part in slips]),
        friction=joined_groups(frictions),
        limit=joined_groups(limits),
        static_friction=joined_groups(static_frictions),
        static_limit=joined_groups(static_limits),
    )


class Response(NamedTuple):
    """Motion of the contacts under contact forces: row accelerations are W λ + ``free``.

    Attributes
    ----------
    acceleration
        v̇ (n,) without contact forces.
    directions
        Y = J P (rows, n): v̇ changes by λ Y.
    W
        J P Jᵀ (rows, rows), the Delassus operator.
    free
        Row accelerations without contact forces (rows,).
    scale
        1/√W_ii (rows,), the same for the components of one friction force; 1 for rows that no force can move.
    movable
        Whether a force can move the row (rows,).
    needs_fallback
        Whether the method for M and A was not applicable.
    """

    acceleration: Float[Array, " n"]
    directions: Float[Array, "rows n"]
    W: Float[Array, "rows rows"]
    free: Float[Array, " rows"]
    scale: Float[Array, " rows"]
    movable: Array
    needs_fallback: Array


def response_of(terms: Terms, contacts: ContactRows, layout: Layout, method: AbstractMethod) -> Response:
    """The response of the constrained motion of ``terms`` to contact forces."""
    terms = terms.in_one_precision()
    M, A, b = symmetric(terms.M), terms.A, terms.b
    force = terms.Q if terms.c is None else terms.Q + terms.c
    factors = method.factorise(*jax.lax.stop_gradient((M, A)))
    acceleration = solve(M, A, force, b, factors)
    directions = jax.vmap(lambda row: solve(M, A, row, jnp.zeros_like(b), factors))(contacts.J)
    W = contacts.J @ directions.T
    size = jax.lax.stop_gradient(jnp.diagonal(W))
    normal, tangential = layout.split(size)
    size = layout.join(normal, jnp.broadcast_to(jnp.max(tangential, axis=1, keepdims=True), tangential.shape))
    movable = size > FORCE_FREE_LENGTH**2 * jnp.sum(contacts.J**2, axis=1) * jnp.max(size, initial=0)
    scale = jnp.where(movable, jax.lax.rsqrt(jnp.where(movable, size, 1)), 1)
    return Response(
        acceleration, directions, W, contacts.J @ acceleration + contacts.bias, scale, movable, factors.needs_fallback
    )
