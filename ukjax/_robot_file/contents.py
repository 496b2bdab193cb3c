"""The contents of a robot description file, independent of its format."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from .._errors import InputError
from .._mechanism import Actuator, Body, Mechanism, Shape, is_reserved
from .._precision import as_float
from ..contacts import Contact, Plane
from .inertia import Inertia
from .markup import Place

HINTS = {
    "<limit>": "stops=True",
    "<joint range>": "stops=True",
    "<collision>": "contacts=ukjax.contacts.Plane()",
    "contacts of <geom>": "contacts=True",
    "<contact>": "contacts=True",
    "<actuator> that holds its joint": "robot.driven(robot.motors(...))",
}
"""How each of these elements can be modelled: an option of ``ukjax.load``, or the motors of the mechanism."""


class Modelled(NamedTuple):
    """Which optional contents of a file are modelled, as in ``ukjax.load``."""

    stops: bool = False
    contacts: bool | Plane = False
    friction: Any = None
    restitution: Any = 0.0


class Contents(NamedTuple):
    """Contents of a robot description file.

    Attributes
    ----------
    path : Path
        The file.
    title : str
        Name of the robot in the file.
    bodies, joints, gravity, actuators
        Arguments of ``ukjax.Mechanism``.
    places : dict of str to Place
        Place of each joint in the file.
    ignored : dict of str to list of int or None
        Descriptions of elements that are not modelled, with their lines.
    suspicious : dict of str to list of int or None
        Descriptions of unknown elements, and of values that may be mistakes, with their lines.
    contacts : tuple of Contact
        Contacts of the bodies.
    modelled : Modelled
        Which optional contents of the file are modelled.
    """

    path: Path
    title: str
    bodies: Mapping[str, Body]
    joints: Mapping[str, Any]
    gravity: np.ndarray
    actuators: tuple[Actuator, ...]
    places: Mapping[str, Place]
    ignored: Mapping[str, list[int | None]]
    suspicious: Mapping[str, list[int | None]] = {}
    contacts: tuple[Contact, ...] = ()
    modelled: Modelled = Modelled()

    def mechanism(self, formulation: Any = "joint") -> Mechanism:
        """Construct the mechanism. Raises ``InputError`` if the file has no bodies or nothing can move."""
        if not self.bodies:
            raise InputError(f"{self.path}: has no bodies")
        mechanism = Mechanism(
            self.bodies,
            self.joints,
            self.gravity,
            formulation=formulation,
            contacts=self.contacts,
            actuators=self.actuators,
            title=self.title,
        )
        if self.modelled.stops:
            mechanism = mechanism.with_stops(self.modelled.restitution)
        if not mechanism.tree.n:
            raise InputError(
                f"{self.path}: nothing moves, since all joints are fixed: floating=True frees the root of a URDF"
            )
        return mechanism

    def warning_text(self, mechanism: Mechanism) -> str:
        """One line that lists what is not modelled and what may be a mistake; empty if there is nothing to list."""

        def join(descriptions):
            words = []
            for description, lines in descriptions.items():
                hint = [f"modelled with {HINTS[description]}"] if description in HINTS else []
                brackets = "; ".join([*([where(lines, 3)] if lines else []), *hint])
                words.append(f"{description} ({brackets})" if brackets else description)
            return ", ".join(words)

        parts = [f"what is not modelled: {join(self.ignored)}"] if self.ignored else []
        suspicious = {**self.suspicious, **self.without_mass(mechanism)}
        parts += [f"what is not known or may be a mistake: {join(suspicious)}"] if suspicious else []
        return f"{self.path} has {'; and '.join(parts)}" if parts else ""

    def without_mass(self, mechanism: Mechanism) -> dict[str, list[int | None]]:
        """Joints that move no mass, as descriptions with lines.

        A mechanism with such a joint has poses, but its accelerations are not determined.
        """
        if not any(float(body.mass) > 0 for _, body in mechanism.bodies.items()):
            return {"no body with a mass: poses, but no motion": []}
        descriptions: dict[str, list[int | None]] = {}
        bodies_carried: dict[str, set[str]] = {name: {name} for name in mechanism.bodies}
        for link in reversed(mechanism.tree.links):
            if link.parent in bodies_carried:
                bodies_carried[link.parent] |= bodies_carried[link.body]
        joints: dict[str, Any] = dict(mechanism.joints.items())
        ends_of_loops = {end for name in mechanism.tree.closures for end in (joints[name].parent, joints[name].child)}
        coupled_joints = {name_of_joint for joint in joints.values() for name_of_joint in getattr(joint, "joints", ())}
        for link in mechanism.tree.links:
            has_mass = any(float(mechanism.bodies[name].mass) > 0 for name in bodies_carried[link.body])
            if (
                has_mass
                or not link.size
                or link.joint is None
                or link.joint in coupled_joints
                or bodies_carried[link.body] & ends_of_loops
            ):
                continue
            if joints[link.joint].armature is None:
                place = self.places[link.joint]
                description = (
                    f"{place.what} moves {link.body!r}, which has no mass and carries none: poses, but no motion"
                )
                descriptions[description] = [place.line]
        return descriptions


def body_of(inertia: Inertia, shapes: Iterable[Shape] = (), buoyancy: float | None = None) -> Body:
    """A body with an inertia that need not satisfy the triangle inequality of principal moments.

    Moments must not be negative. In many files, small parts of heavier assemblies have impossible inertias. ``ukjax
    check`` reports them.
    """
    moments = inertia.numbers()
    moments = np.where(np.abs(moments) < 1e-15 * inertia.mass, 0, moments)  # rounding: radius of gyration of 30 nm
    body = Body(inertia.mass, inertia.centre, moments[:3], shapes, buoyancy)
    return eqx.tree_at(lambda body: body.inertia, body, as_float(moments))


class UniqueNames:
    """Unique Python identifiers for the names in a file. ``[name]`` returns the identifier of a name."""

    def __init__(self, kind: str):
        self.kind = kind
        self._taken: set[str] = set()
        self._by_name: dict[str, str] = {}

    def new(self, name: str) -> str:
        """Create an identifier for ``name``. Characters other than letters, digits and _ become _."""
        word = re.sub(r"\W", "_", name)
        if not word or not (word[0].isalpha() and word.isidentifier()):
            word = f"{self.kind}_{word.lstrip('_')}" if word.strip("_") else self.kind
        if is_reserved(word):
            word += "_"
        identifier = self.unused(word)
        self._taken.add(identifier)
        self._by_name.setdefault(name, identifier)
        return identifier

    def unused(self, word: str) -> str:
        """``word`` if it is not used, else ``word`` with the smallest number that makes it unique."""
        candidate, i = word, 1
        while candidate in self._taken:
            i += 1
            candidate = f"{word}_{i}"
        return candidate

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self):
        return iter(self._by_name)

    def __getitem__(self, name: str) -> str:
        return self._by_name[name]


def counted(items: Iterable[tuple[str, int | None]]) -> dict[str, list[int | None]]:
    """Collect the lines of each description, in the form of ``Contents.ignored``."""
    lines_by_description: dict[str, list[int | None]] = {}
    for description, line in items:
        lines_by_description.setdefault(description, []).append(line)
    return lines_by_description


def where(lines: Sequence[int | None], most: int = 12) -> str:
    """Describe lines in words, at most ``most`` of them."""
    known = [str(line) for line in lines if line is not None]
    shown = ", ".join(known[:most]) + (", ..." if len(known) > most else "")
    included = len(lines) - len(known)
    words = [f"line{'s' if len(known) > 1 else ''} {shown}"] if known else []
    return " and ".join(words + ([f"{included} in included files"] if included else []))
