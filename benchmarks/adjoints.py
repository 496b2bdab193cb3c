"""Cost and accuracy of a gradient, for each way of computing it.

Three chains joined at a point (n = 6, m = 4), one motion of one second. The derivative is that of an angle at the end
with respect to the six masses of the links. It is compared with differences of order eight of motions with tolerances
of 1e-12.
"""

import time
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import ukjax as uk

from .mechanisms import three_chains

STENCIL = (1 / 280, -4 / 105, 1 / 5, -4 / 5, 0, 4 / 5, -1 / 5, 4 / 105, -1 / 280)
RK4 = uk.RungeKutta4()
WAYS: dict[str, tuple[Any, dict[str, Any]]] = {
    "fixed steps of 5 ms, reverse": (jax.grad, dict(dt=0.005, solver=RK4)),
    "fixed steps of 5 ms, forward": (jax.jacfwd, dict(dt=0.005, solver=RK4)),
    "RecursiveCheckpointAdjoint": (jax.grad, {}),
    "DirectAdjoint, 256 steps": (jax.grad, dict(adjoint=dfx.DirectAdjoint(), max_steps=256)),
    "ForwardMode": (jax.jacfwd, dict(adjoint=dfx.ForwardMode())),
    "BacksolveAdjoint": (jax.grad, dict(adjoint=dfx.BacksolveAdjoint(), drift="none")),
}


def run() -> list[dict[str, Any]]:
    uk.enable_float64()
    gallery = uk.systems.ParallelManipulator()
    q0, v0 = (x[0] for x in three_chains().starts(1))

    def angle(masses, **how):
        robot = eqx.tree_at(lambda robot: (robot.ma, robot.mb), gallery, (masses[:3], masses[3:]))
        return uk.simulate(uk.System(robot.dynamics, robot.loops), q0, v0, [0.0, 1.0], **how).q[-1, 0]

    masses = jnp.concatenate([gallery.ma, gallery.mb])
    exact = _differences(jax.jit(lambda m: angle(m, rtol=1e-12, atol=1e-13)), masses)
    rows = []
    for name, (derivative, how) in WAYS.items():
        alone, _, _ = _measure(lambda m, how=how: angle(m, **how), masses)
        seconds, compiling, memory = _measure(derivative(lambda m, how=how: angle(m, **how)), masses)
        found = np.asarray(jax.jit(derivative(lambda m, how=how: angle(m, **how)))(masses))
        rows.append(
            {
                "way": name,
                "motion alone ms": 1e3 * alone,
                "derivative ms": 1e3 * seconds,
                "times": seconds / alone,
                "memory MB": memory / 1e6,
                "compile s": compiling,
                "relative error": float(np.max(np.abs(found - exact)) / np.max(np.abs(exact))),
            }
        )
    return rows


def _measure(function, x):
    """The shortest time of five runs [s], the compile time [s] and the memory of intermediate values [bytes]."""
    began = time.perf_counter()
    compiled = jax.jit(function).lower(x).compile()
    compiling, runs = time.perf_counter() - began, []
    for _ in range(6):
        began = time.perf_counter()
        jax.block_until_ready(compiled(x))
        runs.append(time.perf_counter() - began)
    return min(runs[1:]), compiling, compiled.memory_analysis().temp_size_in_bytes  # pyright: ignore


def _differences(function, x, step=2e-3):
    """The gradient, by differences for each entry."""
    gradient = []
    for unit in np.eye(x.size):
        h = step * float(x @ unit)
        gradient.append(sum(w * float(function(x + k * h * unit)) for k, w in enumerate(STENCIL, -4)) / h)
    return np.array(gradient)
