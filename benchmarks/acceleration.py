"""One constrained acceleration from q and v, 4096 members: this library against ``vmap`` of a formula, MuJoCo and C.

Every candidate runs in a process of its own. With jax 0.10 batches of LAPACK calls can deadlock on two cores; a
candidate that does not answer in time has no number. ``cores`` says how many cores a candidate may use, and ``times
ukjax`` compares candidates on the same number of cores. MuJoCo, Pinocchio, NumPy and C take one state after the other,
on one core; MJX leaves out part of what depends on the velocity (see its error). "in a loop": 100 evaluations in one
program, as an integrator makes them, without the cost of a single call and of its arguments.
"""

import os
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import ukjax as uk
from ukjax._command.measure import measure

from .apart import apart
from .mechanisms import Case, five_links, four_bars, three_chains

BATCH = 4096
CASES = {
    "P1": three_chains,
    "P2": five_links,
    "P3_4": lambda: four_bars(4),
    "P3_16": lambda: four_bars(16),
    "P3_40": lambda: four_bars(40),
}
LARGE = {"P3_16": 512, "P3_40": 128}  # smaller batches for these
OURS, LOOP = "ukjax", "ukjax in a loop"
EVERYWHERE = ((OURS, None), ("vmap(pinv)", None), ("vmap(cholesky)", None))
ONE_CORE = ((OURS, 1), (LOOP, 1), ("vmap(pinv)", 1), ("vmap(cholesky)", 1))
PEERS = (("numpy.linalg.pinv", 1), ("mj_forward", 1), ("MJX", None), ("Pinocchio", 1))
LOOPS = ((LOOP, None), ("ukjax, float32, in a loop", None))
CANDIDATES = {
    "P1": (*EVERYWHERE, *ONE_CORE, *LOOPS, *PEERS, ("C loop", 1)),
    "P2": (*EVERYWHERE, *ONE_CORE, *LOOPS, *PEERS),
}
"""Candidates and how many cores they may use, all if None."""


def run() -> list[dict[str, Any]]:
    rows = []
    for name in CASES:
        group = []
        for candidate, cores in CANDIDATES.get(name, EVERYWHERE):
            found = apart("acceleration", "one", name, candidate, patience=120.0, cores=cores)
            group.append({"mechanism": name, "candidate": candidate, "cores": cores or os.cpu_count()} | (found or {}))
        own = {row["cores"]: row.get("µs each") for row in group if row["candidate"] == OURS}
        for row in group:
            if "µs each" in row and own.get(row["cores"]):
                row["times ukjax"] = row["µs each"] / own[row["cores"]]
        rows += group
    return rows


def one(name: str, candidate: str) -> dict[str, Any]:
    """Microseconds per member, and how far the result is from that of ``numpy.linalg.pinv``."""
    uk.enable_float64()
    case = CASES[name]()
    q, v = case.starts(LARGE.get(name, BATCH))
    expected = _by_numpy(case, np.asarray(q[7]), np.asarray(v[7]))
    if candidate in _ONE_BY_ONE:
        some = np.asarray(q[:512]), np.asarray(v[:512])
        seconds, found = _ONE_BY_ONE[candidate](case, *some)
        return {"batch": 1, "µs each": seconds * 1e6, "error": _error(found, expected)}
    if candidate == "C loop":
        return _c_loop(np.asarray(q), np.asarray(v), expected)
    if "float32" in candidate:
        case, q, v = jax.tree.map(lambda x: x.astype("float32") if eqx.is_array(x) else x, (case, q, v))
    function = _FUNCTIONS.get(candidate, _ours)(case)
    compiling, seconds = measure(jax.jit(jax.vmap(function)), q, v)
    found = jax.jit(jax.vmap(function))(q, v)[7]
    if "in a loop" in candidate:
        loops = 100 if len(q) == BATCH else 5
        compiling, seconds = measure(_again(function, loops), q, v, repeats=5)
        seconds /= loops
    error = _error(found, expected)
    return {"batch": len(q), "µs each": seconds / len(q) * 1e6, "compile s": compiling, "error": error}


def _error(found, expected) -> float:
    return float(np.max(np.abs(found - expected)) / np.max(np.abs(expected)))


def _again(function, count):
    """q̈ over and over, each from a state that the last one has moved by a hair."""

    def every(q, v):
        step = lambda _, v: v + 1e-9 * jax.vmap(function, in_axes=-1, out_axes=-1)(q, v)
        return jax.lax.fori_loop(0, count, step, v)

    # The batch stays the last axis from one evaluation to the next, as in a rollout.
    compiled = jax.jit(every)
    return lambda q, v: compiled(q.T, v.T)


def _ours(case):
    return uk.per_member(lambda q, v: uk.constrained_motion(case.system(0.0, q, v)).acceleration)


def _mjx(case):
    from . import mujoco_peer

    return mujoco_peer.in_jax(case)


def _pinv(case):
    """q̈ = a + M⁻¹Aᵀ (A M⁻¹Aᵀ)⁺ (b − A a), as a script would write it."""

    def acceleration(q, v):
        terms = case.system(0.0, q, v)
        a, W = jnp.linalg.solve(terms.M, terms.Q), jnp.linalg.solve(terms.M, terms.A.T)
        return a + W @ (jnp.linalg.pinv(terms.A @ W) @ (terms.b - terms.A @ a))

    return acceleration


def _cholesky(case):
    """The same with Cholesky factors of M and of A M⁻¹Aᵀ."""
    solve = lambda S, x: jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(S, lower=True), x)

    def acceleration(q, v):
        terms = case.system(0.0, q, v)
        a, W = solve(terms.M, terms.Q), solve(terms.M, terms.A.T)
        return a + W @ solve(terms.A @ W, terms.b - terms.A @ a)

    return acceleration


_FUNCTIONS = {"MJX": _mjx, "vmap(pinv)": _pinv, "vmap(cholesky)": _cholesky}


def _by_numpy(case: Case, q, v):
    terms = case.system(0.0, q, v)
    return _pinv_in_numpy(*(np.asarray(x) for x in (terms.M, terms.Q, terms.A, terms.b)))


def _pinv_in_numpy(M, Q, A, b):
    a, W = np.linalg.solve(M, Q), np.linalg.solve(M, A.T)
    return a + W @ (np.linalg.pinv(A @ W) @ (b - A @ a))


def _numpy(case, q, v):
    """Seconds of the formula for one state, its matrices at hand, and q̈ of state 7."""
    terms = jax.vmap(lambda q, v: case.system(0.0, q, v))(q, v)
    states = list(zip(*(np.asarray(x) for x in (terms.M, terms.Q, terms.A, terms.b)), strict=True))

    def loop():
        began = time.perf_counter()
        found = [_pinv_in_numpy(*state) for state in states]
        return (time.perf_counter() - began) / len(states), found[7]

    return min((loop() for _ in range(3)), key=lambda pair: pair[0])


def _mujoco(case, q, v):
    from . import mujoco_peer

    return mujoco_peer.forward_seconds(case, q, v), mujoco_peer.acceleration(case, q[7], v[7])


def _pinocchio(case, q, v):
    from . import pinocchio_peer

    return pinocchio_peer.seconds(case, q, v), pinocchio_peer.acceleration(case, q[7], v[7])


_ONE_BY_ONE = {"numpy.linalg.pinv": _numpy, "mj_forward": _mujoco, "Pinocchio": _pinocchio}


def _c_loop(q, v, expected):
    from .yardstick import accelerations

    found = accelerations(q, v)
    if found is None:
        return {}
    return {"batch": len(q), "µs each": found[0] / len(q) * 1e6, "error": _error(found[1][7], expected)}
