"""Reader of MJCF files (https://mujoco.readthedocs.io/en/stable/XMLreference.html), compiled by MuJoCo."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from .. import joints as kinds
from .._errors import InputError
from .._mechanism import Actuator, Body
from .._precision import as_float
from .compiled import compiled, parsed, place_in
from .contacts import contacts_in
from .contents import Contents, Modelled, UniqueNames, body_of, counted
from .equality import equalities
from .frame import Frame, about
from .geoms import inertia_of, shapes_of
from .inertia import ZERO_INERTIA
from .reading import Reading


def read_mjcf(path: Path, modelled: Modelled) -> Contents:
    """Read the bodies, joints, gravity and actuators of an MJCF file.

    Raises ``InputError`` with file and line if MuJoCo rejects the file, or if it contains forces that are not modelled.
    Raises ``ImportError`` if the package mujoco is not installed.
    """
    mujoco, spec = parsed(path)
    _refuse(path, spec)
    sensors = [("<sensor>", place_in(path, sensor, "").line) for sensor in spec.sensors]
    kinds_of_geoms = [(geom, str(geom.type).rpartition("_")[2].lower()) for geom in spec.geoms]
    model, meshes = compiled(path, mujoco, spec)
    geom_kinds = {geom.id: kind for geom, kind in kinds_of_geoms}
    unique_body_names, motors = UniqueNames("body"), {}
    for motor in spec.actuators:
        if _moves_a_joint(motor):
            motors.setdefault(motor.target, []).append(motor)
    body_names = _names_of_bodies(model, unique_body_names)
    reading = Reading(
        path, mujoco, spec, model, meshes, geom_kinds, motors, body_names, unique_body_names, UniqueNames("joint"),
        {}, {}, {}, [],
    )  # fmt: skip
    for element in spec.joints:
        if element.name:
            reading.names.new(element.name)
    bodies = {body.id: body for body in spec.bodies}
    joints = {joint.id: joint for joint in spec.joints}
    for number in range(1, model.nbody):
        first = model.body_jntadr[number]
        own_joints = [joints[i] for i in range(first, first + model.body_jntnum[number])]
        _add(reading, number, bodies[number], own_joints)
    if not reading.is_off("equality"):
        reading.joints.update(equalities(reading))
    _start_at_home(reading)
    gravity = np.zeros(3) if reading.is_off("gravity") else np.array(model.opt.gravity)
    actuators = tuple(_actuators(reading))
    contacts, ignored_contacts = (
        contacts_in(reading, modelled.restitution) if modelled.contacts else ([], _contacts(reading))
    )
    ignored = counted([*ignored_contacts, *_ignored(reading, modelled), *sensors])
    title = spec.modelname or path.stem
    return Contents(
        path, title, reading.bodies, reading.joints, gravity, actuators, reading.places, ignored,
        contacts=tuple(contacts), modelled=modelled,
    )  # fmt: skip


def _names_of_bodies(model, unique_body_names) -> list[str]:
    """The name of each body by its id. Unnamed bodies are named last, so that the names of others do not change."""
    names = [model.body(i).name for i in range(1, model.nbody)]
    for name in names:
        if name:
            unique_body_names.new(name)
    return ["ground", *(unique_body_names[name] if name else unique_body_names.new("") for name in names)]


def _add(reading: Reading, number, element, joints) -> None:
    """Add a body and the joints that carry it, with a massless body between two joints."""
    name, parent = reading.body_names[number], reading.body_names[reading.model.body_parentid[number]]
    frame = reading.frame("body", number)
    *inner_joints, last = joints or [None]
    for i, joint in enumerate(inner_joints):
        intermediate = reading.unique_body_names.new(f"{name}_{i + 1}")
        reading.bodies[intermediate] = Body(0.0)
        _add_joint(reading, number, element, joint, parent, intermediate, frame)
        parent, frame = intermediate, Frame()
    inertia = (
        inertia_of(reading, number) if reading.model.body_weldid[number] or element.explicitinertial else ZERO_INERTIA
    )
    with place_in(reading.path, element, "body").prefix_errors():
        reading.bodies[name] = body_of(
            inertia, shapes_of(reading, number), float(reading.model.body_gravcomp[number]) or None
        )
    _add_joint(reading, number, element, last, parent, name, frame)


def _add_joint(reading: Reading, number, element, joint, parent, child, frame) -> None:
    """Add one joint of a body, or a fixed joint if the body has none."""
    if joint is None:
        name = reading.names.new(element.name)
        reading.places[name] = place_in(reading.path, element, "body")
        reading.joints[name] = kinds.Fixed(parent, child, **frame.arguments())
        return
    model, i = reading.model, joint.id
    name = reading.names[joint.name] if joint.name else reading.names.new(child)
    place = reading.places[name] = place_in(reading.path, joint, "joint")
    kind = str(reading.mujoco.mjtJoint(model.jnt_type[i])).rpartition("_")[2].lower()
    size, q = {"free": 7, "ball": 4}.get(kind, 1), model.jnt_qposadr[i]
    reference, rest = (np.array(values[q : q + size]) for values in (model.qpos0, model.qpos_spring))
    arguments = _acting(reading, joint, place)
    if "stiffness" in arguments and np.any(rest != (1, 0, 0, 0) if kind == "ball" else rest):
        arguments["rest"] = rest
    reading.joint_sizes.append((name, size))
    if kind == "free":
        with place.prefix_errors():
            reading.joints[name] = kinds.Free(parent, child, reference=reference, **arguments)
        return
    at, axis = np.array(model.jnt_pos[i]), np.array(model.jnt_axis[i])
    joint_frame = frame.then(Frame(p=at))
    if kind != "ball":
        arguments["axis"] = axis
        (ref,) = reference
        if ref:  # MuJoCo's coordinate is ref in the file's pose; here it is 0 where both joint frames coincide
            joint_frame = joint_frame.then(Frame(about(axis, -ref)) if kind == "hinge" else Frame(p=-ref * axis))
            arguments["reference"] = [ref]
        if model.jnt_limited[i]:
            arguments["limits"] = tuple(map(float, model.jnt_range[i]))
    ends = joint_frame.arguments() | Frame(p=at).arguments("to", "to_turn")
    with place.prefix_errors():
        reading.joints[name] = {"ball": kinds.Spherical, "hinge": kinds.Revolute, "slide": kinds.Prismatic}[kind](
            parent, child, **ends, **arguments
        )


def _acting(reading: Reading, joint, place) -> dict[str, Any]:
    """The nonzero forces along a joint, as arguments of the joint."""
    model, i, dof = reading.model, joint.id, reading.model.jnt_dofadr[joint.id]
    for name, values in (("stiffness", joint.stiffness), ("damping", joint.damping)):
        if np.any(np.ravel(values)[1:]):
            raise place.error(f"must have one number as its {name}: higher powers are not modelled")
    if np.any(getattr(joint, "springyield", 0.0)):
        raise place.error("must have no springyield: springs are elastic here")
    # Damping and armature of a motor act on its joint with the square of its gear ratio.
    damping, armature = float(model.dof_damping[dof]), float(model.dof_armature[dof])
    for motor in reading.motors.get(joint.name, ()):
        values, inertia = np.ravel(getattr(motor, "damping", 0.0)), float(getattr(motor, "armature", 0.0))
        if np.any(values[1:]):
            raise place_in(reading.path, motor, motor_tag(motor)).error(
                "must have one number as its damping: higher powers are not modelled"
            )
        damping, armature = damping + motor.gear[0] ** 2 * values[0], armature + motor.gear[0] ** 2 * inertia
    arguments = {}
    for name, value, flag in (
        ("stiffness", model.jnt_stiffness[i], "spring"),
        ("damping", damping, "damper"),
        ("armature", armature, None),
        ("friction", model.dof_frictionloss[dof], "frictionloss"),
    ):
        if value and not (flag and reading.is_off(flag)):
            arguments[name] = float(value)
    return arguments


def _start_at_home(reading: Reading) -> None:
    """Use the keyframe "home", if there is one, as reference pose."""
    home_keys = [key.id for key in reading.spec.keys if key.name == "home"]
    if not home_keys:
        return
    qpos = np.array(reading.model.key_qpos[home_keys[0]])
    for name, size in reading.joint_sizes:
        start = as_float(qpos[:size])
        reading.joints[name] = eqx.tree_at(
            lambda joint: joint.reference, reading.joints[name], start, is_leaf=lambda x: x is None
        )
        qpos = qpos[size:]


def _actuators(reading: Reading) -> Iterator[Actuator]:
    taken = {motor.name for motor in reading.spec.actuators}
    for motor in reading.spec.actuators:
        if _why_not(reading, motor):
            continue
        model, i, kinds = reading.model, motor.id, _kinds(reading, motor)
        gear = float(model.actuator_gear[i, 0])
        g0, g1, g2 = map(float, model.actuator_gainprm[i, :3])
        b0, b1, b2 = map(float, model.actuator_biasprm[i, :3])
        low, high = map(float, model.actuator_ctrlrange[i])
        yield Actuator(
            motor.name or _unused_name(f"motor_{i + 1}", taken),
            reading.names[motor.target],
            gear,
            limits=(low, high) if model.actuator_ctrllimited[i] and not reading.is_off("clampctrl") else None,
            force_limits=_force_limits(reading, motor, gear),
            gain=g0 if kinds.gain == "FIXED" else (g0, g1, g2),
            bias=(b0, b1, b2) if kinds.bias == "AFFINE" else (0.0, 0.0, 0.0),
        )


def _unused_name(name: str, taken: set[str]) -> str:
    """``name``, with underscores appended until it is not in ``taken``."""
    while name in taken:
        name += "_"
    return name


def _force_limits(reading: Reading, motor, gear: float) -> tuple[float, float] | None:
    """The force limits of a motor, reduced to those of its joint."""
    model, i, joint = reading.model, motor.id, _joint_id(reading, motor)
    low_high = np.array([-np.inf, np.inf])
    if model.actuator_forcelimited[i]:
        low_high = np.array(model.actuator_forcerange[i])
    if model.jnt_actfrclimited[joint] and gear:
        low_high = np.clip(low_high, *np.sort(model.jnt_actfrcrange[joint] / gear))
    return (float(low_high[0]), float(low_high[1])) if np.any(np.isfinite(low_high)) else None


class _Kinds(NamedTuple):
    """The kinds of the gain, the bias and the internal dynamics of an actuator, such as "FIXED" and "NONE"."""

    gain: str
    bias: str
    dynamics: str


def _kinds(reading: Reading, motor) -> _Kinds:
    model, mujoco, i = reading.model, reading.mujoco, motor.id
    kinds = (
        mujoco.mjtGain(model.actuator_gaintype[i]),
        mujoco.mjtBias(model.actuator_biastype[i]),
        mujoco.mjtDyn(model.actuator_dyntype[i]),
    )
    return _Kinds(*(str(kind).rpartition("_")[2] for kind in kinds))


def _joint_id(reading: Reading, motor) -> int:
    return int(reading.model.actuator_trnid[motor.id, 0])


def _moves_a_joint(motor) -> bool:
    return str(motor.trntype).endswith(("JOINT", "JOINTINPARENT"))


def _why_not(reading: Reading, motor) -> str:
    """The reason why a motor is not modelled, as a description of its element; empty if it is modelled."""
    model, joint, kinds = reading.model, _joint_id(reading, motor), _kinds(reading, motor)
    if reading.is_off("actuation") or 0 <= motor.group < 31 and model.opt.disableactuator >> motor.group & 1:
        return "disabled <actuator>"
    if not _moves_a_joint(motor):
        return "<actuator> on no joint"
    if reading.joints[reading.names[motor.target]].quaternion is not None:
        return "<actuator> on a ball or free joint"
    if kinds.dynamics != "NONE":
        return "<actuator> with a state of its own"
    if motor.plugin.active or kinds.gain not in ("FIXED", "AFFINE") or kinds.bias not in ("NONE", "AFFINE"):
        return "<actuator> whose law is not linear"
    if getattr(motor, "delay", 0.0):
        return "<actuator> with a delay"
    shares = sum(_moves_a_joint(other) and _joint_id(reading, other) == joint for other in reading.spec.actuators) > 1
    if model.jnt_actfrclimited[joint] and (shares or model.jnt_actgravcomp[joint]):
        return "<actuator> on a joint whose actuatorfrcrange limits several forces"
    return ""


def motor_tag(motor) -> str:
    """The tag of an actuator in error messages."""
    without_law = str(motor.biastype).endswith("NONE") and str(motor.dyntype).endswith("NONE")
    return "motor" if without_law and not motor.plugin.active else "actuator"


def _refuse(path: Path, spec: Any) -> None:
    """Raise ``InputError`` for forces that are not modelled and would change the motion."""
    for name in ("density", "viscosity"):
        if getattr(spec.option, name):
            raise InputError(f"{path}: <option {name}> must be 0: the drag of a fluid is not modelled")
    for flex in spec.flexes:
        raise place_in(path, flex, "flex").error("is not modelled: bodies are rigid")
    for tendon in spec.tendons:
        for name in ("stiffness", "damping", "frictionloss", "armature"):
            if np.any(getattr(tendon, name, 0.0)):
                raise place_in(path, tendon, "tendon").error(f"must have no {name}: tendons are not modelled")
    for body in spec.bodies:
        if body.plugin.active:
            raise place_in(path, body, "body").error("must have no <plugin>: its forces are not modelled")


def _contacts(reading: Reading) -> Iterator[tuple[str, int | None]]:
    """The elements of contacts, with their lines."""
    if not reading.is_off("contact"):
        line: Callable[..., int | None] = lambda element: place_in(reading.path, element, "").line
        geoms = (geom for geom in reading.spec.geoms if geom.contype or geom.conaffinity)
        yield from (("contacts of <geom>", line(geom)) for geom in geoms)
        yield from (("<contact>", line(pair)) for pair in reading.spec.pairs)


def _ignored(reading: Reading, modelled: Modelled) -> Iterator[tuple[str, int | None]]:
    """The elements other than contacts that are not modelled, with their lines."""
    spec, model = reading.spec, reading.model
    line: Callable[..., int | None] = lambda element: place_in(reading.path, element, "").line
    if not reading.is_off("limit"):
        for joint in spec.joints:
            is_stop = modelled.stops and not str(joint.type).endswith("BALL")
            if model.jnt_limited[joint.id] and not is_stop:
                yield "<joint range> of a ball" if modelled.stops else "<joint range>", line(joint)
    yield from (("<tendon>", line(tendon)) for tendon in spec.tendons)
    yield from (("mocap", line(body)) for body in spec.bodies if body.mocap)
    for motor in spec.actuators:
        if reason := _why_not(reading, motor):
            yield reason, line(motor)
        elif _kinds(reading, motor).bias == "AFFINE":
            yield "<actuator> that holds its joint", line(motor)
    if not reading.is_off("equality"):
        yield from (("inactive <equality>", line(equality)) for equality in spec.equalities if not equality.active)
