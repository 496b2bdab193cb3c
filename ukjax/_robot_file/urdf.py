"""URDF, as https://wiki.ros.org/urdf/XML describes it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .. import joints as kinds
from .._mechanism import Actuator, Body, Shape
from .._names import did_you_mean
from .contents import Contents, UniqueNames, body_of, counted
from .frame import Frame, of_angles
from .inertia import ZERO_INERTIA, Inertia
from .markup import Element, Place, number_of, numbers_of, place_of
from .meshes import mesh_file
from .urdf_elements import foreign_elements, suspicious

JOINTS = {
    "revolute": kinds.Revolute,
    "continuous": kinds.Revolute,
    "prismatic": kinds.Prismatic,
    "fixed": kinds.Fixed,
    "floating": kinds.Free,
    "planar": kinds.Planar,
}
WITH_AXIS = ("revolute", "continuous", "prismatic", "planar")
WITH_LIMITS = ("revolute", "prismatic")
UNMODELLED = ("safety_controller", "calibration")
WORLD = "world"
"""A root of this name without mass is the ground itself."""


def read_urdf(path: Path, root: Element, floating: bool) -> Contents:
    """What it says: its root on the ground, or, if ``floating``, free. Where the root is the ground itself, a link
    named ``world`` without mass, what is fixed to it is free then.

    Gravity is along −z, 9.81 m/s². Raises ``ValueError`` for what makes no tree of bodies, with file and line.
    """
    for element in root.iter():
        if isinstance(element, Element) and element.tag.startswith("xacro:"):
            raise place_of(path, element).error("is to be expanded first: run xacro on the file")
    links, joints = _named(path, root, "link"), _named(path, root, "joint")
    if not links:
        raise place_of(path, root).error("has no <link>")
    ends = {name: _ends(path, joint, links) for name, joint in joints.items()}
    top = _root(path, links, joints, ends)
    on_ground = top == WORLD and links[top].find("inertial") is None
    freed = {name for name, joint in joints.items() if on_ground and floating and _holds(joint, ends[name], top)}
    if on_ground and floating and not freed:
        raise place_of(path, links[top]).error(
            "is the ground, and no joint fixes a link to it that could float: leave out floating=True"
        )

    words, names = UniqueNames("body"), UniqueNames("joint")
    bodies, made, places = {}, {}, {}
    odd: list[tuple[str, int | None]] = list(suspicious(root))
    for name, link in links.items():
        if not (on_ground and name == top):
            bodies[words.new(name)] = _body(path, link, odd)
    body = lambda name: "ground" if on_ground and name == top else words[name]
    for name in joints:
        names.new(name)
    if not on_ground:
        carrier = names.new(top)
        made[carrier] = (kinds.Free if floating else kinds.Fixed)("ground", body(top))
        places[carrier] = place_of(path, links[top])
    for name, joint in joints.items():
        parent, child = ends[name]
        places[names[name]] = place_of(path, joint)
        kind = "floating" if name in freed else joint.get("type")
        made[names[name]] = _joint(path, joint, kind, body(parent), body(child), odd)
    for name, joint in joints.items():
        for mimic in joint.findall("mimic") if joint.get("type") != "fixed" else ():
            made[names.new(f"{name} mimic")] = _mimic(place_of(path, joint), mimic, name, made, names)
    actuators = tuple(_actuators(path, root, joints, names, odd))
    gravity = np.array([0.0, 0.0, -9.81])
    title = root.get("name") or path.stem
    return Contents(path, title, bodies, made, gravity, actuators, places, counted(_ignored(root)), counted(odd))


def _holds(joint, ends, top) -> bool:
    return ends[0] == top and joint.get("type") == "fixed"


def _named(path, root, tag) -> dict[str, Element]:
    found: dict[str, Element] = {}
    for element in root.findall(tag):
        name, place = element.get("name"), place_of(path, element)
        if not name:
            raise place.error('needs name="..."')
        if name in found:
            raise place.error(f"has the name of the one in line {found[name].line}: give it another")
        found[name] = element
    return found


def _ends(path, joint, links) -> tuple[str, str]:
    place, found = place_of(path, joint), []
    for tag in ("parent", "child"):
        end = joint.find(tag)
        name = None if end is None else end.get("link")
        if end is None or name is None:
            raise place.error(f'needs <{tag} link="..."/>')
        if name not in links:
            raise place._replace(line=end.line).error(
                f"has a {tag} {name!r} that is no link{did_you_mean(name, links)}"
            )
        found.append(name)
    return found[0], found[1]


def _root(path, links, joints, ends) -> str:
    """The one link that is nobody's child, from which all others are reached; or ``ValueError``."""
    loops = "URDF has no loops: close them with <equality> in MJCF, or by ukjax.joints in Python"
    by: dict[str, str] = {}
    for name, (_, child) in ends.items():
        if child in by:
            raise place_of(path, joints[name]).error(
                f"has the child {child!r}, which {by[child]!r} has already: {loops}"
            )
        by[child] = name
    roots = [name for name in links if name not in by]
    if len(roots) > 1:
        first, second = roots[:2]
        raise place_of(path, links[second]).error(
            f"is the child of no joint, and neither is {first!r} in line {links[first].line}: join them"
        )
    reached, children = set(), dict.fromkeys(roots)
    while children:
        reached |= set(children)
        children = {child: None for parent, child in ends.values() if parent in children}
    for name in links:
        if name not in reached:
            raise place_of(path, joints[by[name]]).error(f"is in a loop of joints that hangs on nothing: {loops}")
    return roots[0]


def _frame(path, element) -> Frame:
    origin = element.find("origin")
    if origin is None:
        return Frame()
    place = place_of(path, element)._replace(line=origin.line, what=f"<origin> of {place_of(path, element).what}")
    xyz, rpy = (numbers_of(place, origin, name, 3, "0 0 0") for name in ("xyz", "rpy"))
    return Frame(of_angles(*rpy), xyz) if np.any(rpy) else Frame(p=xyz)


def _body(path, link, odd) -> Body:
    inertial, inertia, place = link.find("inertial"), ZERO_INERTIA, place_of(path, link)
    if inertial is not None:
        place = place._replace(line=inertial.line)
        mass, moments = inertial.find("mass"), inertial.find("inertia")
        value, entries = 0.0, dict.fromkeys(("ixx", "iyy", "izz", "ixy", "ixz", "iyz"), 0.0)
        if mass is None:
            odd.append(("<inertial> without <mass>, which counts as 0", inertial.line))
        else:
            value = number_of(place._replace(line=mass.line), mass, "value")
        if moments is None:
            odd.append(("<inertial> without <inertia>, which counts as 0", inertial.line))
        else:
            if left_out := [name for name in entries if name not in moments.attrib]:
                odd.append((f"<inertia> without {', '.join(left_out)}, which counts as 0", moments.line))
            entries = {name: number_of(place._replace(line=moments.line), moments, name, "0") for name in entries}
        xx, yy, zz, xy, xz, yz = entries.values()
        matrix = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        inertia = Inertia(value, np.zeros(3), matrix).transformed(_frame(path, inertial))
    shapes = [shape for visual in link.findall("visual") for shape in _shapes(path, visual)]
    with place.prefix_errors():
        return body_of(inertia, shapes)


def _shapes(path, visual) -> Iterator[Shape]:
    frame = _frame(path, visual)
    at, turn = tuple(frame.p.tolist()), tuple(frame.u.tolist())
    for solid in visual.iterfind("geometry/*"):
        numbers = lambda name, count=1, default=None, here=solid: tuple(
            numbers_of(place_of(path, here), here, name, count, default).tolist()
        )
        if solid.tag == "box":
            yield Shape("box", numbers("size", 3), at, turn)
        elif solid.tag == "sphere":
            yield Shape("sphere", numbers("radius"), at, turn)
        elif solid.tag in ("cylinder", "capsule"):
            yield Shape(solid.tag, numbers("radius") + numbers("length"), at, turn)
        elif solid.tag == "mesh":
            yield Shape("mesh", _scale(solid), at, turn, mesh_file(path, solid.get("filename", "")))


def _scale(mesh) -> tuple[float, ...]:
    """Three factors; one stands for all. What are no such numbers is no reason to refuse a motion."""
    try:
        found = [float(word) for word in mesh.get("scale", "1 1 1").split()]
    except ValueError:
        found = []
    found = found * 3 if len(found) == 1 else found[:3]
    return tuple(found) if len(found) == 3 and np.all(np.isfinite(found)) else (1.0, 1.0, 1.0)


def _joint(path, joint, kind, parent, child, odd) -> Any:
    place = place_of(path, joint)
    if kind not in JOINTS:
        raise place.error(f"must have a type among {', '.join(JOINTS)}, got {kind!r}")
    told = _frame(path, joint).arguments()
    if kind in WITH_AXIS:
        axis = joint.find("axis")
        if axis is None or "xyz" not in axis.attrib:
            odd.append((f"{place.what} without <axis xyz=...>, which is x by the specification", joint.line))
        here = place if axis is None else place._replace(line=axis.line)
        told["axis"] = numbers_of(here, joint if axis is None else axis, "xyz", 3, "1 0 0")
    limit = joint.find("limit")
    if limit is not None and kind in WITH_LIMITS:
        here = place._replace(line=limit.line)
        limits = [number_of(here, limit, name, "0") for name in ("lower", "upper")]
        if limits[0] > limits[1]:
            odd.append((f"lower={limits[0]:g} above upper={limits[1]:g}, which count as no limits", limit.line))
        else:
            told["limits"] = tuple(limits)
    dynamics = joint.find("dynamics")
    if dynamics is not None and kind != "fixed":
        here = place._replace(line=dynamics.line)
        acting = {name: number_of(here, dynamics, name, "0") for name in ("damping", "friction")}
        acting = {name: value for name, value in acting.items() if value}
        if kind in ("floating", "planar") and acting:
            odd.append((f"<dynamics> of the {kind} {place.what}, whose coordinates have several units", dynamics.line))
        else:
            told |= acting
    with place.prefix_errors():
        return JOINTS[kind](parent, child, **told)


def _mimic(place: Place, mimic, name, made, names) -> Any:
    here, other = place._replace(line=mimic.line), mimic.get("joint", "")
    if other not in names:
        raise here.error(f"mimics a joint {other!r} that is not there{did_you_mean(other, names)}")
    if other == name:
        raise here.error("mimics itself: name another joint, or make it fixed")
    for each in (name, other):
        if len(made[names[each]].coordinates) != 1:
            raise here.error(f"cannot mimic: {each!r} has not one coordinate")
    ratio, offset = number_of(here, mimic, "multiplier", "1"), number_of(here, mimic, "offset", "0")
    return kinds.Gear(names[name], names[other], ratio=ratio, offset=offset)


def _actuators(path, root, joints, names, odd) -> Iterator[Actuator]:
    """One for each joint of a transmission, else for each with a limit of effort."""
    efforts = {}
    for name, joint in joints.items():
        limit = joint.find("limit")
        if limit is not None and joint.get("type") != "fixed" and joint.find("mimic") is None:
            effort = number_of(place_of(path, joint), limit, "effort", "0")
            efforts |= {name: effort} if effort > 0 else {}
    geared = {}
    for transmission in root.findall("transmission"):
        for joint in transmission.iterfind("joint"):
            reduction = transmission.find(".//mechanicalReduction")
            words = "1" if reduction is None else (reduction.text or "").strip()
            try:
                geared[joint.get("name", "")] = float(words)
            except ValueError:
                geared[joint.get("name", "")] = 1.0
                line = transmission.line if reduction is None else reduction.line
                odd.append((f"<mechanicalReduction> {words!r}, which is no number and counts as 1", line))
    for name in dict.fromkeys((*efforts, *geared)):
        if name in joints and joints[name].get("type") != "fixed":
            gear = geared.get(name, 1.0) or 1.0
            most = efforts[name] / abs(gear) if name in efforts else None
            yield Actuator(names[name], names[name], gear, None if most is None else (-most, most))


def _ignored(root) -> Iterator[tuple[str, int | None]]:
    elements = list(foreign_elements(root))
    for joint in root.iterfind("joint"):
        tags = ("limit", *UNMODELLED) if joint.get("type") in WITH_LIMITS else UNMODELLED
        elements += [element for element in joint if element.tag in tags]
    elements += root.iterfind("link/collision")
    yield from ((f"<{element.tag}>", element.line) for element in elements)
