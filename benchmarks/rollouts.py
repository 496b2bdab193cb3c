"""Runge–Kutta steps of 1 ms with projection: 4096 members and one, against MuJoCo's rollout on as many threads.

CPU time of all threads per step and member, measured in turn with MuJoCo. A batch uses all cores, as does MuJoCo's pool
of threads. One motion uses one core in both. ``residual``: the largest distance from the constraints at the end.
MuJoCo's constraints are soft; Euler is its cheapest integrator.
"""

import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ukjax as uk
from ukjax._command.measure import DT

from .apart import apart
from .interleaved import measured
from .mechanisms import five_links, three_chains

CASES = {"P1": three_chains, "P2": five_links}
BATCH, STEPS = 4096, 100
ALONE = 5000
"""Steps of a single motion."""


def run() -> list[dict[str, Any]]:
    return [
        row for name in CASES for row in (*apart("rollouts", "batch", name), *apart("rollouts", "alone", name, cores=1))
    ]


def batch(name: str) -> list[dict[str, Any]]:
    """4096 motions on all cores."""
    from . import mujoco_peer

    uk.enable_float64()
    case = CASES[name]()
    q, v = map(np.asarray, case.starts(BATCH))
    ts = np.array([0.0, STEPS * DT])
    calls: dict[str, Callable[[], Any]] = {
        "ukjax": lambda: uk.simulate(case.system, q, v, ts, dt=DT, solver=uk.RungeKutta4()).q[:, -1]
    }
    for integrator in ("RK4", "Euler"):
        calls[f"MuJoCo rollout, {integrator}"] = mujoco_peer.rollout(case, integrator, q, v, STEPS)
    return _rows(case, calls, BATCH, STEPS, rounds=1)


def alone(name: str) -> list[dict[str, Any]]:
    """One motion on one core: ``simulate``, the loop of a script with the same step and projection, and MuJoCo."""
    from . import mujoco_peer

    uk.enable_float64()
    case = CASES[name]()
    ts = np.array([0.0, ALONE * DT])
    by_hand = _by_hand(case)
    calls: dict[str, Callable[[], Any]] = {
        "ukjax": lambda: uk.simulate(case.system, case.q0, case.v0, ts, dt=DT, solver=uk.RungeKutta4()).q[None, -1],
        "lax.scan by hand": lambda: by_hand(case.q0, case.v0)[0][None],
    }
    q, v = np.asarray(case.q0)[None], np.asarray(case.v0)[None]
    for integrator in ("RK4", "Euler"):
        calls[f"MuJoCo rollout, {integrator}"] = mujoco_peer.rollout(case, integrator, q, v, ALONE)
    return _rows(case, calls, 1, ALONE, rounds=5)


def _rows(case, calls, members, steps, rounds):
    from .mujoco_peer import residual

    found = measured(calls, rounds)
    return [
        {"mechanism": case.name, "candidate": candidate, "batch": members, "threads": len(os.sched_getaffinity(0))}
        | {"µs a step": 1e6 * each.seconds / members / steps, "times ukjax": each.seconds / found["ukjax"].seconds}
        | {"residual": residual(case, np.asarray(each.result))}
        for candidate, each in found.items()
    ]


def _by_hand(case):
    """The loop of a user's script: classical Runge–Kutta, then two Newton steps for the positions and one for the
    velocities, with one matrix."""

    def acceleration(q, v):
        return uk.constrained_motion(case.system(0.0, q, v)).acceleration

    def onto(q, v):
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

    return jax.jit(lambda q, v: jax.lax.scan(step, (q, v), None, length=ALONE)[0])
