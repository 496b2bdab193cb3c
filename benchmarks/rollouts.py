"""Motions of 1 s in steps of 1 ms, Runge–Kutta 4 with projection: 4096 members and one, against MuJoCo.

A batch uses all cores, as MuJoCo's rollout does by its own pool of threads. One motion has one core, and so has
MuJoCo's. Whole calls are timed, compilation apart. ``residual``: the largest distance from the constraints at the end.
"""

from typing import Any

import equinox as eqx
import jax
import numpy as np

import ukjax as uk
from ukjax._command.measure import DT, measure, rollout

from .apart import apart
from .mechanisms import five_links, three_chains

BATCH, SECONDS = 4096, 1.0
CASES = {"P1": three_chains, "P2": five_links}
ALONE = 20.0  # seconds of a single motion


def run() -> list[dict[str, Any]]:
    rows = []
    for name in CASES:
        group = [{"mechanism": name} | apart("rollouts", "ours", name, dtype) for dtype in ("float64", "float32")]
        group += [{"mechanism": name} | apart("rollouts", "mujoco", name, which, BATCH) for which in ("RK4", "Euler")]
        rows += _beside(group)
        group = [{"mechanism": name} | row for row in apart("rollouts", "alone", name, cores=1)]
        group += [{"mechanism": name} | apart("rollouts", "mujoco", name, w, 1, cores=1) for w in ("RK4", "Euler")]
        rows += _beside(group)
    return rows


def _beside(group: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with their speed relative to the first."""
    return [row | {"times ukjax": row["steps/s"] / group[0]["steps/s"]} for row in group]


def ours(name: str, dtype: str) -> dict[str, Any]:
    uk.enable_float64()
    case = CASES[name]()
    q, v = case.starts(BATCH)
    cast = lambda x: x.astype(dtype) if eqx.is_array(x) else x
    system, q, v = jax.tree.map(cast, (case.system, q, v))
    return {"candidate": f"ukjax, {dtype}", "batch": BATCH} | rollout(system, q, v, SECONDS)


def mujoco(name: str, integrator: str, batch: int) -> dict[str, Any]:
    from . import mujoco_peer

    uk.enable_float64()
    case = CASES[name]()
    q, v = map(np.asarray, case.starts(batch))
    steps = round((SECONDS if batch > 1 else ALONE) / DT)
    seconds, end = mujoco_peer.rollout(case, integrator, q, v, steps)
    return {
        "candidate": f"MuJoCo rollout, {integrator}",
        "batch": batch,
        "steps/s": batch * steps / seconds,
        "residual": mujoco_peer.residual(case, end),
    }


def alone(name: str) -> list[dict[str, Any]]:
    """One motion: ``simulate``, and the loop that a script would write, of the same step with the same projection."""
    import jax.numpy as jnp

    uk.enable_float64()
    case = CASES[name]()
    steps = round(ALONE / DT)
    ts = np.array([0.0, ALONE])
    motion = lambda: uk.simulate(case.system, case.q0, case.v0, ts, dt=DT, solver=uk.RungeKutta4())
    _, seconds = measure(motion, repeats=3)
    own = {"steps/s": steps / seconds, "residual": float(jnp.max(jnp.abs(motion().position_residual[-1])))}

    def acceleration(q, v):
        return uk.constrained_motion(case.system(0.0, q, v)).acceleration

    def onto(q, v):
        """The projection of a script: two Newton steps with one matrix, then the velocities with it."""
        phi = lambda q: case.system.position_residual(0.0, q)
        A, M = jax.jacfwd(phi)(q), case.system(0.0, q, v).M
        zero = jnp.zeros_like(q)
        K = lambda missed: uk.constrained_motion(uk.Terms(M, zero, A, missed)).acceleration
        q = q - K(phi(q))
        q = q - K(phi(q))
        return q, v - K(A @ v)

    def step(state, _):
        (q, v), h = state, DT
        a1 = acceleration(q, v)
        q2, v2 = q + h / 2 * v, v + h / 2 * a1
        a2 = acceleration(q2, v2)
        q3, v3 = q + h / 2 * v2, v + h / 2 * a2
        a3 = acceleration(q3, v3)
        q4, v4 = q + h * v3, v + h * a3
        a4 = acceleration(q4, v4)
        new = q + h / 6 * (v + 2 * v2 + 2 * v3 + v4), v + h / 6 * (a1 + 2 * a2 + 2 * a3 + a4)
        return onto(*new), None

    raw = jax.jit(lambda q, v: jax.lax.scan(step, (q, v), None, length=steps)[0])
    _, seconds = measure(raw, case.q0, case.v0, repeats=3)
    end = raw(case.q0, case.v0)[0]
    residual = float(jnp.max(jnp.abs(case.system.position_residual(0.0, end))))
    by_hand = {"candidate": "lax.scan by hand", "batch": 1, "steps/s": steps / seconds, "residual": residual}
    return [{"candidate": "ukjax, one motion", "batch": 1} | own, by_hand]
