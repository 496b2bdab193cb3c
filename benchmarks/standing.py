"""A humanoid that sinks to its knees on the eight corners of its feet: steps of Moreau and Jean against ``mj_step``.

Joints have the damping of the file and no motor. Both engines are timed in one process on one core, in CPU time,
without compilation: one motion, and a batch of members whose joints start at slightly different angles. The time of a
call of ``simulate`` without steps, estimated from motions of two lengths, is given separately for one motion; for a
batch it is contained in the time of the steps.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportOptionalSubscript=false
# pyright: reportArgumentType=false

import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import mujoco
import mujoco.rollout
import numpy as np

import ukjax as uk
from ukjax.contacts import Contact, Plane, Point

DT, SECONDS, FRICTION = 1e-3, 0.2, 0.8
FEET = ("left_foot", "right_foot")
CORNERS = [(x, y, -0.07) for x in (-0.07, 0.17) for y in (-0.045, 0.045)]
SPREAD = 0.02
"""Standard deviation of the angles at the start [rad]."""


def humanoid() -> uk.Mechanism:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # joint limits exert no force here
        robot = uk.load(uk.robots.path("humanoid"), floating=True)
    corners = [(foot, i, at) for foot in FEET for i, at in enumerate(CORNERS)]
    return robot.with_contacts(
        [Contact(Point(foot, at=at), Plane(), friction=FRICTION, name=f"{foot}_{i}") for foot, i, at in corners]
    )


def starts(robot: uk.Mechanism, members: int) -> tuple[np.ndarray, np.ndarray]:
    """q0 and v0: the lowest corner touches the ground; the first member stands upright on all eight."""
    n = robot.tree.n
    angles = SPREAD * np.random.default_rng(0).normal(size=(members, n - 6))
    angles[0] = 0
    q0 = np.concatenate([np.tile([0, 0, 2.0, 1, 0, 0, 0], (members, 1)), angles], axis=1)
    gaps = jax.jit(jax.vmap(lambda q: jax.numpy.concatenate([each.gaps(0.0, q) for each in robot.nonsmooth])))
    q0[:, 2] -= np.min(gaps(q0), axis=1)
    return q0, np.zeros((members, n))


def peer() -> mujoco.MjModel:
    """The same humanoid in MuJoCo, with its default solver, cones and steps."""
    root = '<link name="world"/><joint name="root" type="floating"><parent link="world"/><child link="pelvis"/></joint>'
    text = uk.robots.path("humanoid").read_text().replace("</robot>", root + "</robot>")
    spec = mujoco.MjSpec.from_string(text)
    for geom in spec.geoms:
        geom.contype = geom.conaffinity = 0
    for joint in spec.joints:
        joint.limited = mujoco.mjtLimited.mjLIMITED_FALSE
    spec.option.timestep = DT
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[5, 5, 1], friction=[FRICTION, 0, 0])
    for foot in FEET:
        for x, y, z in CORNERS:  # balls of 1 mm
            spec.body(foot).add_geom(
                type=mujoco.mjtGeom.mjGEOM_SPHERE,
                size=[1e-3, 0, 0],
                pos=[x, y, z + 1e-3],
                mass=0,
                friction=[FRICTION, 0, 0],
            )
    return spec.compile()


def theirs(robot: uk.Mechanism, model: mujoco.MjModel, q: np.ndarray) -> np.ndarray:
    """The positions of a batch in MuJoCo's coordinates."""
    positions = np.zeros((len(q), model.nq))
    for link in robot.tree.links:
        first = model.joint("root" if link.size == 6 else link.joint).qposadr[0]
        positions[:, first : first + link.size_of_q] = q[:, link.coordinates]
    return positions


def run(members: int) -> dict[str, Any]:
    """CPU time [µs] of a step of one motion, and per member of a batch, for both engines; that of a call [ms]."""
    uk.enable_float64()
    robot, model = humanoid(), peer()
    q0, v0 = starts(robot, members)
    steps = round(SECONDS / DT)
    ours = lambda q, v, end=SECONDS: uk.simulate(robot, q, v, [0.0, end], dt=DT, solver=uk.MoreauJean(), throw=False)
    data, there = mujoco.MjData(model), theirs(robot, model, q0)

    def alone():
        mujoco.mj_resetData(model, data)
        data.qpos[:] = there[0]
        for _ in range(steps):
            mujoco.mj_step(model, data)
        return np.array(data.qpos)

    state = np.concatenate([np.zeros((members, 1)), there, np.zeros((members, model.nv + model.na))], axis=1)
    batch = lambda: np.asarray(mujoco.rollout.rollout(model, [data], state, nstep=steps)[0])[:, -1, 1 : 1 + model.nq]
    result: dict[str, Any] = {"members": members}
    for name, their_run, q, v, count in (("one", alone, q0[0], v0[0], 1), ("batch", batch, q0, v0, members)):
        began = time.perf_counter()
        motion = jax.block_until_ready(ours(q, v))
        result[f"{name}: first [s]"] = time.perf_counter() - began
        repeats = 7 if count == 1 else 2  # a large batch takes long, and is an average
        seconds = lambda function, repeats=repeats: _cpu_seconds(function, repeats)
        whole, call = seconds(lambda q=q, v=v: ours(q, v).q), 0.0
        if count == 1:
            call = 2 * seconds(lambda q=q, v=v: ours(q, v, SECONDS / 2).q) - whole
        own, other = ((x / count / steps * 1e6) for x in (whole - call, seconds(their_run)))
        apart = np.abs(theirs(robot, model, np.asarray(motion.q)[..., -1, :].reshape(count, -1)) - their_run())
        result |= {
            f"{name}: call [ms]": call * 1e3,
            f"{name}: ukjax [µs]": own,
            f"{name}: MuJoCo [µs]": other,
            f"{name}: speed": other / own,
            f"{name}: failed": int(np.sum(~np.asarray(motion.finished))),
            f"{name}: apart": float(np.nanmax(apart)),
        }
    return result


def _cpu_seconds(function: Callable, repeats: int) -> float:
    """Shortest CPU time of a call [s]."""
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        jax.block_until_ready(function())
        seconds.append(time.process_time() - began)
    return min(seconds)
