"""Measure run times of JAX functions: results are waited for, compilation is reported separately."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._equation import constrained_motion
from .._kernel import per_member
from .._motion.simulate.simulate import simulate
from .._motion.stepper.runge_kutta4 import RungeKutta4
from .._system import AbstractSystem

DT = 1e-3


def measure(function: Callable, *arguments: Any, repeats: int = 9) -> tuple[float, float]:
    """Return the compilation time and the run time of a function [s].

    The run time is the median of ``repeats`` calls. The compilation time is that of the first call minus the run time.
    """

    def timed_call() -> float:
        began = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        return time.perf_counter() - began

    first_seconds = timed_call()
    median = statistics.median(timed_call() for _ in range(repeats))
    return max(first_seconds - median, 0.0), median


def accelerations(
    system: AbstractSystem, q: Float[Array, "batch nq"], v: Float[Array, "batch n"], method: str = "orthogonal"
) -> dict[str, float]:
    """Measure constrained accelerations of a batch, computed by ``jit`` of ``vmap``."""

    @eqx.filter_jit
    def batch_accelerations(system, q, v):
        acceleration_of = per_member(lambda q, v: constrained_motion(system(0.0, q, v), method).acceleration)
        return jax.vmap(acceleration_of)(q, v)

    compile_seconds, seconds = measure(batch_accelerations, system, q, v)
    return {"ns each": seconds / len(q) * 1e9, "compile s": compile_seconds}


def rollout(
    system: AbstractSystem, q0: Float[Array, "batch nq"], v0: Float[Array, "batch n"], seconds: float
) -> dict[str, float]:
    """Measure fixed Runge–Kutta steps of a batch, and the largest position residual at the end."""
    ts = np.array([0.0, seconds])
    final_positions = lambda: simulate(system, q0, v0, ts, dt=min(DT, seconds), solver=RungeKutta4(), throw=False).q[
        :, -1
    ]
    first_seconds, run_seconds = measure(final_positions, repeats=3)
    residual = jax.vmap(lambda q: system.position_residual(jnp.asarray(seconds, q.dtype), q))(final_positions())
    return {
        "steps/s": len(q0) * round(seconds / min(DT, seconds)) / run_seconds,
        "first s": first_seconds,
        "residual": float(jnp.max(jnp.abs(residual))),
    }
