"""Time that waits for the result, with compilation apart."""

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
from .._motion.simulate import simulate
from .._motion.stepper.runge_kutta4 import RungeKutta4
from .._system import AbstractSystem

DT = 1e-3


def measure(function: Callable, *arguments: Any, repeats: int = 9) -> tuple[float, float]:
    """Seconds of the first call less a later one (compilation), and the median seconds of ``repeats`` later calls."""

    def once() -> float:
        began = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        return time.perf_counter() - began

    first = once()
    median = statistics.median(once() for _ in range(repeats))
    return max(first - median, 0.0), median


def accelerations(
    system: AbstractSystem, q: Float[Array, "batch nq"], v: Float[Array, "batch n"], method: str = "orthogonal"
) -> dict[str, float]:
    """Constrained accelerations of a batch in one call, as ``jit`` of ``vmap`` gives them."""

    @eqx.filter_jit
    def every(system, q, v):
        one = per_member(lambda q, v: constrained_motion(system(0.0, q, v), method).acceleration)
        return jax.vmap(one)(q, v)

    compiling, seconds = measure(every, system, q, v)
    return {"ns each": seconds / len(q) * 1e9, "compile s": compiling}


def rollout(
    system: AbstractSystem, q0: Float[Array, "batch nq"], v0: Float[Array, "batch n"], seconds: float
) -> dict[str, float]:
    """Runge–Kutta steps of the whole batch, of which the end is kept, and how far it is off the constraints."""
    ts = np.array([0.0, seconds])
    end = lambda: simulate(system, q0, v0, ts, dt=min(DT, seconds), solver=RungeKutta4(), throw=False).q[:, -1]
    first, taken = measure(end, repeats=3)
    off = jax.vmap(lambda q: system.position_residual(jnp.asarray(seconds, q.dtype), q))(end())
    return {
        "steps/s": len(q0) * round(seconds / min(DT, seconds)) / taken,
        "first s": first,
        "residual": float(jnp.max(jnp.abs(off))),
    }
