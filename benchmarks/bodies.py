"""Robot files: one acceleration of each of 4096 states on one core, against Pinocchio and MuJoCo; a chain of bodies.

CPU time per state, measured in turn in one process. ukjax: 20 evaluations in one program, as in an integrator. The
others evaluate one state after the other, called from Python: Pinocchio's ``aba`` for robots without loops, MuJoCo's
``mj_forward`` without contacts. MuJoCo's loops are soft. The benchmark ``robots`` shows that all three agree.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ukjax as uk
from ukjax.joints import Spherical

from .apart import apart
from .interleaved import measured

BATCH, LOOPS, CALLS, ROUNDS = 4096, 20, 2000, 5
ROBOTS = ("seven_axis_arm", "humanoid", "leg", "stewart_platform")
BODIES, DT, SECONDS = 100, 0.005, 1.0


def run() -> list[dict[str, Any]]:
    rows = [row for name in ROBOTS for row in apart("bodies", "robot", name, cores=1)]
    chained = {"mechanism": f"chain of {BODIES}", "candidate": "ukjax, sparse", "cores": 1}
    return [*rows, chained | apart("bodies", "chain", cores=1)]


def robot(name: str) -> list[dict[str, Any]]:
    """A row for each candidate: CPU time per acceleration."""
    uk.enable_float64()
    path = uk.robots.path(name)
    calls, counts = {"ukjax": _ours(path)}, {"ukjax": BATCH * LOOPS, "mj_forward": CALLS, "Pinocchio": CALLS}
    began = time.process_time()
    calls["ukjax"]()
    compiling = time.process_time() - began
    calls["mj_forward"] = _mujoco(path)
    if path.suffix == ".urdf":
        calls["Pinocchio"] = _pinocchio(path)
    found = measured(calls, ROUNDS)
    each = {candidate: 1e6 * found[candidate].seconds / counts[candidate] for candidate in calls}
    return [
        {"mechanism": name, "candidate": candidate, "cores": 1, "µs each": each[candidate]}
        | {"times ukjax": each[candidate] / each["ukjax"]}
        | ({"first s": compiling} if candidate == "ukjax" else {})
        for candidate in calls
    ]


def _ours(path: Path) -> Callable[[], Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # limits are not modelled
        mechanism = uk.load(path)
    rng = np.random.default_rng(0)
    q, v = (jnp.asarray(np.asarray(x) + 1e-3 * rng.normal(size=(BATCH, x.size))).T for x in mechanism.start())
    function = uk.per_member(lambda q, v: uk.constrained_motion(mechanism(0.0, q, v)).acceleration)

    @jax.jit
    def every(q, v):
        # The batch stays the last axis from one evaluation to the next, as in a rollout.
        step = lambda _, v: v + 1e-9 * jax.vmap(function, in_axes=-1, out_axes=-1)(q, v)
        return jax.lax.fori_loop(0, LOOPS, step, v)

    return lambda: jax.block_until_ready(every(q, v))


def _pinocchio(path: Path) -> Callable[[], None]:
    import pinocchio as pin

    model = pin.buildModelFromUrdf(str(path))
    data, rng = model.createData(), np.random.default_rng(0)
    q, v, none = pin.neutral(model), rng.normal(size=model.nv), np.zeros(model.nv)
    return _repeated(lambda: pin.aba(model, data, q, v, none))


def mujoco_model(path: Path) -> Any:
    """The robot file in MuJoCo, without contacts."""
    import mujoco

    spec = mujoco.MjSpec.from_file(str(path))
    spec.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
    return spec.compile()


def _mujoco(path: Path) -> Callable[[], None]:
    import mujoco

    model = mujoco_model(path)
    data = mujoco.MjData(model)
    data.qvel[:] = 1e-3 * np.random.default_rng(0).normal(size=model.nv)
    return _repeated(lambda: mujoco.mj_forward(model, data))


def _repeated(function: Callable) -> Callable[[], None]:
    def call():
        for _ in range(CALLS):
            function()

    return call


def chain() -> dict[str, Any]:
    """Steps of a chain of links of 1 m with ball joints, released from the horizontal, in absolute coordinates."""
    uk.enable_float64()
    link = uk.Body(1.0, (0.5, 0, 0), (0.01, 1 / 12, 1 / 12))
    bodies = {f"link{i}": link for i in range(BODIES)}
    joints = {
        f"ball{i}": Spherical(f"link{i - 1}" if i else "ground", f"link{i}", at=(1.0 if i else 0.0, 0, 0))
        for i in range(BODIES)
    }
    mechanism = uk.Mechanism(bodies, joints, formulation="absolute")
    q, v = mechanism.start()

    def go(seconds):
        began = time.process_time()
        motion = uk.simulate(mechanism, q, v, [0.0, seconds], dt=DT, solver=uk.RungeKutta4(), method="sparse")
        jax.block_until_ready(motion.q)
        return motion, time.process_time() - began

    _, first = go(DT)
    motion, seconds = go(SECONDS)
    energy = [np.asarray(mechanism.energy(0.0, motion.q[i], motion.v[i])).item() for i in (0, -1)]
    size = 9.81 * BODIES * BODIES / 2
    residual = jnp.max(jnp.abs(mechanism.position_residual(0.0, motion.q[-1])))
    return {
        "n": mechanism.tree.n,
        "first s": first,
        "ms per step": 1e3 * seconds / (SECONDS / DT),
        "residual": float(residual),
        "energy drift": abs(energy[1] - energy[0]) / size,
    }
