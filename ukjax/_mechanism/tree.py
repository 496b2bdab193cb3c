"""Which joints carry the bodies and which close loops: found once, from names alone."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from .._names import did_you_mean
from ..joints import AbstractActing, AbstractConnection, AbstractCoupling, AbstractJoint

GROUND = "ground"


class Link(NamedTuple):
    """A body and what carries it.

    ``joint`` is the joint's name, or None where the body floats; ``parent`` the body that it hangs on, or the ground;
    ``reverse`` whether the joint was written the other way round; its velocities are the ``size`` from ``first`` on,
    its coordinates the ``size_of_q`` from ``first_of_q`` on.
    """

    body: str
    joint: str | None
    parent: str
    reverse: bool
    first: int
    size: int
    first_of_q: int
    size_of_q: int

    @property
    def velocities(self) -> range:
        return range(self.first, self.first + self.size)

    @property
    def coordinates(self) -> range:
        return range(self.first_of_q, self.first_of_q + self.size_of_q)


class Counted(NamedTuple):
    """A ``joint`` that closes a loop and whose angles must be known beyond half a turn: its ``size`` coordinates are
    those of the mechanism from ``first_of_q`` on, after those of all links. No velocity belongs to them."""

    joint: str
    first_of_q: int
    size: int

    @property
    def coordinates(self) -> range:
        return range(self.first_of_q, self.first_of_q + self.size)


class Tree(NamedTuple):
    """``links`` in an order in which each body comes after the one that carries it, the names of the joints that
    close loops, and those of them whose turns are ``counted``."""

    links: tuple[Link, ...]
    closures: tuple[str, ...]
    counted: tuple[Counted, ...] = ()

    @property
    def n(self) -> int:
        """The number of velocities."""
        return sum(link.size for link in self.links)

    @property
    def nq(self) -> int:
        """The number of coordinates."""
        return sum(link.size_of_q for link in self.links) + sum(joint.size for joint in self.counted)

    def link_of_joint(self, joint: str) -> Link | None:
        """The link of a joint that carries a body."""
        return next((link for link in self.links if link.joint == joint), None)

    def ancestors(self) -> dict[str, tuple[int, ...]]:
        """For each body the numbers of the links between the ground and it, its own the last."""
        found: dict[str, tuple[int, ...]] = {GROUND: ()}
        for i, link in enumerate(self.links):
            found[link.body] = (*found[link.parent], i)
        return found


def spanning_tree(bodies: tuple[str, ...], joints: Mapping[str, Any], floating: Any, absolute: bool) -> Tree:
    """The joints in their order, each carrying the body that nothing carries yet, and closing a loop where there is
    none. What cannot be reached from the ground floats, by the joint ``floating``; with ``absolute`` all bodies do."""
    links: list[Link] = []
    placed, left = {GROUND}, dict(joints) if not absolute else {}
    left = {name: joint for name, joint in left.items() if isinstance(joint, AbstractJoint)}

    def carry(body, joint, parent, reverse, kind):
        first, first_of_q = (links[-1].velocities.stop, links[-1].coordinates.stop) if links else (0, 0)
        sizes = len(kind.velocities), first_of_q, len(kind.coordinates)
        links.append(Link(body, joint, parent, reverse, first, *sizes))
        placed.add(body)

    def grow():
        found = next(((name, joint) for name, joint in left.items() if placed & {joint.parent, joint.child}), None)
        while found is not None:
            name, joint = found
            del left[name]
            if joint.child not in placed:
                carry(joint.child, name, joint.parent, False, joint)
            elif joint.parent not in placed:
                carry(joint.parent, name, joint.child, True, joint)
            found = next(((name, joint) for name, joint in left.items() if placed & {joint.parent, joint.child}), None)

    grow()
    for body in bodies:
        if body not in placed:
            carry(body, None, GROUND, False, floating)
            grow()
    carrying = {link.joint for link in links}
    closures = tuple(name for name, joint in connections(joints) if name not in carrying)
    counted: list[Counted] = []
    first = links[-1].coordinates.stop if links else 0
    coupled = {name for joint in joints.values() if isinstance(joint, AbstractCoupling) for name in joint.joints}
    for name in closures:
        if _needs_turns(joints[name], name in coupled):
            counted.append(Counted(name, first, len(joints[name].coordinates)))
            first += counted[-1].size
    return Tree(tuple(links), closures, tuple(counted))


def _needs_turns(joint, coupled):
    """Whether the whole angle matters, not only its value within a turn: to a spring, or to a coupling."""
    angles = isinstance(joint, AbstractActing) and joint.within_half_a_turn
    return angles and (coupled or joint.stiffness is not None)


def connections(joints: Mapping[str, Any]) -> Iterator[tuple[str, AbstractConnection]]:
    """Those of the joints that are between two bodies."""
    return ((name, joint) for name, joint in joints.items() if isinstance(joint, AbstractConnection))


def check_names(bodies: tuple[str, ...], joints: Mapping[str, Any]) -> None:
    """Every body and joint that a joint speaks of is there, or ``ValueError``."""
    for name, joint in joints.items():
        if isinstance(joint, AbstractCoupling):
            for other in joint.joints:
                plain = isinstance(joints.get(other), AbstractJoint) and len(joints[other].coordinates) == 1
                if other not in joints:
                    raise ValueError(f"joints[{name!r}] is about a joint {other!r}{did_you_mean(other, joints)}")
                if not plain:
                    raise ValueError(f"joints[{name!r}] needs a joint with one coordinate, which {other!r} has not")
            continue
        for end in (joint.parent, joint.child):
            if end != GROUND and end not in bodies:
                hint = did_you_mean(end, (*bodies, GROUND))
                raise ValueError(f"joints[{name!r}] names a body {end!r} that is not there{hint}")
        if joint.parent == joint.child:
            raise ValueError(f"joints[{name!r}] must join two bodies, got {joint.parent!r} twice")
