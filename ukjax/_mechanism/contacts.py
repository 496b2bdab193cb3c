"""Contacts of the bodies of a mechanism, as a nonsmooth constraint."""

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._check import kind_of
from .._constraint import AbstractNonsmooth, NonsmoothRows
from .._errors import InputError
from .._kinematic_map import KinematicMap, rate
from .._names import did_you_mean
from .._rotation import skew
from ..contacts import AbstractShape, Contact
from ..contacts.touching import touching
from ..joints import AbstractConnection
from .alike import grouped
from .between import Connections, Ends
from .kinematics import placed
from .named import Named
from .tree import GROUND, Tree
from .turning import kinematic_map_of


class Pair(AbstractConnection):
    """The two shapes of a contact as a connection: shape a on the child, shape b on the parent.

    Without the names of bodies, pairs that differ only in numbers are alike.
    """

    _: KW_ONLY
    a: AbstractShape
    b: AbstractShape
    rows: ClassVar[Any] = ()

    @classmethod
    def of(cls, contact: Contact) -> "Pair":
        """The pair of a contact."""
        a, b = contact.a, contact.b
        return cls(b.body, a.body, a=replace(a, body=""), b=replace(b, body=""))

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " k"]:
        return self.gap(R, p)

    def gap(self, R: Float[Array, "3 3"], p: Float[Array, " 3"]) -> Float[Array, " k"]:
        """The gaps, for the pose R, p of the body of a in the frame of the body of b."""
        return touching(self.a, self.b, R, p).gap

    def slip(self, R: Array, p: Array, R_dot: Array, p_dot: Array) -> Float[Array, "k 2"]:
        """Velocity of a relative to b at the points of contact, along two tangents of each [m/s]."""
        at = touching(self.a, self.b, R, p)
        of_points = p_dot + (at.point - p) @ R @ R_dot.T
        return (at.tangents @ of_points[:, :, None])[:, :, 0]

    def rates(self, R: Array, p: Array, R_dot: Array, p_dot: Array, with_slip: bool) -> Float[Array, " j"]:
        """Rates of the gaps, followed by the slips if there is friction."""
        rate = jax.jvp(self.gap, (R, p), (R_dot, p_dot))[1]
        return jnp.concatenate([rate, self.slip(R, p, R_dot, p_dot).ravel()]) if with_slip else rate


class BodyContacts(AbstractNonsmooth):
    """Contacts of bodies that all have friction, or all have none."""

    joints: Named
    contacts: tuple[Contact, ...]
    tree: Tree = eqx.field(static=True)
    name: tuple[str, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, contacts: Sequence[Contact], joints: Named, tree: Tree) -> "BodyContacts":
        """The contacts, with a name for each gap."""
        names = []
        for contact in contacts:
            count = contact.points
            names += [contact.name] if count == 1 else [f"{contact.name}[{i}]" for i in range(count)]
        return cls(joints=joints, contacts=tuple(contacts), tree=tree, name=tuple(names))

    def gaps(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, " m"]:
        return self._for_each_pair(Pair.gap, *self._poses(t, q))

    def slips(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "groups d"]:
        if not self._has_friction():
            return super().slips(t, q, v)
        along = jnp.ones_like(t), rate(kinematic_map_of(self.joints, self.tree), q, v)
        poses, rates = jax.jvp(self._poses, (t, q), along)
        return self._for_each_pair(Pair.slip, *poses, *rates)

    def rows(
        self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], kinematic_map: KinematicMap | None
    ) -> NonsmoothRows:
        names = tuple(f"contact {i}" for i in range(len(self.contacts)))
        pairs = tuple(map(Pair.of, self.contacts))
        joints = Named((*self.joints.names, *names), (*self.joints.things, *pairs))
        with_slip = self._has_friction()

        def evaluate(pair, parent, child, same_tree):
            ends = Ends.of(pair, parent.placed, child.placed, same_tree)
            rates = ends.rates(parent, child, same_tree)
            of_pose = lambda R, p, R_dot, p_dot: pair.rates(R, p, R_dot, p_dot, with_slip)
            first, second = rates.first(ends), rates.second(ends)
            value, bias = jax.jvp(of_pose, (ends.R, ends.p, *first), (*first, *second))
            of_twist = lambda x: of_pose(ends.R, ends.p, skew(x[:3]) @ ends.R, x[3:])  # linear
            slopes = jax.vmap(of_twist, out_axes=1)(jnp.eye(6, dtype=q.dtype))
            return pair.gap(ends.R, ends.p), value, bias, ends.wrenches(slopes)

        found = Connections(joints, self.tree, names).evaluate(evaluate, t, q, v)
        normal, tangential = self._rows_of_pairs(with_slip)
        of_gaps = (x[normal] for x in (found.rate, found.A, found.second))
        of_slips = (x[tangential] for x in (found.rate, found.A, found.second))
        return NonsmoothRows(found.value, *of_gaps, *of_slips)

    def points(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, "m 3"]:
        """The points at which the shapes touch, or would touch, in space [m]."""
        positions = placed(self.joints, self.tree, t, q)
        b = self._bodies()[:, 1]
        in_space = lambda pair, R, p, axes, origin: origin + touching(pair.a, pair.b, R, p).point @ axes.T
        return self._for_each_pair(in_space, *self._poses(t, q), positions.R[b], positions.p[b])

    def directions(self, t: Array, q: Float[Array, " nq"]) -> Float[Array, "m 3 3"]:
        """For each gap the normal, from the body of b to that of a, and two tangents, as rows, in space."""
        axes = placed(self.joints, self.tree, t, q).R[self._bodies()[:, 1]]

        def in_space(pair, R, p, axes):
            tangents = touching(pair.a, pair.b, R, p).tangents @ axes.T
            normal = jnp.cross(tangents[:, 0], tangents[:, 1])
            return jnp.concatenate([normal[:, None], tangents], axis=1)

        return self._for_each_pair(in_space, *self._poses(t, q), axes)

    def _rows_of_pairs(self, with_slip) -> tuple[np.ndarray, np.ndarray]:
        """Indices (m,) of the gaps and (groups, 2) of the slips among the rows in the order of the pairs."""
        normal, tangential, first = [], [], 0
        for contact in self.contacts:
            k = contact.points
            normal += range(first, first + k)
            tangential += range(first + k, first + 3 * k) if with_slip else ()
            first += 3 * k if with_slip else k
        return np.array(normal, int), np.array(tangential, int).reshape(-1, 2)

    def _has_friction(self) -> bool:
        return self.contacts[0].friction is not None

    def restitutions(self, m: int) -> Float[Array, " m"]:
        return self._for_each_gap([contact.restitution for contact in self.contacts])

    def coefficients(self, groups: int) -> Float[Array, " groups"]:
        return self._for_each_gap([contact.friction for contact in self.contacts])

    def _bodies(self) -> np.ndarray:
        """Indices (contacts, 2) of the bodies of a and b among the links, and their number for the ground."""
        number = {link.body: i for i, link in enumerate(self.tree.links)} | {GROUND: len(self.tree.links)}
        return np.array([[number[shape.body] for shape in (contact.a, contact.b)] for contact in self.contacts])

    @property
    def has_static(self) -> bool:
        return any(contact.static_friction is not None for contact in self.contacts)

    def static_coefficients(self, groups: int) -> Float[Array, " groups"]:
        static = ((contact.friction, contact.static_friction) for contact in self.contacts)
        return self._for_each_gap([sliding if value is None else value for sliding, value in static])

    def _poses(self, t, q) -> tuple[Float[Array, "contacts 3 3"], Float[Array, "contacts 3"]]:
        """The pose of the body of a in the frame of the body of b, for each contact."""
        positions = placed(self.joints, self.tree, t, q)
        a, b = self._bodies().T
        if np.all(b == len(self.tree.links)):
            return positions.R[a], positions.p[a]
        apart = positions.base[a] - positions.base[b] + (positions.d[a] - positions.d[b])
        axes = positions.R[b].transpose(0, 2, 1)
        return axes @ positions.R[a], (axes @ apart[:, :, None])[:, :, 0]

    def _for_each_pair(self, function, *numbers):
        """Evaluate ``function(pair, *numbers)`` for each contact, and concatenate the results."""
        counts = [contact.points for contact in self.contacts]
        rows = np.split(np.arange(sum(counts)), np.cumsum(counts)[:-1])
        first, *others = grouped(map(Pair.of, self.contacts))
        flat = lambda part: part.reshape(-1, *part.shape[2:])
        if not others:
            return flat(eqx.filter_vmap(function)(first.things, *numbers))
        parts = [
            flat(eqx.filter_vmap(function)(group.things, *(x[group.places] for x in numbers)))
            for group in (first, *others)
        ]
        places = np.concatenate([rows[i] for group in (first, *others) for i in group.places])
        return jnp.concatenate(parts)[np.argsort(places)]

    def _for_each_gap(self, values):
        return jnp.stack(values)[np.repeat(np.arange(len(values)), [contact.points for contact in self.contacts])]


def contacts_of(contacts: Sequence[Contact], joints: Named, tree: Tree) -> tuple[AbstractNonsmooth, ...]:
    """The contacts as constraints: those with friction, then those without."""
    kinds = (
        [contact for contact in contacts if contact.friction is not None],
        [contact for contact in contacts if contact.friction is None],
    )
    return tuple(BodyContacts.of(members, joints, tree) for members in kinds if members)


def as_contacts(contacts: Any, bodies: tuple[str, ...]) -> tuple[Contact, ...]:
    """Convert a user's contacts to a tuple. Raises ``InputError`` for anything else, and for unknown ``bodies``."""
    if isinstance(contacts, Contact):
        contacts = (contacts,)
    if not isinstance(contacts, Iterable) or isinstance(contacts, str):
        raise InputError(f"contacts must be several ukjax.contacts.Contact, got {kind_of(contacts)}")
    contacts = tuple(contacts)
    for i, contact in enumerate(contacts):
        if not isinstance(contact, Contact):
            raise InputError(f"contacts[{i}] must be a ukjax.contacts.Contact, got {kind_of(contact)}")
        for shape in (contact.a, contact.b):
            if shape.body != GROUND and shape.body not in bodies:
                known = (*bodies, GROUND)
                raise InputError(
                    f"contacts[{i}] has a {type(shape).__name__} on {shape.body!r}, which is not a body"
                    f"{did_you_mean(shape.body, known)}"
                )
    return contacts
