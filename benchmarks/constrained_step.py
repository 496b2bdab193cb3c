"""One constrained acceleration in a batch: methods of ukjax against ``vmap`` of the formula with a pseudoinverse.

Random M (positive definite), Q, A (full rank), b; float64. All methods are measured in one run, so that the ratios are
reliable. One core is used: with jax 0.10 a batch of LAPACK calls, as in the formula with a pseudoinverse, can deadlock
on two cores. JAX counts the cores when it makes its first array, so nothing that is imported here may make one.
"""

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ukjax as uk
from ukjax._command.measure import measure

BATCH = 4096
SIZES = ((6, 4), (12, 10))
METHODS = ("orthogonal", "cholesky")


def run() -> list[dict[str, Any]]:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before JAX counts the cores
    uk.enable_float64()
    rows = []
    for n, m in SIZES:
        batch = _systems(n, m)
        expected = _pseudoinverse(*batch)
        candidates = {"vmap of jnp.linalg.pinv": _pseudoinverse} | {name: _method(name) for name in METHODS}
        reference = None
        for name, function in candidates.items():
            compiled, seconds = measure(function, *batch)
            reference = reference or seconds
            error = float(jnp.max(jnp.abs(function(*batch) - expected)) / jnp.max(jnp.abs(expected)))
            rows.append(
                {
                    "n": n,
                    "m": m,
                    "method": name,
                    "µs per system": seconds / BATCH * 1e6,
                    "times faster": reference / seconds,
                    "compile s": compiled,
                    "difference": error,
                }
            )
    return rows


@jax.jit
@jax.vmap
def _pseudoinverse(M, Q, A, b):
    """q̈ = a + M⁻¹Aᵀ (A M⁻¹Aᵀ)⁺ (b − A a), as in a user's script."""
    a, W = jnp.linalg.solve(M, Q), jnp.linalg.solve(M, A.T)
    return a + W @ (jnp.linalg.pinv(A @ W) @ (b - A @ a))


def _method(name):
    return jax.jit(jax.vmap(lambda M, Q, A, b: uk.constrained_motion(uk.Terms(M, Q, A, b), name).acceleration))


def _systems(n, m):
    rng = np.random.default_rng(0)
    root = rng.normal(size=(BATCH, n, n))
    M = root @ root.transpose(0, 2, 1) + n * np.eye(n)
    A, Q, b = rng.normal(size=(BATCH, m, n)), rng.normal(size=(BATCH, n)), rng.normal(size=(BATCH, m))
    return tuple(map(jnp.asarray, (M, Q, A, b)))
