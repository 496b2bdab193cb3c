"""MJCF, as https://mujoco.readthedocs.io/en/stable/XMLreference.html describes it: read by MuJoCo, not compiled."""

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np

from .. import joints as kinds
from .._mechanism import Actuator, Body
from .._precision import as_float
from .contents import Contents, Words, body_of, counted
from .equality import equalities
from .frame import Frame, about, rotated
from .geoms import adjusted, frames_of, inertia_of, own_frame, shapes_of
from .reading import Reading


def read_mjcf(path: Path) -> Contents:
    """What it says.

    Raises ``ValueError`` for what is no MJCF, and for what moves a mechanism in ways that are not modelled, with file
    and line; ``ImportError`` without the package mujoco.
    """
    try:
        mujoco: Any = importlib.import_module("mujoco")
    except ImportError:
        raise ImportError("an MJCF file needs the package mujoco: pip install 'ukjax[mjcf]'") from None
    try:
        spec = mujoco.MjSpec.from_file(str(path))
    except ValueError as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from None
    it = Reading(path, spec, mujoco.mjtDisableBit, Words("body"), Words("joint"), {}, {}, {}, [])
    _refuse(it)
    for element in spec.bodies[1:]:
        if element.name:
            it.words.new(element.name)
    for element in spec.joints:
        if element.name:
            it.names.new(element.name)
    for child in spec.worldbody.bodies:
        _add(it, child, "ground", False)
    _set_total_mass(it)
    if not it.is_off("equality"):
        it.joints.update(equalities(it))
    _start_at_home(it)
    gravity = np.zeros(3) if it.is_off("gravity") else np.array(spec.option.gravity)
    actuators = tuple(_actuators(it))
    ignored = counted(_ignored(it))
    return Contents(path, spec.modelname or path.stem, it.bodies, it.joints, gravity, actuators, it.places, ignored)


def _add(it: Reading, element, parent, moves) -> None:
    """A body, what carries it and what it carries."""
    place = it.place(element, "body")
    if not element.name:  # MuJoCo's numbers are given when it compiles: only names tell bodies apart
        element.name = it.words.unused("body")
        it.words.new(element.name)
    word = it.words[element.name]
    moves = moves or bool(element.joints)
    frame = frames_of(it.spec, element).then(own_frame(it.spec, element))
    if element.gravcomp:
        raise place.error(f"must have no gravcomp, got {element.gravcomp:g}: a force of that kind is not modelled")
    *before, last = element.joints or [None]
    for i, joint in enumerate(before):
        between = it.words.new(f"{word}_{i + 1}")
        it.bodies[between] = Body(0.0)
        _add_joint(it, element, joint, parent, between, frame)
        parent, frame = between, Frame()
    inertia = adjusted(inertia_of(it, element, place, moves), element, moves)
    with place.blamed():
        it.bodies[word] = body_of(inertia, shapes_of(it, element))
    _add_joint(it, element, last, parent, word, frame)
    for child in element.bodies:
        _add(it, child, word, moves)


def _add_joint(it: Reading, element, joint, parent, child, frame) -> None:
    if joint is None:
        name = it.names.new(element.name)
        it.places[name] = it.place(element, "body")
        it.joints[name] = kinds.Fixed(parent, child, **frame.arguments())
        return
    name = it.names[joint.name] if joint.name else it.names.new(child)
    place = it.places[name] = it.place(joint, "joint")
    kind = str(joint.type).rpartition("_")[2].lower()
    acting = _acting(it, joint, place, kind)
    if kind == "free":
        if acting or parent != "ground":
            raise place.error(
                f"must have no {', '.join(acting)}, which act along no quaternion"
                if acting
                else "must be of a body of the world"
            )
        it.joints[name] = kinds.Free(parent, child, start=np.concatenate([frame.p, frame.u]))
        it.starts.append((name, 7))
        return
    inner = frames_of(it.spec, joint)
    at, axis = inner.p + rotated(inner.u, np.array(joint.pos)), rotated(inner.u, np.array(joint.axis))
    outer, angular = frame.then(Frame(p=at)), _radians(joint) if kind == "hinge" else 1.0
    told: dict[str, Any] = dict(acting)
    if kind == "ball":
        if acting:
            raise place.error(f"must have no {', '.join(acting)}, which act along no quaternion")
    elif not np.any(axis):
        raise place.error('must have an axis that points somewhere, got axis="0 0 0"')
    else:
        told["axis"] = axis
        ref = float(joint.ref) * angular
        if ref:  # the file's pose is where the coordinate is ref, ours where it is 0
            back = Frame(about(axis, -ref)) if kind == "hinge" else Frame(p=-ref * axis / np.linalg.norm(axis))
            outer, told["start"] = outer.then(back), [ref]
        if _is_limited(joint):
            told["limits"] = tuple(float(end) * angular for end in joint.range)
        if "stiffness" in acting and joint.springref:
            told["rest"] = float(joint.springref) * angular
    ends = outer.arguments() | Frame(p=at).arguments("to", "to_turn")
    with place.blamed():
        it.joints[name] = {"ball": kinds.Spherical, "hinge": kinds.Revolute, "slide": kinds.Prismatic}[kind](
            parent, child, **ends, **told
        )
    it.starts.append((name, 4 if kind == "ball" else 1))


def _acting(it: Reading, joint, place, kind) -> dict[str, float]:
    """What acts along a joint, where it is not 0."""
    if np.any(joint.springdamper):
        raise place.error("must have stiffness and damping instead of springdamper")
    found = {}
    for name, ours, flag in (
        ("stiffness", "stiffness", "spring"),
        ("damping", "damping", "damper"),
        ("armature", "armature", None),
        ("frictionloss", "friction", "frictionloss"),
    ):
        value, *higher = np.ravel(getattr(joint, name))
        if any(higher):
            raise place.error(f"must have one number as its {name}: higher powers are not modelled")
        if value and not (flag and it.is_off(flag)):
            found[ours] = float(value)
    return found


def _is_limited(joint) -> bool:
    return _is_on(joint, joint.limited, joint.range)


def _is_on(element, limited, ends) -> bool:
    """Whether limits hold: as the file says, or, where it leaves that open, if it has some."""
    return int(limited) == 1 or bool(int(limited) == 2 and element.compiler.autolimits and ends[0] < ends[1])


def _radians(element) -> float:
    return np.pi / 180 if element.compiler.degree else 1.0


def _set_total_mass(it: Reading) -> None:
    wanted = it.spec.compiler.settotalmass
    if wanted > 0:
        share = wanted / sum(float(body.mass) for body in it.bodies.values())
        for name, body in it.bodies.items():
            it.bodies[name] = Body(body.mass * share, body.centre, body.inertia * share, body.shapes)


def _start_at_home(it: Reading) -> None:
    """A keyframe "home" is where a pose is looked for."""
    key = next((key for key in it.spec.keys if key.name == "home"), None)
    if key is None or not len(key.qpos):
        return
    qpos, count = np.array(key.qpos), sum(size for _, size in it.starts)
    if len(qpos) != count:
        raise it.place(key, "key").error(f"must have a qpos of {count} numbers, got {len(qpos)}")
    for name, size in it.starts:
        start = as_float(qpos[:size])
        it.joints[name] = eqx.tree_at(lambda joint: joint.start, it.joints[name], start, is_leaf=lambda x: x is None)
        qpos = qpos[size:]


def _actuators(it: Reading) -> Iterator[Actuator]:
    for i, motor in enumerate(it.spec.actuators):
        if _moves_a_joint(motor) and motor.target in it.names:
            place = it.place(motor, motor_tag(motor))
            for name in ("armature", "damping"):  # which only later versions of MuJoCo have
                if np.any(getattr(motor, name, 0.0)):
                    raise place.error(f"must have no {name}: give it to the joint")
            joint = it.names[motor.target]
            yield Actuator(motor.name or f"motor_{i + 1}", joint, float(motor.gear[0]), _force_limits(motor))


def _moves_a_joint(motor) -> bool:
    return str(motor.trntype).endswith(("JOINT", "JOINTINPARENT"))


def motor_tag(motor) -> str:
    """What the file calls it, or could."""
    return "motor" if _is_plain(motor) else "actuator"


def _is_plain(motor) -> bool:
    return str(motor.biastype).endswith("NONE") and str(motor.dyntype).endswith("NONE")


def _force_limits(motor) -> tuple[float, float] | None:
    low, high = -np.inf, np.inf
    if _is_on(motor, motor.forcelimited, motor.forcerange):
        low, high = motor.forcerange
    if _is_plain(motor) and _is_on(motor, motor.ctrllimited, motor.ctrlrange):
        ends = sorted(motor.gainprm[0] * np.array(motor.ctrlrange))
        low, high = max(low, ends[0]), min(high, ends[1])
    return (float(low), float(high)) if np.any(np.isfinite([low, high])) else None


def _refuse(it: Reading) -> None:
    """What would make another motion if it was left out."""
    spec = it.spec
    for name in ("density", "viscosity"):
        if getattr(spec.option, name):
            raise ValueError(f"{it.path}: <option {name}> must be 0: the drag of a fluid is not modelled")
    for what, elements in (("flex", spec.flexes), ("plugin", spec.plugins)):
        for element in elements:
            raise it.place(element, what).error("is not modelled: bodies are rigid, and forces are a file's own")
    for tendon in spec.tendons:
        for name in ("stiffness", "damping", "frictionloss", "armature"):
            if np.any(getattr(tendon, name, 0.0)):
                raise it.place(tendon, "tendon").error(f"must have no {name}: tendons are not modelled")


def _ignored(it: Reading) -> Iterator[tuple[str, int | None]]:
    spec = it.spec
    line: Callable[..., int | None] = lambda element: it.place(element, "").line
    if not it.is_off("contact"):
        yield from (("contacts of <geom>", line(geom)) for geom in spec.geoms if geom.contype or geom.conaffinity)
        yield from (("<contact>", line(pair)) for pair in spec.pairs)
    if not it.is_off("limit"):
        yield from (("<joint range>", line(joint)) for joint in spec.joints if _is_limited(joint))
    yield from (("<tendon>", line(tendon)) for tendon in spec.tendons)
    yield from (("<sensor>", line(sensor)) for sensor in spec.sensors)
    yield from (("mocap", line(body)) for body in spec.bodies if body.mocap)
    for motor in spec.actuators:
        if not _moves_a_joint(motor):
            yield "<actuator> on no joint", line(motor)
        elif not _is_plain(motor):
            yield "the law of <actuator>", line(motor)
    if not it.is_off("equality"):
        yield from (("inactive <equality>", line(each)) for each in spec.equalities if not each.active)
