"""What a robot's file says, whatever its language."""

import keyword
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from .._mechanism import Actuator, Body, Mechanism, Shape
from .._precision import as_float
from .inertia import Inertia
from .markup import Place


class Contents(NamedTuple):
    """Bodies, joints, gravity [m/s²] and actuators, as ``ukjax.Mechanism`` takes them.

    ``places`` say where in the file each joint is; ``ignored`` what is not modelled, in words, and its lines; ``title``
    what the file calls it.
    """

    path: Path
    title: str
    bodies: Mapping[str, Body]
    joints: Mapping[str, Any]
    gravity: np.ndarray
    actuators: tuple[Actuator, ...]
    places: Mapping[str, Place]
    ignored: Mapping[str, list[int | None]]

    def mechanism(self, coordinates: Any = "joint") -> Mechanism:
        """It, or ``ValueError`` where nothing moves, or something that has no mass."""
        if not self.bodies:
            raise ValueError(f"{self.path}: has no bodies")
        made = Mechanism(
            self.bodies,
            self.joints,
            self.gravity,
            coordinates=coordinates,
            actuators=self.actuators,
            title=self.title,
        )
        if not made.tree.n:
            raise ValueError(
                f"{self.path}: nothing moves, since all joints are fixed: floating=True frees the root of a URDF"
            )
        self._check_masses(made)
        return made

    def said(self) -> str:
        """What is not modelled, in one line; empty where there is nothing."""
        if not self.ignored:
            return ""
        parts = (what if len(lines) == 1 else f"{what} (×{len(lines)})" for what, lines in self.ignored.items())
        return f"{self.path} has what is not modelled: {', '.join(parts)}"

    def _check_masses(self, made: Mechanism) -> None:
        carried: dict[str, set[str]] = {name: {name} for name in made.bodies}
        for link in reversed(made.tree.links):
            if link.parent in carried:
                carried[link.parent] |= carried[link.body]
        joints: dict[str, Any] = dict(made.joints.items())
        bound = {end for name in made.tree.closures for end in (joints[name].parent, joints[name].child)}
        coupled = {one for joint in joints.values() for one in getattr(joint, "joints", ())}
        for link in made.tree.links:
            heavy = any(float(made.bodies[name].mass) > 0 for name in carried[link.body])
            if heavy or not link.size or link.joint is None or link.joint in coupled or carried[link.body] & bound:
                continue
            if joints[link.joint].armature is None:
                raise self.places[link.joint].error(
                    f"moves {link.body!r}, which has no mass and carries none: give it an inertia, or fix the joint"
                )


def body_of(inertia: Inertia, shapes: Iterable[Shape] = (), buoyancy: float | None = None) -> Body:
    """With an inertia that no body may have, as long as its moments are not negative: many files have such, on small
    parts of what is heavy enough. ``ukjax check`` tells of them."""
    moments = inertia.numbers()
    moments = np.where(np.abs(moments) < 1e-15 * inertia.mass, 0, moments)  # 30 nm about: what rounding has left
    body = Body(inertia.mass, inertia.centre, moments[:3], shapes, buoyancy)
    return eqx.tree_at(lambda body: body.inertia, body, as_float(moments))


class Words:
    """Names as Python can write them, each once, by the names in the file."""

    def __init__(self, kind: str):
        self.kind = kind
        self._taken: set[str] = set()
        self._by_name: dict[str, str] = {}

    def new(self, name: str) -> str:
        """For a ``name`` that may be anything: other characters are _ in it."""
        word = re.sub(r"\W", "_", name)
        if not word or not (word[0].isalpha() and word.isidentifier()):
            word = f"{self.kind}_{word.lstrip('_')}" if word.strip("_") else self.kind
        if keyword.iskeyword(word) or word in ("ground", "names", "things"):
            word += "_"
        found = self.unused(word)
        self._taken.add(found)
        self._by_name.setdefault(name, found)
        return found

    def unused(self, word: str) -> str:
        """The same, or with the first number behind it that makes it another than those before."""
        found, i = word, 1
        while found in self._taken:
            i += 1
            found = f"{word}_{i}"
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self):
        return iter(self._by_name)

    def __getitem__(self, name: str) -> str:
        return self._by_name[name]


def counted(things: Iterable[tuple[str, int | None]]) -> dict[str, list[int | None]]:
    """Words and lines as ``Contents`` has them."""
    found: dict[str, list[int | None]] = {}
    for what, line in things:
        found.setdefault(what, []).append(line)
    return found
