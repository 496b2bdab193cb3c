"""A short script without ukjax: a pendulum by diffrax and a pseudoinverse.

It has no projection, checks, forces or residuals; it only computes the motion.
"""

from collections.abc import Callable

import diffrax as dfx
import jax
import jax.numpy as jnp
from jaxtyping import Array

LEVEL = -1.0, 0.0


def rod(q):
    return jnp.stack([q[0] ** 2 + q[1] ** 2 - 1])


def rates(t, state, _):
    """(v, q̈), q̈ = M⁻¹Q + L⁻ᵀ(A L⁻ᵀ)⁺(b − A M⁻¹Q), M = L Lᵀ."""
    q, v = state
    M, Q = jnp.eye(2), jnp.array([0.0, -9.81])
    along = lambda q: jax.jvp(rod, (q,), (v,))[1]
    A, b = jax.jacfwd(rod)(q), -jax.jvp(along, (q,), (v,))[1]
    L, free = jnp.linalg.cholesky(M), jnp.linalg.solve(M, Q)
    backwards = lambda x: jax.scipy.linalg.solve_triangular(L, x, lower=True, trans="T")
    B = jax.scipy.linalg.solve_triangular(L, A.T, lower=True).T
    return v, free + backwards(jnp.linalg.pinv(B) @ (b - A @ free))


def motion(v0: Array, end: float, saved: dfx.SaveAt, most: int) -> tuple[Array, Array]:
    steps = dfx.PIDController(rtol=1e-9, atol=1e-9)
    start = jnp.array(LEVEL), v0
    term, solver = dfx.ODETerm(rates), dfx.Dopri8()
    solution = dfx.diffeqsolve(
        term, solver, 0.0, end, None, start, saveat=saved, stepsize_controller=steps, max_steps=most
    )
    return solution.ys  # pyright: ignore[reportReturnType]


def first() -> Callable[[], Array]:
    """The first motion, 10 s in eleven samples."""
    ts, rest = jnp.linspace(0, 10, 11), jnp.zeros(2)
    return lambda: motion(rest, 10.0, dfx.SaveAt(ts=ts), 100_000)[0]


def gradient() -> Callable[[], Array]:
    """The derivative of the height after one second by the initial speed."""
    height = lambda speed: motion(jnp.array([0.0, 1.0]) * speed, 1.0, dfx.SaveAt(t1=True), 4096)[0][-1, 1]
    return lambda: jax.grad(height)(0.5)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    print(first()()[-1])
