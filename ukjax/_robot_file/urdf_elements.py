"""The elements and attributes of URDF that bear on a motion, and what a file has besides."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from .._names import did_you_mean
from .markup import Element


class Kind(NamedTuple):
    """What an element may have: attributes, children that may stand there any number of times, and those that may stand
    there once."""

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
"""By https://wiki.ros.org/urdf/XML. Pictures, collisions, materials and transmissions are not looked into."""

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
"""Elements that other programs read. They are no misspelt words."""

DRIVES = ("rotor", "inertia", "compensator", "spring")
"""Parts of the names of elements of a <transmission> that would change a motion."""


def foreign_elements(root: Any) -> Iterator[Element]:
    """Elements that only other programs know."""
    yield from (child for child in root if _is_foreign(child.tag))
    for element in root.iter():
        if element is not root and element.tag in ("link", "joint"):
            yield from (child for child in element if _is_foreign(child.tag))
    for transmission in root.iterfind("transmission"):
        yield from (part for part in transmission.iter() if any(word in part.tag.lower() for word in DRIVES))


def _is_foreign(tag) -> bool:
    return tag in DIALECTS or ":" in tag


def suspicious(element: Any) -> Iterator[tuple[str, int]]:
    """Attributes and elements in one, such as <robot>, that are not known, or are there a second time; with lines."""
    kind = ELEMENTS[element.tag]
    for name in element.attrib:
        if name not in kind.attributes and not name.startswith("xmlns") and ":" not in name:
            yield (
                f"unknown {name}={element.get(name)!r} of <{element.tag}>{_meant(name, kind.attributes)}",
                element.line,
            )
    seen = set()
    for child in element:
        if child.tag in kind.once and child.tag in seen:
            yield f"a second <{child.tag}> of <{element.tag}>, which is ignored", child.line
            continue
        seen.add(child.tag)
        known = kind.children + kind.once
        if child.tag not in known and not _is_foreign(child.tag):
            yield f"unknown <{child.tag}> in <{element.tag}>{_meant(child.tag, known)}", child.line
        elif child.tag in ELEMENTS:
            yield from suspicious(child)


def _meant(word, known):
    return did_you_mean(word, known).rstrip(".")
