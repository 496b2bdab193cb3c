"""Reader of URDF files (https://wiki.ros.org/urdf/XML)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .. import joints as kinds
from .._mechanism import Actuator, Body, Shape
from .._names import did_you_mean
from ..contacts import Contact, Plane
from .contacts import solid_of
from .contents import Contents, Modelled, UniqueNames, body_of, counted
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
"""A root link with this name and without mass is the ground."""


def read_urdf(path: Path, root: Element, floating: bool, modelled: Modelled) -> Contents:
    """Read the contents of a URDF file.

    The root is fixed to the ground, or free if ``floating``. A root link without mass that is named ``world`` is the
    ground itself: then ``floating`` frees the links that are fixed to it. Gravity is 9.81 m/s² along −z. Raises
    ``InputError`` with file and line if links and joints do not form a tree.
    """
    for element in root.iter():
        if isinstance(element, Element) and element.tag.startswith("xacro:"):
            raise place_of(path, element).error("must be expanded first: run xacro on the file")
    links, joints = _named(path, root, "link"), _named(path, root, "joint")
    if not links:
        raise place_of(path, root).error("has no <link>")
    ends = {name: _ends(path, joint, links) for name, joint in joints.items()}
    root_link = _root(path, links, joints, ends)
    on_ground = root_link == WORLD and links[root_link].find("inertial") is None
    freed_joints = {
        name
        for name, joint in joints.items()
        if on_ground and floating and _is_fixed_to_root(joint, ends[name], root_link)
    }
    if on_ground and floating and not freed_joints:
        raise place_of(path, links[root_link]).error(
            "is the ground, and no joint fixes a link to it that could float: leave out floating=True"
        )

    link_names, joint_names = UniqueNames("body"), UniqueNames("joint")
    bodies, made_joints, places = {}, {}, {}
    suspicious_items: list[tuple[str, int | None]] = list(suspicious(root))
    for name, link in links.items():
        if not (on_ground and name == root_link):
            bodies[link_names.new(name)] = _body(path, link, suspicious_items)
    body = lambda name: "ground" if on_ground and name == root_link else link_names[name]
    for name in joints:
        joint_names.new(name)
    if not on_ground:
        root_joint = joint_names.new(root_link)
        made_joints[root_joint] = (kinds.Free if floating else kinds.Fixed)("ground", body(root_link))
        places[root_joint] = place_of(path, links[root_link])
    for name, joint in joints.items():
        parent, child = ends[name]
        places[joint_names[name]] = place_of(path, joint)
        kind = "floating" if name in freed_joints else joint.get("type")
        made_joints[joint_names[name]] = _joint(path, joint, kind, body(parent), body(child), suspicious_items)
    for name, joint in joints.items():
        for mimic in joint.findall("mimic") if joint.get("type") != "fixed" else ():
            made_joints[joint_names.new(f"{name} mimic")] = _mimic(
                place_of(path, joint), mimic, name, made_joints, joint_names
            )
    actuators = tuple(_actuators(path, root, joints, joint_names, suspicious_items))
    gravity = np.array([0.0, 0.0, -9.81])
    title = root.get("name") or path.stem
    collisions: list[Any] = [collision for link in links.values() for collision in link.findall("collision")]
    contacts, other_collisions = [], [("<collision>", element.line) for element in collisions]
    if isinstance(modelled.contacts, Plane):
        fixed = _fixed_to_ground(made_joints)
        movable = {name: body(name) for name in links if body(name) not in fixed}
        contacts, other_collisions = _contacts(path, links, movable, modelled)
    ignored = counted([*_ignored(root, modelled), *other_collisions])
    return Contents(
        path, title, bodies, made_joints, gravity, actuators, places, ignored, counted(suspicious_items),
        tuple(contacts), modelled,
    )  # fmt: skip


def _fixed_to_ground(joints) -> set[str]:
    """The ground, and the bodies that fixed joints connect with it."""
    fixed, others = {"ground"}, [(x.parent, x.child) for x in joints.values() if isinstance(x, kinds.Fixed)]
    while attached := {child for parent, child in others if parent in fixed} - fixed:
        fixed |= attached
    return fixed


def _contacts(path, links, movable, modelled) -> tuple[list[Contact], list[tuple[str, int | None]]]:
    """The contacts of movable links with the plane, and descriptions of the <collision> elements without contact."""
    contacts, others = [], []
    for name, body in movable.items():
        for collision in links[name].findall("collision"):
            shapes = list(_shapes(path, collision)) or [None]
            for shape in shapes:
                solid = None if shape is None else solid_of(body, shape)
                if solid is None:
                    kind = "of unknown shape" if shape is None else f"with <{shape.kind}>"
                    others.append((f"<collision> {kind}", collision.line))
                else:
                    contacts.append(Contact(solid, modelled.contacts, modelled.friction, modelled.restitution))
    return contacts, others


def _is_fixed_to_root(joint, ends, root_link) -> bool:
    """Whether a joint fixes its child to the root link."""
    return ends[0] == root_link and joint.get("type") == "fixed"


def _named(path, root, tag) -> dict[str, Element]:
    """The elements with this tag by their name."""
    elements: dict[str, Element] = {}
    for element in root.findall(tag):
        name, place = element.get("name"), place_of(path, element)
        if not name:
            raise place.error('needs name="..."')
        if name in elements:
            raise place.error(f"has the name of the one in line {elements[name].line}: give it another")
        elements[name] = element
    return elements


def _ends(path, joint, links) -> tuple[str, str]:
    """The names of the parent and child link of a joint."""
    place, link_names = place_of(path, joint), []
    for tag in ("parent", "child"):
        end = joint.find(tag)
        name = None if end is None else end.get("link")
        if end is None or name is None:
            raise place.error(f'needs <{tag} link="..."/>')
        if name not in links:
            raise place._replace(line=end.line).error(
                f"has a {tag} {name!r} that is not a link{did_you_mean(name, links)}"
            )
        link_names.append(name)
    return link_names[0], link_names[1]


def _root(path, links, joints, ends) -> str:
    """The root of the tree: the only link that is not a child of a joint. Raises ``InputError`` if there is no tree."""
    loops = "URDF has no loops: close them with <equality> in MJCF, or by ukjax.joints in Python"
    joint_of_child: dict[str, str] = {}
    for name, (_, child) in ends.items():
        if child in joint_of_child:
            raise place_of(path, joints[name]).error(
                f"has the child {child!r}, which {joint_of_child[child]!r} has already: {loops}"
            )
        joint_of_child[child] = name
    roots = [name for name in links if name not in joint_of_child]
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
            raise place_of(path, joints[joint_of_child[name]]).error(
                f"is in a loop of joints that is not connected to the root: {loops}"
            )
    return roots[0]


def _frame(path, element) -> Frame:
    """The frame in the <origin> of an element."""
    origin = element.find("origin")
    if origin is None:
        return Frame()
    place = place_of(path, element)._replace(line=origin.line, what=f"<origin> of {place_of(path, element).what}")
    xyz, rpy = (numbers_of(place, origin, name, 3, "0 0 0") for name in ("xyz", "rpy"))
    return Frame(of_angles(*rpy), xyz) if np.any(rpy) else Frame(p=xyz)


def _body(path, link, suspicious_items) -> Body:
    """The body of a link."""
    inertial, inertia, place = link.find("inertial"), ZERO_INERTIA, place_of(path, link)
    if inertial is not None:
        place = place._replace(line=inertial.line)
        mass, moments = inertial.find("mass"), inertial.find("inertia")
        value, entries = 0.0, dict.fromkeys(("ixx", "iyy", "izz", "ixy", "ixz", "iyz"), 0.0)
        if mass is None:
            suspicious_items.append(("<inertial> without <mass>, which counts as 0", inertial.line))
        else:
            value = number_of(place._replace(line=mass.line), mass, "value")
        if moments is None:
            suspicious_items.append(("<inertial> without <inertia>, which counts as 0", inertial.line))
        else:
            if missing := [name for name in entries if name not in moments.attrib]:
                suspicious_items.append((f"<inertia> without {', '.join(missing)}, which counts as 0", moments.line))
            entries = {name: number_of(place._replace(line=moments.line), moments, name, "0") for name in entries}
        xx, yy, zz, xy, xz, yz = entries.values()
        matrix = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        inertia = Inertia(value, np.zeros(3), matrix).transformed(_frame(path, inertial))
    shapes = [shape for visual in link.findall("visual") for shape in _shapes(path, visual)]
    with place.prefix_errors():
        return body_of(inertia, shapes)


def _shapes(path, visual) -> Iterator[Shape]:
    """The shapes in a <visual> element."""
    frame = _frame(path, visual)
    at, turn = tuple(frame.p.tolist()), tuple(frame.u.tolist())
    for solid in visual.iterfind("geometry/*"):
        numbers = lambda name, count=1, default=None, element=solid: tuple(
            numbers_of(place_of(path, element), element, name, count, default).tolist()
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
    """The three scale factors of a mesh; a single number applies to all three.

    Invalid factors become 1, since they do not affect the motion.
    """
    try:
        factors = [float(word) for word in mesh.get("scale", "1 1 1").split()]
    except ValueError:
        factors = []
    factors = factors * 3 if len(factors) == 1 else factors[:3]
    return tuple(factors) if len(factors) == 3 and np.all(np.isfinite(factors)) else (1.0, 1.0, 1.0)


def _joint(path, joint, kind, parent, child, suspicious_items) -> Any:
    """The joint of a <joint> element."""
    place = place_of(path, joint)
    if kind not in JOINTS:
        raise place.error(f"must have a type among {', '.join(JOINTS)}, got {kind!r}")
    arguments = _frame(path, joint).arguments()
    if kind in WITH_AXIS:
        axis = joint.find("axis")
        if axis is None or "xyz" not in axis.attrib:
            suspicious_items.append(
                (f"{place.what} without <axis xyz=...>, which is x by the specification", joint.line)
            )
        element_place = place if axis is None else place._replace(line=axis.line)
        arguments["axis"] = numbers_of(element_place, joint if axis is None else axis, "xyz", 3, "1 0 0")
    limit = joint.find("limit")
    if limit is not None and kind in WITH_LIMITS:
        element_place = place._replace(line=limit.line)
        limits = [number_of(element_place, limit, name, "0") for name in ("lower", "upper")]
        if limits[0] > limits[1]:
            suspicious_items.append(
                (f"lower={limits[0]:g} above upper={limits[1]:g}, which count as no limits", limit.line)
            )
        else:
            arguments["limits"] = tuple(limits)
    dynamics = joint.find("dynamics")
    if dynamics is not None and kind != "fixed":
        element_place = place._replace(line=dynamics.line)
        forces = {name: number_of(element_place, dynamics, name, "0") for name in ("damping", "friction")}
        forces = {name: value for name, value in forces.items() if value}
        if kind in ("floating", "planar") and forces:
            suspicious_items.append(
                (f"<dynamics> of the {kind} {place.what}, whose coordinates have several units", dynamics.line)
            )
        else:
            arguments |= forces
    with place.prefix_errors():
        return JOINTS[kind](parent, child, **arguments)


def _mimic(place: Place, mimic, name, made_joints, joint_names) -> Any:
    """The coupling of a <mimic> element."""
    mimic_place, other = place._replace(line=mimic.line), mimic.get("joint", "")
    if other not in joint_names:
        raise mimic_place.error(f"mimics a joint {other!r} that is not there{did_you_mean(other, joint_names)}")
    if other == name:
        raise mimic_place.error("mimics itself: name another joint, or make it fixed")
    for joint in (name, other):
        if len(made_joints[joint_names[joint]].coordinates) != 1:
            raise mimic_place.error(f"cannot mimic: {joint!r} has not one coordinate")
    ratio, offset = number_of(mimic_place, mimic, "multiplier", "1"), number_of(mimic_place, mimic, "offset", "0")
    return kinds.Gear(joint_names[name], joint_names[other], ratio=ratio, offset=offset)


def _actuators(path, root, joints, joint_names, suspicious_items) -> Iterator[Actuator]:
    """One actuator for each joint of a transmission, and for each other joint with an effort limit."""
    efforts, speeds = {}, {}
    for name, joint in joints.items():
        limit = joint.find("limit")
        if limit is not None and joint.get("type") != "fixed" and joint.find("mimic") is None:
            for values, attribute in ((efforts, "effort"), (speeds, "velocity")):
                value = number_of(place_of(path, joint), limit, attribute, "0")
                if value > 0:
                    values[name] = value
    geared = {}
    for transmission in root.findall("transmission"):
        for joint in transmission.iterfind("joint"):
            name = joint.get("name", "")
            reductions = joint.findall("mechanicalReduction") or transmission.findall(".//mechanicalReduction")
            texts = list(dict.fromkeys((each.text or "").strip() for each in reductions)) or ["1"]
            try:
                geared[name] = float(texts[0]) if len(texts) == 1 else 1.0
                doubt = f"several <mechanicalReduction> for {name!r}, which count as 1" if len(texts) > 1 else ""
            except ValueError:
                geared[name], doubt = 1.0, f"<mechanicalReduction> {texts[0]!r}, which is not a number and counts as 1"
            if doubt:
                suspicious_items.append((doubt, reductions[0].line))
    for name in dict.fromkeys((*efforts, *geared)):
        if name in joints and joints[name].get("type") != "fixed":
            gear = geared.get(name, 1.0) or 1.0
            max_effort = efforts[name] / abs(gear) if name in efforts else None
            yield Actuator(
                joint_names[name],
                joint_names[name],
                gear,
                None if max_effort is None else (-max_effort, max_effort),
                speed_limit=speeds.get(name),
            )


def _ignored(root, modelled) -> Iterator[tuple[str, int | None]]:
    """The elements other than collisions that are not modelled, with their lines."""
    elements = list(foreign_elements(root))
    for joint in root.iterfind("joint"):
        has_limits = joint.get("type") in WITH_LIMITS and not modelled.stops
        tags = ("limit", *UNMODELLED) if has_limits else UNMODELLED
        elements += [element for element in joint if element.tag in tags]
    yield from ((f"<{element.tag}>", element.line) for element in elements)
