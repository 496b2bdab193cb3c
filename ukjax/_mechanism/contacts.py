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
from .._constraint import AbstractNonsmooth
from .._errors import InputError
from .._kinematic_map import rate
from .._names import did_you_mean
from ..contacts import AbstractShape, Contact
from ..contacts.touching import touching
from ..joints import AbstractConnection
from .between import Connections
from .named import Named
from .tree import GROUND, Tree
from .turning import kinematic_map_of


class Pair(AbstractConnection):
    """The two shapes of a contact as a connection: that of a on the child, that of b on the parent."""

    _: KW_ONLY
    a: AbstractShape
    b: AbstractShape
    rows: ClassVar[Any] = ()

    @classmethod
    def of(cls, contact: Contact) -> "Pair":
        """The pair of a contact. Without the names of bodies, pairs that differ only in numbers are alike."""
        a, b = contact.a, contact.b
        return cls(b.body, a.body, a=replace(a, body=""), b=replace(b, body=""))

    def residual(self, t: Array, R: Array, p: Array) -> Float[Array, " k"]:
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
        return self._pairs().value(_gaps, t, q)

    def slips(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, "groups 2"] | None:
        if self.contacts[0].friction is None:
            return None
        along = jnp.ones_like(t), rate(kinematic_map_of(self.joints, self.tree), q, v)
        poses, rates = jax.jvp(lambda t, q: self._pairs().value(_pose, t, q), (t, q), along)
        by_pair = lambda x: jnp.split(x.reshape(-1, 12), [9], axis=1)
        slips = []
        for contact, R, p, R_dot, p_dot in zip(self.contacts, *by_pair(poses), *by_pair(rates), strict=True):
            slips.append(Pair.of(contact).slip(R.reshape(3, 3), p, R_dot.reshape(3, 3), p_dot))
        return jnp.concatenate(slips)

    def restitutions(self, m: int) -> Float[Array, " m"]:
        return self._for_each_gap([contact.restitution for contact in self.contacts])

    def coefficients(self, groups: int) -> Float[Array, " groups"]:
        return self._for_each_gap([contact.friction for contact in self.contacts])

    def limits(self, t: Array, q: Float[Array, " nq"], v: Float[Array, " n"], groups: int) -> Float[Array, " groups"]:
        return jnp.zeros(groups, q.dtype)

    def _pairs(self) -> Connections:
        names = tuple(f"contact {i}" for i in range(len(self.contacts)))
        pairs = tuple(Pair.of(contact) for contact in self.contacts)
        return Connections(Named((*self.joints.names, *names), (*self.joints.things, *pairs)), self.tree, names)

    def _for_each_gap(self, values):
        return jnp.stack(values)[np.repeat(np.arange(len(values)), [contact.points for contact in self.contacts])]


def _gaps(pair, t, R, p):
    return pair.residual(t, R, p)


def _pose(pair, t, R, p):
    return jnp.concatenate([R.ravel(), p])


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
