"""Contacts of the bodies of a mechanism, as a nonsmooth constraint."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._check import kind_of
from .._constraint import AbstractNonsmooth
from .._errors import InputError
from .._kinematic_map import rate
from .._names import did_you_mean
from ..contacts import AbstractShape, Contact
from ..contacts.touching import touching
from .alike import grouped
from .kinematics import placed
from .named import Named
from .tree import GROUND, Tree
from .turning import kinematic_map_of


class Pair(eqx.Module):
    """The two shapes of a contact. Without the names of their bodies, pairs that differ only in numbers are alike."""

    a: AbstractShape
    b: AbstractShape

    @classmethod
    def of(cls, contact: Contact) -> "Pair":
        """The pair of a contact."""
        return cls(replace(contact.a, body=""), replace(contact.b, body=""))

    def gap(self, R: Float[Array, "3 3"], p: Float[Array, " 3"]) -> Float[Array, " k"]:
        """The gaps, for the pose R, p of the body of a in the frame of the body of b."""
        return touching(self.a, self.b, R, p).gap

    def slip(self, R: Array, p: Array, R_dot: Array, p_dot: Array) -> Float[Array, "k 2"]:
        """Velocity of a relative to b at the points of contact, along two tangents of each [m/s]."""
        at = touching(self.a, self.b, R, p)
        of_points = p_dot + (at.point - p) @ R @ R_dot.T
        return (at.tangents @ of_points[:, :, None])[:, :, 0]


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

    def slips(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "groups 2"] | None:
        if self.contacts[0].friction is None:
            return None
        along = jnp.ones_like(t), rate(kinematic_map_of(self.joints, self.tree), q, v)
        poses, rates = jax.jvp(self._poses, (t, q), along)
        return self._for_each_pair(Pair.slip, *poses, *rates)

    def restitutions(self, m: int) -> Float[Array, " m"]:
        return self._for_each_gap([contact.restitution for contact in self.contacts])

    def coefficients(self, groups: int) -> Float[Array, " groups"]:
        return self._for_each_gap([contact.friction for contact in self.contacts])

    def limits(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], groups: int) -> Float[Array, " groups"]:
        return jnp.zeros(groups, q.dtype)

    def _poses(self, t, q) -> tuple[Float[Array, "contacts 3 3"], Float[Array, "contacts 3"]]:
        """The pose of the body of a in the frame of the body of b, for each contact."""
        positions = placed(self.joints, self.tree, t, q)
        number = {link.body: i for i, link in enumerate(self.tree.links)} | {GROUND: len(self.tree.links)}
        a, b = np.array([[number[shape.body] for shape in (contact.a, contact.b)] for contact in self.contacts]).T
        if np.all(b == number[GROUND]):
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


def as_contacts(contacts: Any, bodies: Named) -> tuple[Contact, ...]:
    """Convert a user's contacts to a tuple. Raises ``InputError`` for anything else, and for unknown bodies."""
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
                known = (*bodies.names, GROUND)
                raise InputError(
                    f"contacts[{i}] has a {type(shape).__name__} on {shape.body!r}, which is no body"
                    f"{did_you_mean(shape.body, known)}"
                )
    return contacts
