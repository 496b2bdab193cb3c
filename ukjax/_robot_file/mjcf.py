"""MJCF, as https://mujoco.readthedocs.io/en/stable/XMLreference.html describes it, compiled by MuJoCo."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np

from .. import joints as kinds
from .._mechanism import Actuator, Body
from .._precision import as_float
from .compiled import compiled, compiler_of, parsed, place_in
from .contents import Contents, UniqueNames, body_of, counted
from .equality import equalities
from .frame import Frame, about
from .geoms import inertia_of, shapes_of
from .inertia import ZERO_INERTIA
from .reading import Reading


def read_mjcf(path: Path) -> Contents:
    """The bodies, joints, gravity and actuators of the file.

    Raises ``ValueError``, with file and line, for a file that MuJoCo refuses and for what would change the motion and
    is not modelled; ``ImportError`` without the package mujoco.
    """
    mujoco, spec = parsed(path)
    _refuse(path, spec)
    sensors = [("<sensor>", place_in(path, sensor, "").line) for sensor in spec.sensors]
    model, meshes = compiled(path, mujoco, spec)
    taken, motors = UniqueNames("body"), {}
    for motor in spec.actuators:
        if _moves_a_joint(motor):
            motors.setdefault(motor.target, []).append(motor)
    words = _words_of_bodies(model, taken)
    it = Reading(path, mujoco, spec, model, meshes, motors, words, taken, UniqueNames("joint"), {}, {}, {}, [])
    for element in spec.joints:
        if element.name:
            it.names.new(element.name)
    bodies = {body.id: body for body in spec.bodies}
    joints = {joint.id: joint for joint in spec.joints}
    for number in range(1, model.nbody):
        first = model.body_jntadr[number]
        own = [joints[i] for i in range(first, first + model.body_jntnum[number])]
        _add(it, number, bodies[number], own)
    if not it.is_off("equality"):
        it.joints.update(equalities(it))
    _start_at_home(it)
    gravity = np.zeros(3) if it.is_off("gravity") else np.array(model.opt.gravity)
    actuators = tuple(_actuators(it))
    ignored = counted([*_ignored(it), *sensors])
    return Contents(path, spec.modelname or path.stem, it.bodies, it.joints, gravity, actuators, it.places, ignored)


def _words_of_bodies(model, taken) -> list[str]:
    """The name here of each body by its number: those with a name in the file keep it as far as Python can write it."""
    names = [model.body(i).name for i in range(1, model.nbody)]
    for name in names:
        if name:
            taken.new(name)
    return ["ground", *(taken[name] if name else taken.new("") for name in names)]


def _add(it: Reading, number, element, joints) -> None:
    """A body and the joints that carry it: between two joints is a body without mass."""
    word, parent = it.body_names[number], it.body_names[it.model.body_parentid[number]]
    frame = it.frame("body", number)
    *before, last = joints or [None]
    for i, joint in enumerate(before):
        between = it.unique_body_names.new(f"{word}_{i + 1}")
        it.bodies[between] = Body(0.0)
        _add_joint(it, number, element, joint, parent, between, frame)
        parent, frame = between, Frame()
    inertia = inertia_of(it, number) if it.model.body_weldid[number] or element.explicitinertial else ZERO_INERTIA
    with place_in(it.path, element, "body").prefix_errors():
        it.bodies[word] = body_of(inertia, shapes_of(it, number), float(it.model.body_gravcomp[number]) or None)
    _add_joint(it, number, element, last, parent, word, frame)


def _add_joint(it: Reading, number, element, joint, parent, child, frame) -> None:
    if joint is None:
        name = it.names.new(element.name)
        it.places[name] = place_in(it.path, element, "body")
        it.joints[name] = kinds.Fixed(parent, child, **frame.arguments())
        return
    model, i = it.model, joint.id
    name = it.names[joint.name] if joint.name else it.names.new(child)
    place = it.places[name] = place_in(it.path, joint, "joint")
    kind = str(it.mujoco.mjtJoint(model.jnt_type[i])).rpartition("_")[2].lower()
    size, q = {"free": 7, "ball": 4}.get(kind, 1), model.jnt_qposadr[i]
    reference, rest = (np.array(values[q : q + size]) for values in (model.qpos0, model.qpos_spring))
    arguments = _acting(it, joint, place)
    if "stiffness" in arguments and np.any(rest != (1, 0, 0, 0) if kind == "ball" else rest):
        arguments["rest"] = rest
    it.joint_sizes.append((name, size))
    if kind == "free":
        with place.prefix_errors():
            it.joints[name] = kinds.Free(parent, child, reference=reference, **arguments)
        return
    at, axis = np.array(model.jnt_pos[i]), np.array(model.jnt_axis[i])
    outer = frame.then(Frame(p=at))
    if kind != "ball":
        arguments["axis"] = axis
        (ref,) = reference
        if ref:  # in the pose of the file MuJoCo's coordinate is ref; ours is 0 where both joint frames coincide
            outer = outer.then(Frame(about(axis, -ref)) if kind == "hinge" else Frame(p=-ref * axis))
            arguments["reference"] = [ref]
        if model.jnt_limited[i]:
            arguments["limits"] = tuple(map(float, model.jnt_range[i]))
    ends = outer.arguments() | Frame(p=at).arguments("to", "to_turn")
    with place.prefix_errors():
        it.joints[name] = {"ball": kinds.Spherical, "hinge": kinds.Revolute, "slide": kinds.Prismatic}[kind](
            parent, child, **ends, **arguments
        )


def _acting(it: Reading, joint, place) -> dict[str, Any]:
    """What acts along a joint, where it is not 0."""
    model, i, dof = it.model, joint.id, it.model.jnt_dofadr[joint.id]
    for name, values in (("stiffness", joint.stiffness), ("damping", joint.damping)):
        if np.any(np.ravel(values)[1:]):
            raise place.error(f"must have one number as its {name}: higher powers are not modelled")
    if np.any(getattr(joint, "springyield", 0.0)):
        raise place.error("must have no springyield: springs are elastic here")
    # A motor's damping and armature act on its joint by the square of its gear.
    damping, armature = float(model.dof_damping[dof]), float(model.dof_armature[dof])
    for motor in it.motors.get(joint.name, ()):
        values, inertia = np.ravel(getattr(motor, "damping", 0.0)), float(getattr(motor, "armature", 0.0))
        if np.any(values[1:]):
            raise place_in(it.path, motor, motor_tag(motor)).error(
                "must have one number as its damping: higher powers are not modelled"
            )
        damping, armature = damping + motor.gear[0] ** 2 * values[0], armature + motor.gear[0] ** 2 * inertia
    found = {}
    for name, value, flag in (
        ("stiffness", model.jnt_stiffness[i], "spring"),
        ("damping", damping, "damper"),
        ("armature", armature, None),
        ("friction", model.dof_frictionloss[dof], "frictionloss"),
    ):
        if value and not (flag and it.is_off(flag)):
            found[name] = float(value)
    return found


def _is_on(it: Reading, element, limited, ends) -> bool:
    """Whether limits apply: as the file says, or, where it leaves that open, if it has some."""
    automatic = int(limited) == 2 and compiler_of(it.spec, element).autolimits and ends[0] < ends[1]
    return int(limited) == 1 or bool(automatic)


def _start_at_home(it: Reading) -> None:
    """A keyframe "home" is where a pose is looked for."""
    found = [key.id for key in it.spec.keys if key.name == "home"]
    if not found:
        return
    qpos = np.array(it.model.key_qpos[found[0]])
    for name, size in it.joint_sizes:
        start = as_float(qpos[:size])
        it.joints[name] = eqx.tree_at(
            lambda joint: joint.reference, it.joints[name], start, is_leaf=lambda x: x is None
        )
        qpos = qpos[size:]


def _actuators(it: Reading) -> Iterator[Actuator]:
    for i, motor in enumerate(it.spec.actuators):
        if _moves_a_coordinate(it, motor):
            joint = it.names[motor.target]
            yield Actuator(motor.name or f"motor_{i + 1}", joint, float(motor.gear[0]), _force_limits(it, motor))


def _moves_a_joint(motor) -> bool:
    return str(motor.trntype).endswith(("JOINT", "JOINTINPARENT"))


def _moves_a_coordinate(it: Reading, motor) -> bool:
    return _moves_a_joint(motor) and it.joints[it.names[motor.target]].quaternion is None


def motor_tag(motor) -> str:
    """What the file calls it, or could."""
    return "motor" if _is_plain(motor) else "actuator"


def _is_plain(motor) -> bool:
    without_law = str(motor.biastype).endswith("NONE") and str(motor.dyntype).endswith("NONE")
    return without_law and not motor.plugin.active


def _force_limits(it: Reading, motor) -> tuple[float, float] | None:
    low, high = -np.inf, np.inf
    if _is_on(it, motor, motor.forcelimited, motor.forcerange):
        low, high = motor.forcerange
    if _is_plain(motor) and _is_on(it, motor, motor.ctrllimited, motor.ctrlrange):
        ends = sorted(motor.gainprm[0] * np.array(motor.ctrlrange))
        low, high = max(low, ends[0]), min(high, ends[1])
    return (float(low), float(high)) if np.any(np.isfinite([low, high])) else None


def _refuse(path: Path, spec: Any) -> None:
    """What would make another motion if it was left out."""
    for name in ("density", "viscosity"):
        if getattr(spec.option, name):
            raise ValueError(f"{path}: <option {name}> must be 0: the drag of a fluid is not modelled")
    for flex in spec.flexes:
        raise place_in(path, flex, "flex").error("is not modelled: bodies are rigid")
    for tendon in spec.tendons:
        for name in ("stiffness", "damping", "frictionloss", "armature"):
            if np.any(getattr(tendon, name, 0.0)):
                raise place_in(path, tendon, "tendon").error(f"must have no {name}: tendons are not modelled")
    for body in spec.bodies:
        if body.plugin.active:
            raise place_in(path, body, "body").error("must have no <plugin>: its forces are not modelled")


def _ignored(it: Reading) -> Iterator[tuple[str, int | None]]:
    spec, model = it.spec, it.model
    line: Callable[..., int | None] = lambda element: place_in(it.path, element, "").line
    if not it.is_off("contact"):
        yield from (("contacts of <geom>", line(geom)) for geom in spec.geoms if geom.contype or geom.conaffinity)
        yield from (("<contact>", line(pair)) for pair in spec.pairs)
    if not it.is_off("limit"):
        yield from (("<joint range>", line(joint)) for joint in spec.joints if model.jnt_limited[joint.id])
    yield from (("<tendon>", line(tendon)) for tendon in spec.tendons)
    yield from (("mocap", line(body)) for body in spec.bodies if body.mocap)
    for motor in spec.actuators:
        if not _moves_a_joint(motor):
            yield "<actuator> on no joint", line(motor)
        elif not _moves_a_coordinate(it, motor):
            yield "<actuator> on a ball or free joint", line(motor)
        elif not _is_plain(motor):
            yield "the law of <actuator>", line(motor)
    if not it.is_off("equality"):
        yield from (("inactive <equality>", line(each)) for each in spec.equalities if not each.active)
