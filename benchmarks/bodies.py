"""Robots' files, 4096 states at once: one acceleration, beside Pinocchio's and MuJoCo's; a chain of a hundred bodies.

Everything on one core but the rows that say otherwise in ``cores``. The peers take one state after the other, called
from Python: Pinocchio's ``aba`` where there are no loops, MuJoCo's ``mj_forward`` without contacts, soft where there
are. "in a loop": 20 evaluations in one program, as an integrator makes them. The benchmark ``robots`` shows that all
three agree.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ukjax as uk
from ukjax._command.measure import measure
from ukjax.joints import Spherical

from .apart import apart

BATCH, LOOPS = 4096, 20
ROBOTS = ("seven_axis_arm", "humanoid", "leg", "stewart_platform")
LOOP = "ukjax in a loop"
CANDIDATES = (("ukjax", None), (LOOP, None), (LOOP, 1), ("Pinocchio", 1), ("mj_forward", 1))
"""Candidates and how many cores they may use, all if None."""
BODIES, DT, SECONDS = 100, 0.005, 10.0


def run() -> list[dict[str, Any]]:
    rows = []
    for name in ROBOTS:
        group = []
        for candidate, cores in CANDIDATES:
            found = apart("bodies", "one", name, candidate, cores=cores) or {}
            group.append({"mechanism": name, "candidate": candidate, "cores": cores or os.cpu_count()} | found)
        own = next((row.get("µs each") for row in group if row["candidate"] == LOOP and row["cores"] == 1), None)
        for row in group:
            if own and row["cores"] == 1 and "µs each" in row:
                row["times ukjax"] = row["µs each"] / own
        rows += group
    swung = apart("bodies", "chain", patience=900.0) or {}
    return [*rows, {"mechanism": f"chain of {BODIES}", "candidate": "ukjax, sparse"} | swung]


def one(name: str, candidate: str) -> dict[str, Any]:
    """Microseconds for each acceleration."""
    uk.enable_float64()
    path = uk.robots.path(name)
    if candidate == "Pinocchio":
        return _pinocchio(path)
    if candidate == "mj_forward":
        return _mujoco(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mechanism = uk.load(path)
    q, v = (np.asarray(x) for x in mechanism.start())
    rng = np.random.default_rng(0)
    q, v = (jnp.asarray(x + 1e-3 * rng.normal(size=(BATCH, x.size))) for x in (q, v))
    function = uk.per_member(lambda q, v: uk.constrained_motion(mechanism(0.0, q, v)).acceleration)
    n = {"n": mechanism.tree.n, "batch": BATCH}
    if candidate == "ukjax":
        compiling, seconds = measure(jax.jit(jax.vmap(function)), q, v)
        return n | {"µs each": seconds / BATCH * 1e6, "compile s": compiling}

    @jax.jit
    def every(q, v):
        # The batch stays the last axis from one evaluation to the next, as in a rollout.
        step = lambda _, v: v + 1e-9 * jax.vmap(function, in_axes=-1, out_axes=-1)(q, v)
        return jax.lax.fori_loop(0, LOOPS, step, v)

    compiling, seconds = measure(every, q.T, v.T, repeats=5)
    return n | {"µs each": seconds / LOOPS / BATCH * 1e6, "compile s": compiling}


def chain() -> dict[str, Any]:
    """Ten seconds of links of 1 m with balls between them, let go from the level, in absolute coordinates."""
    uk.enable_float64()
    link = uk.Body(1.0, (0.5, 0, 0), (0.01, 1 / 12, 1 / 12))
    bodies = {f"link{i}": link for i in range(BODIES)}
    joints = {
        f"ball{i}": Spherical(f"link{i - 1}" if i else "ground", f"link{i}", at=(1.0 if i else 0.0, 0, 0))
        for i in range(BODIES)
    }
    mechanism = uk.Mechanism(bodies, joints, formulation="absolute")
    q, v = mechanism.start()
    go = lambda seconds, dt: uk.simulate(
        mechanism, q, v, [0.0, seconds], dt=dt, solver=uk.RungeKutta4(), method="sparse"
    )
    began = time.perf_counter()
    go(DT, DT)
    first = time.perf_counter() - began
    found = {"n": mechanism.tree.n, "first s": first}
    began = time.perf_counter()
    motion = go(SECONDS, DT)
    found |= {"ms per step": 1e3 * (time.perf_counter() - began) / (SECONDS / DT)}
    energy = [np.asarray(mechanism.energy(0.0, motion.q[i], motion.v[i])).item() for i in (0, -1)]
    size = 9.81 * BODIES * BODIES / 2
    residual = jnp.max(jnp.abs(mechanism.position_residual(0.0, motion.q[-1])))
    return found | {"residual": float(residual), "energy drift": abs(energy[1] - energy[0]) / size}


def _pinocchio(path) -> dict[str, Any]:
    import pinocchio as pin

    if path.suffix != ".urdf":
        return {}
    model = pin.buildModelFromUrdf(str(path))
    data, rng = model.createData(), np.random.default_rng(0)
    q, v, none = pin.neutral(model), rng.normal(size=model.nv), np.zeros(model.nv)
    return {"batch": 1, "µs each": _microseconds(lambda: pin.aba(model, data, q, v, none))}


def mujoco_model(path: Path) -> Any:
    """A robot's file in MuJoCo, without contacts."""
    import mujoco

    spec = mujoco.MjSpec.from_file(str(path))
    spec.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
    return spec.compile()


def _mujoco(path) -> dict[str, Any]:
    import mujoco

    model = mujoco_model(path)
    data = mujoco.MjData(model)
    data.qvel[:] = 1e-3 * np.random.default_rng(0).normal(size=model.nv)
    return {"batch": 1, "µs each": _microseconds(lambda: mujoco.mj_forward(model, data))}


def _microseconds(function: Callable) -> float:
    best = np.inf
    for _ in range(20):
        began = time.perf_counter()
        for _ in range(500):
            function()
        best = min(best, time.perf_counter() - began)
    return best / 500 * 1e6
