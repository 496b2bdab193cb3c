"""What a robot's file says, whatever its language."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from .._mechanism import Actuator, Body, Mechanism, Shape, is_reserved
from .._precision import as_float
from .inertia import Inertia
from .markup import Place


class Contents(NamedTuple):
    """Bodies, joints, gravity [m/s²] and actuators, as ``ukjax.Mechanism`` takes them.

    ``places`` say where in the file each joint is; ``title`` what the file calls it. ``ignored`` is what is not
    modelled, and ``suspicious`` what is not known or was read in a way that may not be meant; both in words, with lines.
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

    def mechanism(self, formulation: Any = "joint") -> Mechanism:
        """It, or ``ValueError`` where nothing moves."""
        if not self.bodies:
            raise ValueError(f"{self.path}: has no bodies")
        made = Mechanism(
            self.bodies,
            self.joints,
            self.gravity,
            formulation=formulation,
            actuators=self.actuators,
            title=self.title,
        )
        if not made.tree.n:
            raise ValueError(
                f"{self.path}: nothing moves, since all joints are fixed: floating=True frees the root of a URDF"
            )
        return made

    def warning_text(self, made: Mechanism) -> str:
        """What is not modelled and what is unusual, in one line; empty where there is nothing."""
        at = lambda lines: f" ({where(lines, 3)})" if lines else ""
        listed = lambda things: ", ".join(f"{what}{at(lines)}" for what, lines in things.items())
        parts = [f"what is not modelled: {listed(self.ignored)}"] if self.ignored else []
        suspicious = {**self.suspicious, **self.without_mass(made)}
        parts += [f"what is not known or may be a mistake: {listed(suspicious)}"] if suspicious else []
        return f"{self.path} has {'; and '.join(parts)}" if parts else ""

    def without_mass(self, made: Mechanism) -> dict[str, list[int | None]]:
        """Joints that move no mass, in words, and their lines. The mechanism has poses, but no motion, since its
        accelerations are not determined."""
        if not any(float(body.mass) > 0 for _, body in made.bodies.items()):
            return {"no body with a mass: poses, but no motion": []}
        found: dict[str, list[int | None]] = {}
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
                place = self.places[link.joint]
                words = f"{place.what} moves {link.body!r}, which has no mass and carries none: poses, but no motion"
                found[words] = [place.line]
        return found


def body_of(inertia: Inertia, shapes: Iterable[Shape] = (), buoyancy: float | None = None) -> Body:
    """With an inertia that no body may have, as long as its moments are not negative: many files have such, on small
    parts of what is heavy enough. ``ukjax check`` tells of them."""
    moments = inertia.numbers()
    moments = np.where(np.abs(moments) < 1e-15 * inertia.mass, 0, moments)  # 30 nm about: what rounding has left
    body = Body(inertia.mass, inertia.centre, moments[:3], shapes, buoyancy)
    return eqx.tree_at(lambda body: body.inertia, body, as_float(moments))


class UniqueNames:
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
        if is_reserved(word):
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
    """UniqueNames and lines as ``Contents`` has them."""
    found: dict[str, list[int | None]] = {}
    for what, line in things:
        found.setdefault(what, []).append(line)
    return found


def where(lines: Sequence[int | None], most: int = 12) -> str:
    """The lines of something, so many of them, in words."""
    known = [str(line) for line in lines if line is not None]
    shown = ", ".join(known[:most]) + (", ..." if len(known) > most else "")
    included = len(lines) - len(known)
    words = [f"line{'s' if len(known) > 1 else ''} {shown}"] if known else []
    return " and ".join(words + ([f"{included} in included files"] if included else []))
