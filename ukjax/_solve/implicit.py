"""Implicit derivatives of the constrained motion, exact at constant rank. No decomposition is differentiated.

The derivative rule differentiates the linear equations M q̈ + Aᵀν = Q, A q̈ = b. The tangents obey

    M dq̈ + Aᵀ dν = dQ − dM q̈ − dAᵀ ν,     A dq̈ = db − dA q̈,

which is the same system with another right-hand side. One factorisation therefore serves the value and all
derivatives, forward or reverse, of any order. If rows are redundant, ν is not unique, but the right-hand side stays
consistent as long as the rank does not change, and q̈ and its derivatives do not depend on the choice of ν.
Inconsistent rows are first projected by the least-squares equations −e + A y = b, Aᵀe = 0, differentiated in the same
way; the result is the derivative of Golub & Pereyra, SIAM J. Numer. Anal. 10 (1973) 413. The derivative of an SVD would
be NaN where two singular values coincide.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._compressed import Compressed
from .base import AbstractFactorisation


@eqx.filter_jit  # traced once per shape, although one step of a simulation calls it a dozen times
def solve(
    M: Float[Array, "n n"] | Compressed,
    A: Float[Array, "m n"] | Compressed,
    Q: Float[Array, " n"],
    b: Float[Array, " m"],
    response: AbstractFactorisation,
) -> Float[Array, " n"]:
    """Return q̈ = W Q + K b, differentiable in M, A, Q and b. The factorisation ``response`` is treated as constant."""
    response = jax.lax.stop_gradient(response)
    M_fixed: Any = jax.lax.stop_gradient(M)

    def system(x, nu):
        return M @ x + nu @ A, A @ x

    def inverse(force, rows):
        return response.motion_and_multipliers(M_fixed, force, rows)

    rows: Any = A
    x, _ = _symmetric_solve(system, inverse, Q, b if response.assumes_consistent else project_rhs(rows, b, response))
    return x


@eqx.filter_jit
def project_rhs(A: Float[Array, "m n"], b: Float[Array, " m"], response: AbstractFactorisation) -> Float[Array, " m"]:
    """Return A A⁺ b, the projection of b onto the range of A, differentiable in A and b.

    ``response`` is a factorisation of A with any mass matrix and is treated as constant.
    """
    if A.shape[0] == 0:
        return b
    response = jax.lax.stop_gradient(response)

    def system(e, y):
        return A @ y - e, e @ A

    def inverse(rows, force):
        e = response.rhs_defect(rows) + response.multipliers(force)
        return e, response.motion(jnp.zeros_like(A[0]), rows + e)

    e, _ = _symmetric_solve(system, inverse, b, jnp.zeros_like(A[0]))
    return b + e


def _symmetric_solve(system, inverse, first, second):
    """Solve system(x, y) = (first, second) with implicit derivatives. ``inverse`` solves it without derivatives.

    x and y are concatenated, because ``custom_linear_solve`` fails if one of several right-hand sides is constant.
    """

    if not second.size:  # empty arrays are slow to compile, and XLA has miscompiled custom calls that have them
        zeros = jnp.zeros_like(second)
        return jax.lax.custom_linear_solve(
            lambda x: system(x, zeros)[0], first, lambda _, rhs: inverse(rhs, zeros)[0], symmetric=True
        ), zeros

    def flat(function):
        return lambda z: jnp.concatenate(function(z[: first.size], z[first.size :]))

    z = jax.lax.custom_linear_solve(
        flat(system), jnp.concatenate([first, second]), lambda _, rhs: flat(inverse)(rhs), symmetric=True
    )
    return z[: first.size], z[first.size :]
