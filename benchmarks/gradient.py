"""Cost of the gradient of a final state with respect to six link masses, relative to the motion alone.

P1, fixed Runge–Kutta steps of 1 ms with projection: reverse mode through ``simulate``, against the forward run.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import ukjax as uk
from ukjax._command.measure import DT, measure

from .apart import apart
from .mechanisms import three_chains

STEPS = 200
BATCHES = (1, 1024, 4096)


def run() -> list[dict[str, Any]]:
    return [apart("gradient", "one", batch, patience=500.0) or {"batch": batch} for batch in BATCHES]


def one(batch: int) -> dict[str, Any]:
    uk.enable_float64()
    gallery = uk.systems.ParallelManipulator()
    q0, v0 = three_chains().starts(batch)
    ts = np.array([0.0, STEPS * DT])

    @eqx.filter_jit
    def loss(masses, q0, v0):
        robot = eqx.tree_at(lambda robot: (robot.ma, robot.mb), gallery, (masses[:3], masses[3:]))
        system = uk.System(robot.dynamics, robot.loops)
        return jnp.mean(uk.simulate(system, q0, v0, ts, dt=DT, solver=uk.RungeKutta4()).q[:, -1] ** 2)

    masses = jnp.concatenate([gallery.ma, gallery.mb])
    compiling, forward = measure(loss, masses, q0, v0, repeats=5)
    gradient = eqx.filter_jit(jax.grad(loss))
    compiling_gradient, reverse = measure(gradient, masses, q0, v0, repeats=5)
    nudge = 1e-5 * masses[0]
    change = lambda sign: loss(masses.at[0].add(sign * nudge), q0, v0)
    difference = (change(1) - change(-1)) / (2 * nudge)
    found = gradient(masses, q0, v0)
    return {
        "batch": batch,
        "forward ns/step": forward / batch / STEPS * 1e9,
        "gradient ns/step": reverse / batch / STEPS * 1e9,
        "times forward": reverse / forward,
        "compile s": compiling,
        "compile gradient s": compiling_gradient,
        "difference": float(abs(found[0] - difference) / jnp.max(jnp.abs(found))),
    }
