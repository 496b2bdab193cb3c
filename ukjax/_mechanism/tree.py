"""The spanning tree of a mechanism: which joints carry bodies and which close loops, from names alone."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from .._errors import InputError
from .._names import did_you_mean
from ..joints import AbstractActing, AbstractConnection, AbstractCoupling, AbstractJoint

GROUND = "ground"


class Link(NamedTuple):
    """A body and the joint that carries it.

    Attributes
    ----------
    body : str
        Name of the body.
    joint : str or None
        Name of the joint that carries it; None for a floating body.
    parent : str
        Name of the body that carries it, or "ground".
    reverse : bool
        Whether ``body`` is the parent of the joint instead of its child.
    first, size : int
        Index of its first velocity, and number of its velocities.
    first_of_q, size_of_q : int
        Index of its first coordinate, and number of its coordinates.
    modal : bool
        Whether these are the modal coordinates of a flexible body, which all its nodes share.
    """

    body: str
    joint: str | None
    parent: str
    reverse: bool
    first: int
    size: int
    first_of_q: int
    size_of_q: int
    modal: bool = False

    @property
    def velocities(self) -> range:
        return range(self.first, self.first + self.size)

    @property
    def coordinates(self) -> range:
        return range(self.first_of_q, self.first_of_q + self.size_of_q)


class Modal(NamedTuple):
    """The ``size`` modal coordinates of a flexible ``body``, from the velocity ``first`` and ``first_of_q`` on.

    They come after the coordinates of all joints that carry bodies.
    """

    body: str
    first: int
    first_of_q: int
    size: int

    @property
    def velocities(self) -> range:
        return range(self.first, self.first + self.size)

    @property
    def coordinates(self) -> range:
        return range(self.first_of_q, self.first_of_q + self.size)


class Counted(NamedTuple):
    """A ``joint`` that closes a loop and whose angles must be known beyond half a turn.

    Its ``size`` coordinates are coordinates of the mechanism from index ``first_of_q`` on, after all others.
    They have no additional velocities.
    """

    joint: str
    first_of_q: int
    size: int

    @property
    def coordinates(self) -> range:
        return range(self.first_of_q, self.first_of_q + self.size)


class Tree(NamedTuple):
    """The spanning tree of a mechanism.

    Attributes
    ----------
    links : tuple of Link
        All bodies, and the nodes of flexible bodies, each after the body that carries it.
    closures : tuple of str
        Names of the joints that close loops.
    counted : tuple of Counted
        Those of them whose turns are counted.
    modal : tuple of Modal
        The modal coordinates of the flexible bodies.
    """

    links: tuple[Link, ...]
    closures: tuple[str, ...]
    counted: tuple[Counted, ...] = ()
    modal: tuple[Modal, ...] = ()

    @property
    def n(self) -> int:
        """The number of velocities."""
        return sum(link.size for link in self.links if not link.modal) + sum(modal.size for modal in self.modal)

    @property
    def nq(self) -> int:
        """The number of coordinates."""
        return self.counted_from + sum(joint.size for joint in self.counted)

    @property
    def counted_from(self) -> int:
        """The number of coordinates of links and modes; those of counted joints follow."""
        return sum(link.size_of_q for link in self.links if not link.modal) + sum(modal.size for modal in self.modal)

    def link_of_joint(self, joint: str) -> Link | None:
        """The link that this joint carries, or None if it closes a loop."""
        return next((link for link in self.links if link.joint == joint), None)

    def ancestors(self) -> dict[str, tuple[int, ...]]:
        """For each body the indices of the links from the ground to it, its own link last."""
        paths: dict[str, tuple[int, ...]] = {GROUND: ()}
        for i, link in enumerate(self.links):
            paths[link.body] = (*paths[link.parent], i)
        return paths


def spanning_tree(
    bodies: tuple[str, ...],
    joints: Mapping[str, Any],
    floating: Any,
    absolute: bool,
    deflections: Mapping[str, Mapping[str, Any]],
    servos: Collection[str] = (),
) -> Tree:
    """Construct the spanning tree.

    The joints are processed in order: each carries the body that is not carried yet, or closes a loop. A body that is
    not connected to the ground floats, with the joint type ``floating``. With ``absolute`` all bodies float.

    ``deflections`` has, for each flexible body, the joints that carry its nodes. A joint that reaches the body also
    reaches all its nodes; one that reaches a node also reaches the body and the other nodes. ``servos`` are the names
    of joints with a motor whose force depends on their coordinate.
    """
    links: list[Link] = []
    reached, remaining = {GROUND}, dict(joints) if not absolute else {}
    remaining = {name: joint for name, joint in remaining.items() if isinstance(joint, AbstractJoint)}
    body_of_node: dict[Any, str] = {node: body for body, nodes in deflections.items() for node in nodes}

    def carry(body, joint, parent, reverse, kind):
        carry_one(body, joint, parent, reverse, kind)
        root: Any = body_of_node.get(body, body)
        for node, deflection in deflections.get(root, {}).items():
            if node == body:
                carry_one(root, node, node, True, deflection, modal=True)
        for node, deflection in deflections.get(root, {}).items():
            if node not in reached:
                carry_one(node, node, root, False, deflection, modal=True)

    def carry_one(body, joint, parent, reverse, kind, modal=False):
        first, first_of_q = _ends(links)
        sizes = len(kind.velocities), first_of_q, len(kind.coordinates)
        links.append(Link(body, joint, parent, reverse, first, *sizes, modal))
        reached.add(body)

    def grow():
        next_joint = next(
            ((name, joint) for name, joint in remaining.items() if reached & {joint.parent, joint.child}), None
        )
        while next_joint is not None:
            name, joint = next_joint
            del remaining[name]
            if joint.child not in reached:
                carry(joint.child, name, joint.parent, False, joint)
            elif joint.parent not in reached:
                carry(joint.parent, name, joint.child, True, joint)
            next_joint = next(
                ((name, joint) for name, joint in remaining.items() if reached & {joint.parent, joint.child}), None
            )

    grow()
    for body in bodies:
        if body not in reached:
            carry(body, None, GROUND, False, floating)
            grow()
    modal: list[Modal] = []
    first_velocity, first = _ends(links)
    for body in deflections:
        size = next(link.size for link in links if link.modal and body_of_node[link.joint] == body)
        modal.append(Modal(body, first_velocity, first, size))
        first_velocity, first = first_velocity + size, first + size
    places = {each.body: dict(first=each.first, first_of_q=each.first_of_q) for each in modal}
    links = [link._replace(**places[body_of_node[link.joint]]) if link.modal else link for link in links]
    carrying = {link.joint for link in links}
    closures = tuple(name for name, joint in connections(joints) if name not in carrying)
    counted: list[Counted] = []
    coupled = {name for joint in joints.values() if isinstance(joint, AbstractCoupling) for name in joint.joints}
    for name in closures:
        if _needs_turns(joints[name], name in coupled or name in servos):
            counted.append(Counted(name, first, len(joints[name].coordinates)))
            first += counted[-1].size
    return Tree(tuple(links), closures, tuple(counted), tuple(modal))


def _ends(links):
    """The numbers of velocities and of coordinates of these links, without modal coordinates."""
    own = [link for link in links if not link.modal]
    return (own[-1].velocities.stop, own[-1].coordinates.stop) if own else (0, 0)


def _needs_turns(joint, coupled):
    """Whether a spring, a stop, or a coupling or servo motor (``coupled``) needs the angle beyond half a turn."""
    is_angle = isinstance(joint, AbstractActing) and joint.within_half_a_turn
    return is_angle and (coupled or joint.stiffness is not None or joint.preload is not None or _stops_far(joint))


def _stops_far(joint):
    """Whether a joint has a stop at half a turn or beyond."""
    if not isinstance(joint, AbstractJoint) or joint.limits is None or joint.restitution is None:
        return False
    low, high = joint.limits
    return not -np.pi < low <= high < np.pi


def connections(joints: Mapping[str, Any]) -> Iterator[tuple[str, AbstractConnection]]:
    """The joints that connect two bodies, with their names."""
    return ((name, joint) for name, joint in joints.items() if isinstance(joint, AbstractConnection))


def check_names(bodies: tuple[str, ...], joints: Mapping[str, Any]) -> None:
    """Raise ``InputError`` if a joint refers to a body or a joint that does not exist."""
    for name, joint in joints.items():
        if isinstance(joint, AbstractCoupling):
            for other in joint.joints:
                has_one_coordinate = (
                    isinstance(joints.get(other), AbstractJoint) and len(joints[other].coordinates) == 1
                )
                if other not in joints:
                    raise InputError(f"joints[{name!r}] refers to no joint {other!r}{did_you_mean(other, joints)}")
                if not has_one_coordinate:
                    raise InputError(f"joints[{name!r}] must refer to joints with one coordinate, unlike {other!r}")
            continue
        for end in (joint.parent, joint.child):
            if end != GROUND and end not in bodies:
                hint = did_you_mean(end, (*bodies, GROUND))
                raise InputError(f"joints[{name!r}] must join existing bodies, got {end!r}{hint}")
        if joint.parent == joint.child:
            raise InputError(f"joints[{name!r}] must join two bodies, got {joint.parent!r} twice")
