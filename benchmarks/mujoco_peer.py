"""The same mechanisms in MuJoCo (``pip install '.[peers]'``): loops as site-to-site ``connect``, stiff and without
contacts, Newton's solver to 1e-10."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import os
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import mujoco.rollout
import numpy as np

import ukjax as uk

from .mechanisms import Case

DT = 1e-3
HEADER = """
<mujoco>
  <compiler angle="radian" inertiafromgeom="false"/>
  <option timestep="{dt}" gravity="0 {gravity} 0" integrator="{integrator}" solver="Newton" tolerance="1e-10"
          iterations="100">
    <flag contact="disable" warmstart="enable"/>
  </option>
  <default><equality solref="{solref} 1" solimp="0.9999 0.9999 0.001 0.5 2"/></default>
  <worldbody>{bodies}{sites}</worldbody>
  <equality>{equality}</equality>
</mujoco>"""
LINK = """<body name="{name}" pos="{x} {y} 0"><joint type="hinge" axis="0 0 1"/>
<inertial pos="{centre} 0 0" mass="{mass}" diaginertia="{I} {I} {I}"/>{inside}</body>"""
SITE = '<site name="{name}" pos="{x} {y} 0"/>'


class Peer(NamedTuple):
    """A model, and the matrix from coordinates q of ukjax to its own: relative angles = ``relative`` q."""

    xml: str
    relative: np.ndarray

    def model(self, integrator: str) -> mujoco.MjModel:
        return mujoco.MjModel.from_xml_string(self.xml.replace("INTEGRATOR", integrator))


def peer(case: Case) -> Peer:
    """The model that corresponds to P1 or P2."""
    return {"P1": _three_chains, "P2": _five_links}[case.name]()


def _three_chains():
    robot = uk.systems.ParallelManipulator()
    bodies = ""
    for i in range(3):
        end = SITE.format(name=f"end{i}", x=robot.L, y=0)
        b = LINK.format(name=f"b{i}", x=robot.L, y=0, centre=robot.rb[i], mass=robot.mb[i], I=robot.Ib[i], inside=end)
        bodies += LINK.format(
            name=f"a{i}", x=robot.xA[i], y=robot.yA[i], centre=robot.ra[i], mass=robot.ma[i], I=robot.Ia[i], inside=b
        )
    loops = "".join(f'<connect site1="end0" site2="end{i}"/>' for i in (1, 2))
    return Peer(_xml(bodies, "", loops, gravity=0), np.eye(6))


def _five_links():
    robot = uk.systems.CoordinatedRobots()
    inside = SITE.format(name="end", x=robot.l[4], y=0)
    for i in reversed(range(5)):
        x = 0 if i == 0 else robot.l[i - 1]
        inside = LINK.format(
            name=f"link{i}", x=x, y=0, centre=robot.l[i] / 2, mass=robot.m[i], I=robot.I[i], inside=inside
        )
    base = SITE.format(name="base", x=robot.L, y=0)
    relative = np.eye(5) - np.eye(5, k=-1)
    return Peer(_xml(inside, base, '<connect site1="end" site2="base"/>', gravity=-float(robot.g)), relative)


def _xml(bodies, sites, equality, gravity):
    return HEADER.format(
        dt=DT,
        gravity=gravity,
        integrator="INTEGRATOR",
        solref=2 * DT,
        bodies=bodies,
        sites=sites,
        equality=equality,
    )


def acceleration(case: Case, q: np.ndarray, v: np.ndarray) -> np.ndarray:
    """q̈ in the coordinates of ukjax."""
    there = peer(case)
    model = there.model("Euler")
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = there.relative @ q, there.relative @ v
    mujoco.mj_forward(model, data)
    return np.linalg.solve(there.relative, data.qacc)


def forward(case: Case, q: np.ndarray, v: np.ndarray) -> Callable[[], None]:
    """A call of ``mj_forward`` for all states, one after the other."""
    there = peer(case)
    model = there.model("Euler")
    data = mujoco.MjData(model)
    states = list(zip(q @ there.relative.T, v @ there.relative.T, strict=True))

    def call():
        for position, velocity in states:
            data.qpos[:], data.qvel[:] = position, velocity
            mujoco.mj_forward(model, data)

    return call


def rollout(case: Case, integrator: str, q0: np.ndarray, v0: np.ndarray, steps: int) -> Callable[[], np.ndarray]:
    """A call of ``mujoco.rollout`` with a thread for each core: ``steps`` steps of all members. It returns the last q,
    shape (batch, n)."""
    there = peer(case)
    model = there.model(integrator)
    cores = len(os.sched_getaffinity(0))
    datas = [mujoco.MjData(model) for _ in range(cores)]
    zero = np.zeros((len(q0), 1))
    state = np.concatenate([zero, q0 @ there.relative.T, v0 @ there.relative.T], axis=1)
    warm, n = np.zeros((len(q0), model.nv)), case.q0.size
    pool = mujoco.rollout.Rollout(nthread=cores)

    def call():
        states, _ = pool.rollout(model, datas, state, nstep=steps, initial_warmstart=warm)
        return np.linalg.solve(there.relative, np.asarray(states)[:, -1, 1 : 1 + n].T).T

    return call


def residual(case: Case, q: np.ndarray) -> float:
    """The largest |φ| of a batch of positions."""
    return float(jnp.max(jnp.abs(jax.vmap(lambda x: case.system.position_residual(0.0, x))(jnp.asarray(q)))))
