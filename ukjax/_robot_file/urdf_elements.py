"""Elements and attributes of URDF that affect the motion, and checks for unknown ones."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from .._names import did_you_mean
from .markup import Element


class Kind(NamedTuple):
    """Allowed content of an element.

    Attributes
    ----------
    attributes : tuple of str
        Allowed attributes.
    children : tuple of str
        Children that may occur any number of times.
    once : tuple of str
        Children that may occur once.
    """

    attributes: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    once: tuple[str, ...] = ()


ELEMENTS: Mapping[str, Kind] = {
    "robot": Kind(("name", "version"), ("link", "joint", "material", "transmission")),
    "link": Kind(("name", "type"), ("visual", "collision"), ("inertial",)),
    "inertial": Kind((), (), ("origin", "mass", "inertia")),
    "mass": Kind(("value",)),
    "inertia": Kind(("ixx", "iyy", "izz", "ixy", "ixz", "iyz")),
    "origin": Kind(("xyz", "rpy")),
    "joint": Kind(
        ("name", "type"),
        (),
        ("origin", "parent", "child", "axis", "calibration", "dynamics", "limit", "mimic", "safety_controller"),
    ),
    "parent": Kind(("link",)),
    "child": Kind(("link",)),
    "axis": Kind(("xyz",)),
    "dynamics": Kind(("damping", "friction")),
    "limit": Kind(("lower", "upper", "effort", "velocity")),
    "mimic": Kind(("joint", "multiplier", "offset")),
}
"""From https://wiki.ros.org/urdf/XML. Visuals, collisions, materials and transmissions are not checked."""

DIALECTS = (
    "contact",
    "gazebo",
    "mujoco",
    "ros2_control",
    "sensor",
    "frame",
    "loop_joint",
    "plugin",
    "self_collision_checking",
)
"""Elements for other programs, which are not reported as misspelt."""

DRIVES = ("rotor", "inertia", "compensator", "spring")
"""Substrings of the tags in a <transmission> that would affect a motion."""


def foreign_elements(root: Any) -> Iterator[Element]:
    """Elements that only other programs read."""
    yield from (child for child in root if _is_foreign(child.tag))
    for element in root.iter():
        if element is not root and element.tag in ("link", "joint"):
            yield from (child for child in element if _is_foreign(child.tag))
    for transmission in root.iterfind("transmission"):
        yield from (part for part in transmission.iter() if any(word in part.tag.lower() for word in DRIVES))


def _is_foreign(tag) -> bool:
    return tag in DIALECTS or ":" in tag


def suspicious(element: Any) -> Iterator[tuple[str, int]]:
    """Unknown or repeated attributes and children of an element such as <robot>, recursively, with their lines."""
    kind = ELEMENTS[element.tag]
    for name in element.attrib:
        if name not in kind.attributes and not name.startswith("xmlns") and ":" not in name:
            yield (
                f"unknown {name}={element.get(name)!r} of <{element.tag}>{_meant(name, kind.attributes)}",
                element.line,
            )
    visited = set()
    for child in element:
        if child.tag in kind.once and child.tag in visited:
            yield f"a second <{child.tag}> of <{element.tag}>, which is ignored", child.line
            continue
        visited.add(child.tag)
        allowed = kind.children + kind.once
        if child.tag not in allowed and not _is_foreign(child.tag):
            yield f"unknown <{child.tag}> in <{element.tag}>{_meant(child.tag, allowed)}", child.line
        elif child.tag in ELEMENTS:
            yield from suspicious(child)


def _meant(word, allowed):
    return did_you_mean(word, allowed).rstrip(".")
