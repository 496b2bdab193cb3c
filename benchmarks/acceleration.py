"""One constrained acceleration on one core, compared with ``vmap`` of a formula, MuJoCo, Pinocchio and a C loop.

CPU time per state, from q and v. All candidates of a mechanism are measured in turn, in one process on one core. The
batch has 4096 states. MuJoCo, Pinocchio and NumPy evaluate one state after the other, called from Python. The C loop
was written for this mechanism. "in a loop": 100 evaluations in one program, as in an integrator, without the cost of a
call.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ukjax as uk

from .apart import apart
from .interleaved import measured
from .mechanisms import five_links, three_chains

BATCH, ONE_BY_ONE, LOOPS, ROUNDS = 4096, 512, 100, 7
"""Numbers of states in the batch, of states for candidates that evaluate one at a time, of evaluations in a loop, and
of rounds."""

CASES = {"P1": three_chains, "P2": five_links}


def run() -> list[dict[str, Any]]:
    return [row for name in CASES for row in apart("acceleration", "mechanism", name, cores=1)]


def mechanism(name: str) -> list[dict[str, Any]]:
    """A row for each candidate: CPU time per state, and the difference of q̈ of state 7 from NumPy's pseudoinverse."""
    uk.enable_float64()
    case = CASES[name]()
    q, v = case.starts(BATCH)
    expected = _by_numpy(case, np.asarray(q[7]), np.asarray(v[7]))
    own = uk.per_member(lambda q, v: uk.constrained_motion(case.system(0.0, q, v)).acceleration)
    formulas = {"ukjax": own, "vmap(pinv)": with_pinv(case.system), "vmap(cholesky)": with_cholesky(case.system)}
    calls: dict[str, Callable[[], Any]] = {}
    counts, errors = {}, {}
    for candidate, formula in formulas.items():
        batch = jax.jit(jax.vmap(formula))
        calls[candidate] = lambda batch=batch: batch(q, v)
        loop = _in_a_loop(formula)
        calls[f"{candidate} in a loop"] = lambda loop=loop: loop(q.T, v.T)
        counts |= {candidate: BATCH, f"{candidate} in a loop": LOOPS * BATCH}
        errors[candidate] = _error(batch(q, v)[7], expected)
    some = np.asarray(q[:ONE_BY_ONE]), np.asarray(v[:ONE_BY_ONE])
    for candidate, (call, found) in _peers(case, *some).items():
        calls[candidate], counts[candidate], errors[candidate] = call, ONE_BY_ONE, _error(found, expected)
    if name == "P1":
        from .yardstick import accelerations

        calls["C loop"] = accelerations(np.asarray(q), np.asarray(v))
        counts["C loop"], errors["C loop"] = BATCH, _error(calls["C loop"]()[7], expected)
    found = measured(calls, ROUNDS)
    each = {candidate: 1e6 * found[candidate].seconds / counts[candidate] for candidate in calls}
    return [
        {"mechanism": name, "candidate": candidate, "cores": 1, "µs each": each[candidate]}
        | {"times ukjax": each[candidate] / each["ukjax in a loop" if "loop" in candidate else "ukjax"]}
        | ({"error": errors[candidate]} if candidate in errors else {})
        for candidate in calls
    ]


def _error(found, expected) -> float:
    return float(np.max(np.abs(found - expected)) / np.max(np.abs(expected)))


def _in_a_loop(function):
    """Repeated evaluation of q̈. Each changes q and v for the next one, so that XLA cannot move operations out of the
    loop."""

    def every(q, v):
        def step(_, state):
            change = 1e-9 * jax.vmap(function, in_axes=-1, out_axes=-1)(*state)
            return state[0] + change, state[1] + change

        return jax.lax.fori_loop(0, LOOPS, step, (q, v))

    return jax.jit(every)  # the batch stays the last axis from one evaluation to the next, as in a rollout


def with_pinv(system) -> Callable:
    """q̈ = a + M⁻¹Aᵀ (A M⁻¹Aᵀ)⁺ (b − A a), as in a user's script."""

    def acceleration(q, v):
        terms = system(0.0, q, v)
        a, W = jnp.linalg.solve(terms.M, terms.Q), jnp.linalg.solve(terms.M, terms.A.T)
        return a + W @ (jnp.linalg.pinv(terms.A @ W) @ (terms.b - terms.A @ a))

    return acceleration


def with_cholesky(system) -> Callable:
    """The same with Cholesky factors of M and of A M⁻¹Aᵀ."""
    solve = lambda S, x: jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(S, lower=True), x)

    def acceleration(q, v):
        terms = system(0.0, q, v)
        a, W = solve(terms.M, terms.Q), solve(terms.M, terms.A.T)
        return a + W @ solve(terms.A @ W, terms.b - terms.A @ a)

    return acceleration


def _by_numpy(case, q, v):
    terms = case.system(0.0, q, v)
    M, Q, A, b = (np.asarray(x) for x in (terms.M, terms.Q, terms.A, terms.b))
    a, W = np.linalg.solve(M, Q), np.linalg.solve(M, A.T)
    return a + W @ (np.linalg.pinv(A @ W) @ (b - A @ a))


def _peers(case, q, v) -> dict[str, tuple[Callable, Any]]:
    """For each program that evaluates one state after the other: a call for all states, and q̈ of state 7."""
    from . import mujoco_peer, pinocchio_peer

    return {
        "mj_forward": (mujoco_peer.forward(case, q, v), mujoco_peer.acceleration(case, q[7], v[7])),
        "Pinocchio": (pinocchio_peer.forward(case, q, v), pinocchio_peer.acceleration(case, q[7], v[7])),
    }
