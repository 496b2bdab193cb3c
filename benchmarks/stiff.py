"""Stiff motions: steps, error and CPU time of Radau against the explicit default.

The governor of IFToMM A05, with its reference from ``ukjax.verify``, and a damped spring of k = 1e6 N/m on a driven
mass, whose motion is q = cos t.
"""

import time
import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np

import ukjax as uk

TOLERANCES = (1e-6, 1e-8, 1e-10)
REPEATS = 8
"""Calls of which the fastest counts. Checks of a start are compiled in the fifth call."""


def run() -> list[dict[str, Any]]:
    uk.enable_float64()
    rows = []
    for name, model, q0, v0, ts, error in (governor(), spring(1e6, 10.0)):
        for solver in (None, uk.Radau()):
            for tolerance in TOLERANCES:
                how = dict(solver=solver, rtol=tolerance, atol=tolerance, max_steps=1_000_000)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # the explicit motions are stiff
                    first, _ = cpu_time(model, q0, v0, ts, how)
                    repeated = [cpu_time(model, q0, v0, ts, how) for _ in range(REPEATS)]
                    again, motion = min(repeated, key=lambda each: each[0])
                rows.append(
                    {
                        "system": name,
                        "solver": "explicit, the default" if solver is None else "Radau",
                        "tolerance": tolerance,
                        "steps per second of motion": float(np.round(int(motion.steps) / (ts[-1] - ts[0]), 1)),
                        "error of q": float(error(motion)),
                        "CPU ms": round(1e3 * again, 1),
                        "first call, CPU s": round(first, 1) if tolerance == TOLERANCES[0] else None,  # one program
                    }
                )
    return rows


def cpu_time(model, q0, v0, ts, how):
    begin = time.process_time()
    motion = uk.simulate(model, q0, v0, ts, **how)
    motion.q.block_until_ready()
    return time.process_time() - begin, motion


def governor():
    problem: Any = uk.verify.problem("governor")
    model, q0, v0 = problem.model()
    return "governor", model, q0, v0, np.array([0.0, 1.0]), lambda motion: problem.error(problem.quantity(motion))


def spring(stiffness, end):
    """m = 1 kg on a spring and a damper that pull towards cos t, with the force for which q = cos t is the motion."""
    damping = 2 * np.sqrt(stiffness)
    off = lambda t, q, v: stiffness * (q - jnp.cos(t)) + damping * (v + jnp.sin(t))
    model = uk.System(uk.MassForce(jnp.eye(1), lambda t, q, v: -off(t, q, v) - jnp.cos(t)))
    ts = np.array([0.0, end])
    return "spring, 1e6 N/m", model, [1.0], [0.0], ts, lambda motion: abs(float(motion.q[-1, 0]) - np.cos(end))
