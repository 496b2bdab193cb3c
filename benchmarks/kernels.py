"""Motions as machine code on one core: steps of one motion and of 4096 motions, and the time to the first result.

Runge–Kutta steps of 1 ms with projection. A step of one motion is compared with ``mj_step`` of MuJoCo, with the
integrator RK4 and without contacts, called from Python. MuJoCo's loops are soft. "again": in another process, which
reads the machine code from disk.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import os
import tempfile
import time
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ukjax as uk

from .apart import apart
from .mechanisms import four_bars

ROBOTS = ("seven_axis_arm", "leg", "humanoid", "stewart_platform")
SYSTEMS = ("P1", *ROBOTS, "16 four-bars")
MEMBERS, DT = 4096, 1e-3
FEW, MANY = 500, 4500
"""Numbers of steps of two motions. The difference of their times is that of the additional steps."""


def run() -> list[dict[str, Any]]:
    rows = []
    for name in SYSTEMS:
        row: dict[str, Any] = {"system": name}
        with tempfile.TemporaryDirectory() as folder:
            os.environ["UKJAX_CACHE"] = folder
            for members in (1, MEMBERS):
                first = apart("kernels", "motion", name, members, cores=1, patience=600.0) or {}
                again = apart("kernels", "first", name, members, cores=1, patience=600.0) or {}
                row |= {f"{key}, {members}": value for key, value in first.items()}
                row |= {f"{key} again, {members}": value for key, value in again.items()}
            del os.environ["UKJAX_CACHE"]
        if name in ROBOTS:
            row |= apart("kernels", "mujoco", name, cores=1) or {}
            if "mj_step µs" in row and "µs a step, 1" in row:
                row["times as fast"] = row["mj_step µs"] / row["µs a step, 1"]
        rows.append(row)
    return [*rows, apart("kernels", "equal_bits", patience=600.0) or {"system": "equal bits"}]


def system(name: str) -> tuple[Any, np.ndarray, np.ndarray]:
    """A system and a start with small velocities."""
    if name == "P1":
        robot = uk.systems.ParallelManipulator()
        found = uk.System(robot.dynamics, robot.loops)
        q, v = uk.project(found, 0.0, *robot.start())
        q, v = uk.project(found, 0.0, q, 0.5 * jnp.ones(v.size))
        return found, np.asarray(q), np.asarray(v)
    if name not in ROBOTS:
        case = four_bars(int(name.split()[0]))
        return case.system, np.asarray(case.q0), np.asarray(case.v0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # limits are not modelled
        found = uk.load(uk.robots.path(name))
    q, v = found.start()
    v = v + 0.1 * np.random.default_rng(0).normal(size=v.shape)
    q, v = uk.project(found, 0.0, q, v) if found.constraints else (q, v)
    return found, np.asarray(q), np.asarray(v)


def motion(name: str, members: int) -> dict[str, float]:
    """CPU time to the first result [s], and per step and member [µs]."""
    model, simulate = _ready(name, members)
    least, most = (FEW, MANY) if members == 1 else (20, 120)
    seconds = {least: _first(simulate, least)}
    first = seconds[least]
    simulate(most)
    for steps in (least, most):
        tried = []
        for _ in range(5):
            began = time.process_time()
            simulate(steps)
            tried.append(time.process_time() - began)
        seconds[steps] = min(tried)
    each = (seconds[most] - seconds[least]) / (most - least) / members
    return {"first s": first, "µs a step": 1e6 * each}


def first(name: str, members: int) -> dict[str, float]:
    """CPU time to the first result [s]."""
    return {"first s": _first(_ready(name, members)[1], FEW if members == 1 else 20)}


def _first(simulate, steps):
    began = time.process_time()
    simulate(steps)
    return time.process_time() - began


def _ready(name, members):
    uk.enable_float64()
    model, q, v = system(name)
    if members > 1:
        q, v = np.tile(q, (members, 1)), np.tile(v, (members, 1))

    def simulate(steps):
        ts = np.array([0.0, steps * DT])
        return jax.block_until_ready(uk.simulate(model, q, v, ts, dt=DT, solver=uk.RungeKutta4()).q)

    return model, simulate


def mujoco(name: str) -> dict[str, float]:
    """CPU time of MuJoCo's step [µs]."""
    import mujoco as mj

    from .bodies import mujoco_model

    model = mujoco_model(uk.robots.path(name))
    model.opt.integrator, model.opt.timestep = mj.mjtIntegrator.mjINT_RK4, DT
    data = mj.MjData(model)
    mj.mj_step(model, data, 100)
    tried = []
    for _ in range(7):
        began = time.process_time()
        mj.mj_step(model, data, 2000)
        tried.append((time.process_time() - began) / 2000)
    return {"mj_step µs": 1e6 * min(tried)}


def equal_bits() -> dict[str, Any]:
    """Whether the motion of a member is equal, bit for bit, alone and in batches of any size."""
    uk.enable_float64()
    model, q, v = system("P1")
    ts = np.linspace(0.0, 0.2, 5)
    go = lambda q, v: np.asarray(uk.simulate(model, q, v, ts, dt=DT, solver=uk.RungeKutta4()).q)
    alone = go(q, v)
    same = {n: bool(np.all(go(np.tile(q, (n, 1)), np.tile(v, (n, 1))) == alone)) for n in (1, 3, 8, 100, MEMBERS)}
    return {"system": "equal bits"} | {f"{n} members": equal for n, equal in same.items()}
