"""The conditions that the nearest point on the constraints obeys, and derivatives by them."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..._check import without_derivatives
from ..._run.compile import jit
from ..._solve import AbstractFactorisation, AbstractMethod, coordinate_scale, row_scale, solve
from ..._system import AbstractSystem, mass_of
from ..stepper.drift_correction import MethodPerLevel


def fixed(residual: Callable, x0: Float[Array, " n"]) -> Callable:
    """It without derivatives by anything but x: a user's function may hold the traced values of one in its closure."""
    return without_derivatives(eqx.filter_closure_convert(residual, x0))


class Conditions(NamedTuple):
    """Those of the minimum at x, M (x − x0) − Aᵀλ = 0 and residual = 0: the constraints' pull λ, the derivative H of
    the first, and the method's response to H and A, all constants."""

    lam: Float[Array, " m"]
    H: Float[Array, "n n"]
    response: AbstractFactorisation

    @classmethod
    def at(cls, residual: Callable, x0: Array, M: Array, x: Array, method: AbstractMethod) -> "Conditions":
        residual, x0, M, x = fixed(residual, x), *without_derivatives((x0, M, x))
        A = jax.jacfwd(residual)(x)
        response = method.factorise(M, A)
        lam = response.multipliers(M @ (x - x0))
        H = jax.jacfwd(lambda x: M @ (x - x0) - jax.vjp(residual, x)[1](lam)[0])(x)
        H = (H + H.T) / 2
        # H need only be positive on the null space of A. Adding weight along A's rows changes nothing there.
        rows = row_scale(A, coordinate_scale(M))[:, None] * A
        weight = jnp.sqrt(jnp.sum((H - M) ** 2)) / jnp.maximum(jnp.sum(coordinate_scale(M) ** -2), 1e-30)
        firm = method.with_active_rows(response.kept).factorise(H + weight * rows.T @ rows, A)
        return without_derivatives(cls(lam, H, firm))

    def solved(self, force: Float[Array, " n"], missing: Float[Array, " m"]) -> tuple[Array, Array]:
        """x and λ with H x − Aᵀλ = ``force`` and −A x = ``missing``."""
        x = self.response.motion(force, -missing)
        return x, self.response.multipliers(self.H @ x - force)


def with_slope(
    residual: Callable, x0: Float[Array, " n"], M: Float[Array, "n n"], x: Float[Array, " n"], conditions: Conditions
) -> Float[Array, " n"]:
    """The minimum x as a function of what the residual, x0 and M come from: by the implicit function theorem, so that
    no iteration is differentiated."""

    n = x0.size

    def missed(at):
        x, lam = at[:n], at[n:]
        residue, pull = jax.vjp(residual, x)
        return jnp.concatenate([M @ (x - x0) - pull(lam)[0], -residue])

    def solve_linear(linear, known):
        solved = lambda known: jnp.concatenate(conditions.solved(known[:n], known[n:]))

        def refined(linear, known):
            found = solved(known)
            return found + solved(known - linear(found))

        return jax.lax.custom_linear_solve(linear, known, refined, symmetric=True)

    # As one vector: JAX transposes a solve only if all that is known depends on what is differentiated.
    start = jnp.concatenate([without_derivatives(x), conditions.lam])
    return jax.lax.custom_root(missed, start, lambda _, at: at, solve_linear)[:n]


@jit
def with_derivatives(
    system: AbstractSystem, t: Array, q0: Array, v0: Array, q: Array, v: Array, levels: MethodPerLevel
) -> tuple[Array, Array, Bool[Array, ""]]:
    """A result that is known, as a function of what it comes from; and whether that was beyond the method."""
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
    if all(constraint.linear for constraint in system.held):
        v, beyond = exact_step(velocity, v0, M, levels.velocity)
    else:
        conditions = Conditions.at(velocity, v0, M, v, levels.velocity)
        v, beyond = with_slope(velocity, v0, M, v, conditions), conditions.response.needs_fallback
    return q, v, needs_fallback | beyond


def exact_step(
    residual: Callable, x: Float[Array, " n"], M: Float[Array, "n n"], method: AbstractMethod
) -> tuple[Float[Array, " n"], Bool[Array, ""]]:
    """Newton's step, exact where the residual is linear; and whether that was beyond the method."""
    missed = residual(x)
    if not missed.size:
        return x, jnp.asarray(False)
    A = jax.jacfwd(residual)(x)
    response = method.factorise(*without_derivatives((M, A)))
    return x + solve(M, A, jnp.zeros_like(x), -missed, response), response.needs_fallback
