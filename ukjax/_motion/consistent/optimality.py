"""Optimality conditions of the nearest point on the constraints, and derivatives from them."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..._jaxpr.tracing import without_derivatives
from ..._kernel import per_member
from ..._run.compile import jit
from ..._solve import AbstractFactorisation, AbstractMethod, coordinate_scale, row_scale, solve
from ..._system import AbstractSystem, mass_of
from ..stepper.drift_correction import MethodPerLevel
from ..stepper.limits import MAX_SIZE_OF_SINGLE_KERNEL


def fixed(residual: Callable, x0: Float[Array, " n"]) -> Callable:
    """``residual``, differentiable with respect to x only.

    A user's function may close over traced values.
    """
    return without_derivatives(eqx.filter_closure_convert(residual, x0))


class Conditions(NamedTuple):
    """Optimality conditions at a minimum x: M (x − x0) − Aᵀλ = 0 and residual = 0.

    ``lam`` is the multiplier λ, ``H`` the derivative of the first condition with respect to x, and ``response`` the
    factorisation of H and A. All are constants.
    """

    lam: Float[Array, " m"]
    H: Float[Array, "n n"]
    response: AbstractFactorisation

    @classmethod
    def at(cls, residual: Callable, x0: Array, M: Array, x: Array, method: AbstractMethod) -> "Conditions":
        """Evaluate the conditions at x."""
        residual, x0, M, x = fixed(residual, x), *without_derivatives((x0, M, x))
        A = jax.jacfwd(residual)(x)
        response = method.factorise(M, A)
        lam = response.multipliers(M @ (x - x0))
        H = jax.jacfwd(lambda x: M @ (x - x0) - jax.vjp(residual, x)[1](lam)[0])(x)
        H = (H + H.T) / 2
        # H must be positive definite only on the null space of A. Weight along the rows of A changes nothing there.
        rows = row_scale(A, coordinate_scale(M))[:, None] * A
        weight = jnp.sqrt(jnp.sum((H - M) ** 2)) / jnp.maximum(jnp.sum(coordinate_scale(M) ** -2), 1e-30)
        factorisation = method.with_active_rows(response.kept).factorise(H + weight * rows.T @ rows, A)
        return without_derivatives(cls(lam, H, factorisation))

    def solved(self, force: Float[Array, " n"], missing: Float[Array, " m"]) -> tuple[Array, Array]:
        """Solve H x − Aᵀλ = ``force`` and −A x = ``missing`` for x and λ."""
        x = self.response.motion(force, -missing)
        return x, self.response.multipliers(self.H @ x - force)


def with_slope(
    residual: Callable, x0: Float[Array, " n"], M: Float[Array, "n n"], x: Float[Array, " n"], conditions: Conditions
) -> Float[Array, " n"]:
    """The minimum x as a differentiable function of the residual, x0 and M.

    It uses the implicit function theorem, so the iteration is not differentiated.
    """

    n = x0.size

    def optimality(x_lam):
        x, lam = x_lam[:n], x_lam[n:]
        residual_x, transpose = jax.vjp(residual, x)
        return jnp.concatenate([M @ (x - x0) - transpose(lam)[0], -residual_x])

    def solve_linear(linear, rhs):
        solved = lambda rhs: jnp.concatenate(conditions.solved(rhs[:n], rhs[n:]))

        def solve_and_refine(linear, rhs):
            solution = solved(rhs)
            return solution + solved(rhs - linear(solution))

        return jax.lax.custom_linear_solve(linear, rhs, solve_and_refine, symmetric=True)

    # One vector: JAX transposes a linear solve only if its whole right-hand side is differentiated.
    start = jnp.concatenate([without_derivatives(x), conditions.lam])
    return jax.lax.custom_root(optimality, start, lambda _, x_lam: x_lam, solve_linear)[:n]


@jit
def with_derivatives(
    system: AbstractSystem, t: Array, q0: Array, v0: Array, q: Array, v: Array, levels: MethodPerLevel
) -> tuple[Array, Array, Bool[Array, ""]]:
    """A known result as a differentiable function of its inputs; and whether the method needs a fallback."""
    small = q0.size <= MAX_SIZE_OF_SINGLE_KERNEL  # then a kernel takes less time to compile
    return (per_member(_with_derivatives) if small else _with_derivatives)(system, t, q0, v0, q, v, levels)


def _with_derivatives(system, t, q0, v0, q, v, levels):
    position = lambda q: system.position_residual(t, q)
    needs_fallback = jnp.asarray(False)
    if position(q).size:
        M = mass_of(system, t, q0, v0)
        conditions = Conditions.at(position, q0, M, q, levels.position)
        q, needs_fallback = with_slope(position, q0, M, q, conditions), conditions.response.needs_fallback
    else:
        q = q0
    velocity, M = lambda v: system.velocity_residual(t, q, v), mass_of(system, t, q, v0)
    if not velocity(v).size:
        return q, v0, needs_fallback
    if all(constraint.linear for constraint in system.enforced):
        v, needs_fallback_v = exact_step(velocity, v0, M, levels.velocity)
    else:
        conditions = Conditions.at(velocity, v0, M, v, levels.velocity)
        v, needs_fallback_v = with_slope(velocity, v0, M, v, conditions), conditions.response.needs_fallback
    return q, v, needs_fallback | needs_fallback_v


def exact_step(
    residual: Callable, x: Float[Array, " n"], M: Float[Array, "n n"], method: AbstractMethod
) -> tuple[Float[Array, " n"], Bool[Array, ""]]:
    """One Newton step, exact if the residual is linear; and whether the method needs a fallback."""
    residual_x = residual(x)
    if not residual_x.size:
        return x, jnp.asarray(False)
    A = jax.jacfwd(residual)(x)
    response = method.factorise(*without_derivatives((M, A)))
    return x + solve(M, A, jnp.zeros_like(x), -residual_x, response), response.needs_fallback
