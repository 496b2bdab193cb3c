"""Exact derivatives of the constrained motion, at constant rank, without differentiating a decomposition.

The motion solves linear equations, and those are differentiated: with M q̈ + Aᵀν = Q, A q̈ = b the tangents obey

    M dq̈ + Aᵀ dν = dQ − dM q̈ − dAᵀ ν,     A dq̈ = db − dA q̈,

the same system with another right-hand side, so one factorisation serves the value and every derivative, forward or
reverse, of any order. Where rows are redundant ν is not unique, but the right-hand side stays consistent as long as
the rank does not change, and q̈ and its derivatives do not depend on the choice. Least squares over inconsistent rows
come first, by their own equations −e + A y = b, Aᵀe = 0 (Golub & Pereyra, SIAM J. Numer. Anal. 10 (1973) 413, is the
derivative that results). An SVD differentiated instead gives NaN where two singular values coincide.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._compressed import Compressed
from .base import AbstractFactorisation


@eqx.filter_jit  # traced once per shape, though a step of a simulation calls it a dozen times
def solve(
    M: Float[Array, "n n"] | Compressed,
    A: Float[Array, "m n"] | Compressed,
    Q: Float[Array, " n"],
    b: Float[Array, " m"],
    response: AbstractFactorisation,
) -> Float[Array, " n"]:
    """q̈ = W Q + K b, differentiable in M, A, Q and b; ``response`` is taken as a constant."""
    response = jax.lax.stop_gradient(response)
    M_fixed: Any = jax.lax.stop_gradient(M)

    def system(x, nu):
        return M @ x + nu @ A, A @ x

    def inverse(force, rows):
        return response.both(M_fixed, force, rows)

    rows: Any = A
    x, _ = _symmetric_solve(system, inverse, Q, b if response.reaches_all else reach(rows, b, response))
    return x


@eqx.filter_jit
def reach(A: Float[Array, "m n"], b: Float[Array, " m"], response: AbstractFactorisation) -> Float[Array, " m"]:
    """A A⁺ b: the nearest right-hand side that the rows can meet, differentiable in A and b; ``response``, which may
    be that of any mass, is taken as a constant."""
    if A.shape[0] == 0:
        return b
    response = jax.lax.stop_gradient(response)

    def system(e, y):
        return A @ y - e, e @ A

    def inverse(rows, force):
        e = response.out_of_reach(rows) + response.multipliers(force)
        return e, response.motion(jnp.zeros_like(A[0]), rows + e)

    e, _ = _symmetric_solve(system, inverse, b, jnp.zeros_like(A[0]))
    return b + e


def _symmetric_solve(system, inverse, first, second):
    """x, y with system(x, y) = first, second, differentiated implicitly; ``inverse`` solves for constants.

    Both in one vector, since ``custom_linear_solve`` fails where one of several right-hand sides is constant.
    """

    if not second.size:  # arrays without entries are dear to compile, and XLA has made custom calls wrong beside them
        nothing = jnp.zeros_like(second)
        return jax.lax.custom_linear_solve(
            lambda x: system(x, nothing)[0], first, lambda _, known: inverse(known, nothing)[0], symmetric=True
        ), nothing

    def flat(function):
        return lambda z: jnp.concatenate(function(z[: first.size], z[first.size :]))

    z = jax.lax.custom_linear_solve(
        flat(system), jnp.concatenate([first, second]), lambda _, known: flat(inverse)(known), symmetric=True
    )
    return z[: first.size], z[first.size :]
