"""Robot files: M, bias and accelerations against Pinocchio and MuJoCo; largest relative difference in three poses.

The mechanisms in ``ukjax/robots``, and every fourth URDF of the package ``example-robot-data`` (extra ``peers``).
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import importlib.metadata
import re
import warnings
import xml.etree.ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pinocchio as pin

import ukjax as uk
from ukjax.joints import AbstractCoupling, AbstractJoint

POSES, EVERY = 3, 4
CREEP = 1e-3
"""Creep rate of dry friction, as in ``ukjax.Mechanism``."""


def run() -> list[dict[str, Any]]:
    uk.enable_float64()
    rows = []
    for name in uk.robots.names():
        path = uk.robots.path(name)
        rows.append({"file": path.name} | (of_urdf(path) if path.suffix == ".urdf" else of_loops(path)))
    for path in corpus():
        jax.clear_caches()  # each robot has its own shapes and programs
        rows.append({"file": path.name} | of_urdf(path))
    return rows


def corpus() -> list[Path]:
    """Every fourth URDF of ``example-robot-data``, by name."""
    files = importlib.metadata.files("example-robot-data") or []
    return sorted(Path(str(file.locate())) for file in files if file.suffix == ".urdf")[::EVERY]


def loaded(path: Path) -> uk.Mechanism:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return uk.load(path)


def of_urdf(path: Path) -> dict[str, Any]:
    """Differences of a tree of bodies from Pinocchio."""
    try:
        model = pin.buildModelFromUrdf(str(path))
    except ValueError as error:
        return {"note": f"Pinocchio: {str(error).replace(str(path), path.name).strip()[:60]}"}
    try:
        mechanism = without_elements(loaded(path))
    except ValueError as error:
        return {"note": f"refused: {str(error).removeprefix(str(path)).lstrip(':, ')[:100]}"}
    data, peer = model.createData(), Peer(model, mechanism)
    worst: dict[str, list[float]] = {"mass matrix": [], "bias": [], "acceleration": []}
    for q, v in states(model):
        M, bias = mass_and_bias(model, data, q, v)
        ours = peer.values(peer.positions(q), v)
        theirs = {"mass matrix": M, "bias": bias, "acceleration": pin.aba(model, data, q, v, 0 * v)}
        for name, value in theirs.items():
            worst[name].append(relative(getattr(ours, name.replace(" ", "_")), value))
    # None if a body without mass has no acceleration, because its couplings are left out.
    told = {name: float(np.max(found)) if np.all(np.isfinite(found)) else None for name, found in worst.items()}
    return {"n": mechanism.tree.n, "bodies": len(mechanism.bodies)} | told | mimics(path, model)


def mimics(path: Path, model: Any) -> dict[str, Any]:
    """Difference of the acceleration from Pinocchio for joints that mimic others. In Pinocchio these joints have no
    coordinate, in ukjax they have a constraint row. Empty if there are no such joints, or if a joint has several
    coordinates."""
    try:
        fewer, followers = pin.buildModelFromUrdf(str(path), True), {}
    except ValueError:  # a joint mimics one that Pinocchio leaves out
        return {}
    for joint in xml.etree.ElementTree.parse(path).getroot().iter("joint"):
        if (mimic := joint.find("mimic")) is not None:
            ratio, offset = (float(mimic.get(key, default)) for key, default in (("multiplier", 1), ("offset", 0)))
            followers[joint.get("name")] = mimic.get("joint"), ratio, offset
    if fewer.nv == model.nv or np.any(np.array(model.nqs)[1:] != 1):
        return {}
    G, g = np.zeros((model.nv, fewer.nv)), np.zeros(model.nv)
    for i, name in enumerate(model.names):
        source, ratio, offset = followers.get(name, (name, 1.0, 0.0))
        if i:
            G[model.idx_vs[i], fewer.idx_vs[fewer.getJointId(source)]], g[model.idx_vs[i]] = ratio, offset
    mechanism = without_elements(loaded(path), couplings=True)
    data, peer, worst = fewer.createData(), Peer(model, mechanism), 0.0
    for q, v in states(fewer):
        M, bias = mass_and_bias(fewer, data, q, v)
        theirs = G @ np.linalg.solve(M, -bias)
        worst = max(worst, relative(peer.values(peer.positions(G @ q + g), G @ v).acceleration, theirs))
    return {"acceleration, mimicking": worst}


def of_loops(path: Path) -> dict[str, Any]:
    """Differences of closed loops from Pinocchio's constraint models and MuJoCo's soft ones, at a pose in motion.

    MuJoCo reads the file for both: Pinocchio's reader accepts only one body in the world, and drops others.
    """
    mechanism = loaded(path)
    compiled = mujoco.MjModel.from_xml_path(str(path))
    compiled.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_LIMIT
    model, contacts, names = as_pinocchio(compiled)
    data, peer = model.createData(), Peer(model, mechanism)
    motors = sorted({motor.joint for motor in mechanism.actuators})
    random = np.random.default_rng(1)
    position, rate = ({name: scale * random.normal() for name in motors} for scale in (0.02, 0.5))
    q, v = mechanism.start(position, rate)
    there, v = peer.theirs(np.asarray(q)), peer.rates(np.asarray(q), np.asarray(v))
    M, bias = mass_and_bias(model, data, there, v)
    tau = np.zeros(model.nv)
    for i in range(compiled.njnt):
        if compiled.jnt_type[i] >= 2:
            at = model.idx_vs[names[i]]
            x, dof = there[model.idx_qs[names[i]]], compiled.jnt_dofadr[i]
            spring = np.ravel(compiled.jnt_stiffness[i])[0] * (x - compiled.qpos_spring[compiled.jnt_qposadr[i]])
            rubbing = compiled.dof_frictionloss[dof] * np.tanh(v[at] / CREEP)
            tau[at] = -spring - np.ravel(compiled.dof_damping[dof])[0] * v[at] - rubbing
    ours = peer.values(q, v)
    found = pin.StdVec_RigidConstraintData()
    found.extend(contact.createData() for contact in contacts)
    pin.initConstraintDynamics(model, data, contacts, found)
    settings = pin.ProximalSettings(1e-13, 1e-9, 50)
    acceleration = np.array(pin.constraintDynamics(model, data, there, v, tau, contacts, found, settings))
    return {
        "n": mechanism.tree.n,
        "bodies": len(mechanism.bodies),
        "mass matrix": relative(ours.mass_matrix, M),
        "bias": relative(ours.bias + ours.applied, bias),
        "acceleration": relative(ours.acceleration, acceleration),
        "constraint force": relative(ours.constraint_force, M @ acceleration + bias - tau),
        "MuJoCo's acceleration": relative(ours.acceleration, in_mujoco(compiled, model, names, there, v)),
    }


def mass_and_bias(model: Any, data: Any, q: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    M = np.array(pin.crba(model, data, q))
    return np.triu(M) + np.triu(M, 1).T, np.array(pin.nonLinearEffects(model, data, q, v))


def as_pinocchio(compiled: Any) -> tuple[Any, Any, list[int]]:
    """The bodies, joints and connections of MuJoCo's model in Pinocchio, and the index there of each joint."""
    model, names = pin.Model(), [0] * compiled.njnt
    model.gravity.linear = np.array(compiled.opt.gravity)
    joint, frame = {0: 0}, {0: pin.SE3.Identity()}
    for b in range(1, compiled.nbody):
        parent = compiled.body_parentid[b]
        on, place = joint[parent], frame[parent] * se3(compiled.body_quat[b], compiled.body_pos[b])
        for j in range(compiled.body_jntadr[b], compiled.body_jntadr[b] + compiled.body_jntnum[b]):
            anchor, axis = pin.SE3(np.eye(3), compiled.jnt_pos[j]), compiled.jnt_axis[j]
            kind = {
                0: pin.JointModelFreeFlyer,
                2: lambda axis=axis: pin.JointModelPrismaticUnaligned(axis),
                3: lambda axis=axis: pin.JointModelRevoluteUnaligned(axis),
            }[int(compiled.jnt_type[j])]()
            place = pin.SE3.Identity() if compiled.jnt_type[j] == 0 else place * anchor
            name = re.sub(r"\W", "_", compiled.joint(j).name)
            names[j] = on = model.addJoint(on, kind, place, name)
            model.armature[model.idx_vs[on]] = compiled.dof_armature[compiled.jnt_dofadr[j]]
            place = anchor.inverse() if compiled.jnt_type[j] else pin.SE3.Identity()
        joint[b], frame[b] = on, place
        R = se3(compiled.body_iquat[b], compiled.body_ipos[b]).rotation
        inertia = R @ np.diag(compiled.body_inertia[b]) @ R.T
        model.appendBodyToJoint(on, pin.Inertia(compiled.body_mass[b], compiled.body_ipos[b], inertia), place)
    contacts = pin.StdVec_RigidConstraintModel()
    for e in range(compiled.neq):
        ends = []
        for site in (compiled.eq_obj1id[e], compiled.eq_obj2id[e]):
            body = compiled.site_bodyid[site]
            ends += [joint[body], frame[body] * pin.SE3(np.eye(3), compiled.site_pos[site])]
        contacts.append(pin.RigidConstraintModel(pin.ContactType.CONTACT_3D, model, *ends, pin.ReferenceFrame.LOCAL))
    return model, contacts, names


def se3(quaternion: np.ndarray, place: np.ndarray) -> Any:
    R = np.zeros(9)
    mujoco.mju_quat2Mat(R, quaternion)
    return pin.SE3(R.reshape(3, 3), np.array(place))


def in_mujoco(compiled: Any, model: Any, names: list[int], q: np.ndarray, v: np.ndarray) -> np.ndarray:
    """MuJoCo's acceleration, with the stiffest connections that it allows, in Pinocchio's velocities."""
    compiled.eq_solref[:], compiled.eq_solimp[:] = (0.004, 1), (0.9999, 0.9999, 0.001, 0.5, 2)
    data, found = mujoco.MjData(compiled), np.zeros(model.nv)
    spatial = [j for j in range(compiled.njnt) if compiled.jnt_type[j] == 0]
    for j in range(compiled.njnt):
        at, qpos, dof = names[j], compiled.jnt_qposadr[j], compiled.jnt_dofadr[j]
        theirs, rates = q[model.idx_qs[at] :], v[model.idx_vs[at] :]
        if j in spatial:
            R = pin.Quaternion(theirs[3:7].copy()).toRotationMatrix()
            data.qpos[qpos : qpos + 7] = [*theirs[:3], theirs[6], *theirs[3:6]]
            data.qvel[dof : dof + 6] = [*(R @ rates[:3]), *rates[3:6]]
        else:
            data.qpos[qpos], data.qvel[dof] = theirs[0], rates[0]
    mujoco.mj_forward(compiled, data)
    for j in range(compiled.njnt):
        at, dof = model.idx_vs[names[j]], compiled.jnt_dofadr[j]
        if j in spatial:
            there = q[model.idx_qs[names[j]] :]
            R = pin.Quaternion(there[3:7].copy()).toRotationMatrix()
            turning = np.cross(v[at + 3 : at + 6], v[at : at + 3])
            found[at : at + 6] = [*(R.T @ data.qacc[dof : dof + 3] - turning), *data.qacc[dof + 3 : dof + 6]]
        else:
            found[at] = data.qacc[dof]
    return found


def without_elements(mechanism: uk.Mechanism, couplings: bool = False) -> uk.Mechanism:
    """The tree alone, or with its ``couplings``: forces along joints are not part of Pinocchio's bias."""
    fields = ("damping", "friction", "armature", "stiffness")
    joints = {}
    for name, joint in mechanism.joints.items():
        if isinstance(joint, AbstractJoint):
            for field in fields:
                joint = eqx.tree_at(lambda j, f=field: getattr(j, f), joint, None, is_leaf=lambda x: x is None)
        if couplings or not isinstance(joint, AbstractCoupling):
            joints[name] = joint
    return uk.Mechanism(mechanism.bodies, joints, mechanism.gravity)


class Values(NamedTuple):
    mass_matrix: np.ndarray
    bias: np.ndarray
    acceleration: np.ndarray
    constraint_force: np.ndarray
    applied: np.ndarray


class Peer:
    """Conversion of q and v from Pinocchio to ukjax: q = ``positions``(q_pin), v = N(q) v_pin."""

    def __init__(self, model: Any, mechanism: uk.Mechanism):
        self.model, self.mechanism = model, mechanism
        names = {re.sub(r"\W", "_", name): i for i, name in enumerate(model.names)}
        self.pairs = [(link, names[link.joint or link.body]) for link in mechanism.tree.links if link.size]

    def positions(self, q: np.ndarray) -> np.ndarray:
        found = np.zeros(self.mechanism.tree.nq)
        for link, i in self.pairs:
            theirs = q[self.model.idx_qs[i] : self.model.idx_qs[i] + self.model.nqs[i]]
            if link.size_of_q == 7:
                theirs = np.array([*theirs[:3], theirs[6], *theirs[3:6]])
            elif theirs.size == 2:
                theirs = [np.arctan2(theirs[1], theirs[0])]
            found[link.coordinates] = theirs
        return found

    def N(self, q: Any) -> Any:
        rows = []
        for link, i in self.pairs:
            first = self.model.idx_vs[i]
            block = jnp.eye(1)
            if link.size_of_q == 7:  # Pinocchio's velocities are along the body's axes
                w, x, y, z = q[link.first_of_q + 3 : link.first_of_q + 7]
                R = jnp.array(
                    [
                        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
                        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
                        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
                    ]
                )
                block = jax.scipy.linalg.block_diag(R, R)
            rows.append(jnp.zeros((link.size, self.model.nv)).at[:, first : first + block.shape[1]].set(block))
        return jnp.concatenate(rows)

    def theirs(self, q: np.ndarray) -> np.ndarray:
        """Pinocchio's q for q of ukjax, for free bodies and joints with one coordinate."""
        found = np.zeros(self.model.nq)
        for link, i in self.pairs:
            own = q[link.coordinates]
            own = np.array([*own[:3], *own[4:7], own[3]]) if link.size_of_q == 7 else own
            found[self.model.idx_qs[i] : self.model.idx_qs[i] + len(own)] = own
        return found

    def rates(self, q: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Pinocchio's v for v of ukjax."""
        return np.linalg.lstsq(self.N(q), v, rcond=None)[0]

    def values(self, q: Any, v: np.ndarray) -> Values:
        """Values of ukjax, in the velocities of Pinocchio."""
        ours = jnp.asarray(q)
        N = self.N(ours)
        rates = N @ v
        going = rates if self.mechanism.kinematic_map is None else self.mechanism.kinematic_map(ours, rates)
        turning = jax.jvp(lambda q: self.N(q) @ v, (ours,), (going,))[1]
        M, Q = self.mechanism.dynamics.terms(jnp.zeros(()), ours, rates)
        terms = uk.Terms(M, Q, jnp.zeros((0, len(rates))), jnp.zeros(0))
        if self.mechanism.constraints:
            terms = self.mechanism(0.0, ours, rates)
        _, bare = without_elements(self.mechanism).dynamics.terms(jnp.zeros(()), ours, rates)
        try:
            motion = uk.constrained_motion(terms)
            acceleration, force = motion.acceleration, motion.constraint_force
            force = force if terms.c is None else force - terms.c  # in the others, friction is an applied force
        except ValueError:  # a body without mass, because its couplings are left out
            acceleration = force = jnp.full_like(rates, jnp.nan)
        back = np.linalg.lstsq(N, acceleration - turning, rcond=None)[0]
        bias = np.asarray(N.T @ (M @ turning - Q))
        return Values(np.asarray(N.T @ M @ N), bias, back, np.asarray(N.T @ force), np.asarray(N.T @ (Q - bare)))


def states(model: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Random q and v."""
    pin.seed(1)
    random = np.random.default_rng(1)
    low, high = np.full(model.nq, -1.0), np.full(model.nq, 1.0)
    for _ in range(POSES):
        yield pin.randomConfiguration(model, low, high), random.normal(size=model.nv)


def relative(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference, relative to the largest entry of ``theirs``. If all those entries are zero, such as the
    bias of wheels on level ground, the difference itself."""
    return float(np.max(np.abs(ours - theirs), initial=0) / (np.max(np.abs(theirs), initial=0) or 1.0))
