"""Radau IIA, an implicit Runge–Kutta method for stiff systems, as a solver of diffrax.

With Z_i = Y_i − y0 for the s stages at t0 + c_i h, and A the matrix of the method, the stages solve

    A⁻¹ Z − h f(t0 + c h, y0 + Z) = 0,      y1 = y0 + Z_s.

Newton's method uses one Jacobian J = ∂f/∂y, at the start of the step. A⁻¹ has a real eigenvalue and complex pairs, so
its linear equations are one real system, and one complex system for each pair, of the size of y. Sources: E. Hairer &
G. Wanner, Solving Ordinary Differential Equations II, IV.8; J. Comput. Appl. Math. 111 (1999) 93.
"""

from typing import Any, ClassVar, NamedTuple

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jaxtyping import Array, Bool, Float, Int
from numpy.polynomial import Polynomial

from ..._jaxpr.tracing import without_derivatives

STAGES = 5
"""Number of stages s; the order is 2 s − 1 = 9. For tolerances of 1e-6 to 1e-9, three stages, of order 5, need 4 to 8
times as many steps: their error estimate decreases as h⁴, that of five stages as h⁶."""


def _coefficients(stages):
    """Times of the stages, the matrix A, and the weights of Z in an embedded estimate of order ``stages``.

    The times are the zeros of the polynomial whose (stages − 1)-th integral is xˢ⁻¹ (x − 1)ˢ. The embedded method has
    the weight 1/γ for the start of the step, with the real eigenvalue γ of A⁻¹.
    """
    zeros_at_ends = Polynomial([0, 1]) ** (stages - 1) * Polynomial([-1, 1]) ** stages
    c = np.append(np.sort(zeros_at_ends.deriv(stages - 1).roots().real)[:-1], 1.0)
    powers = np.arange(1, stages + 1)
    values, integrals = (c[:, None] ** (powers - 1)).T, (c[:, None] ** powers / powers).T
    A = np.linalg.solve(values, integrals).T
    eigenvalues = np.linalg.eigvals(np.linalg.inv(A))
    real = eigenvalues[np.argmin(np.abs(eigenvalues.imag))].real
    embedded = np.linalg.solve(values, 1 / powers - (powers == 1) / real)
    return c, A, real * np.linalg.solve(A.T, embedded - A[-1])


C, WEIGHTS, ERROR_WEIGHTS = _coefficients(STAGES)
INVERSE = np.linalg.inv(WEIGHTS)


def _modes(matrix):
    """Eigenvalues of a matrix, its real one first, then one of each complex pair; their right and left eigenvectors."""
    values, vectors = np.linalg.eig(matrix)
    upper = [i for i in np.argsort(np.imag(values)) if np.imag(values[i]) > -1e-9]
    return values[upper], vectors[:, upper], np.linalg.inv(vectors)[upper]


EIGENVALUES, FROM_MODES, TO_MODES = _modes(INVERSE)

_POWERS = np.arange(1, STAGES + 1)
POLYNOMIAL = np.linalg.inv(C[:, None] ** _POWERS)
"""Coefficients of θ, θ², … of the polynomial that is 0 at θ = 0 and Z_i at c_i."""

MAX_ITERATIONS = 10
"""Largest number of Newton iterations. A step that needs more is repeated with a shorter length."""

LONGEST_PREDICTION = 2.0
"""Largest ratio of two step sizes for which the stages of the second are predicted from the first."""

NEWTON_TOLERANCE = 1e-2
"""Error of the stages that is allowed after Newton's method, relative to the error allowed in the step."""


class CollocationPolynomial(dfx.AbstractLocalInterpolation):
    """The polynomial through the start of a step and its stages."""

    t0: Any
    t1: Any
    y0: Float[Array, " n"]
    coefficients: Float[Array, "stages n"]

    def evaluate(self, t0, t1=None, left=True):
        if t1 is not None:
            return self.evaluate(t1) - self.evaluate(t0)
        share = (t0 - self.t0) / (self.t1 - self.t0)
        return self.y0 + share ** jnp.asarray(_POWERS, self.y0.dtype) @ self.coefficients


class RadauState(NamedTuple):
    """The collocation polynomial of the step before, and its length [s], 0 before the first step."""

    coefficients: Float[Array, "stages n"]
    h: Float[Array, ""]


class Radau(dfx.AbstractAdaptiveSolver):
    """Radau IIA with five stages, of order 9, for stiff systems: ``simulate(..., solver=ukjax.Radau())``.

    The method is implicit and L-stable: fast parts that are damped do not limit the steps. Each step evaluates the
    Jacobian of the acceleration by q and v, and solves for the stages by Newton's method. The steps are adaptive, by an
    embedded estimate of order 5, or fixed with ``dt``. As with every other solver, each step ends on the constraints. A
    step costs more than a step of an explicit method: see :doc:`/howto/stiff`.

    Samples between steps are values of a polynomial of degree 5 through the stages, projected onto the constraints.
    Derivatives of both modes are those of the solution of the stages' equations.

    It has no parameters: the fields are set by ``simulate``.

    Attributes
    ----------
    rtol, atol
        Tolerances of a step, to which those of Newton's method are relative. ``atol`` is a number or has the shape of
        (q, v).

    References
    ----------
    E. Hairer & G. Wanner, Solving Ordinary Differential Equations II, Springer 1996, IV.8.
    """

    rtol: Any = 1e-9
    atol: Any = 1e-9

    term_structure: ClassVar[Any] = dfx.AbstractTerm
    interpolation_cls: ClassVar[Any] = CollocationPolynomial

    def order(self, terms):
        return 2 * STAGES - 1

    def error_order(self, terms):
        return STAGES + 1

    def init(self, terms, t0, t1, y0, args):
        return RadauState(jnp.zeros((STAGES, y0.size), y0.dtype), jnp.zeros((), y0.dtype))

    def func(self, terms, t0, y0, args):
        return terms.vf(t0, y0, args)

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        dtype: Any = y0.dtype
        h: Any = t1 - t0
        c, inverse = jnp.asarray(C, dtype), jnp.asarray(INVERSE, dtype)

        def residual(Z):
            rates = jax.vmap(lambda t, y: terms.vf(t, y, args))(t0 + c * h, y0 + Z)
            return inverse @ Z - h * rates

        # Neither the iterations nor the error estimate have a derivative.
        fixed = without_derivatives(Start(t0, h, y0, args, self.rtol, self.atol))
        newton = NewtonMatrices.of(jax.jacfwd(lambda y: terms.vf(fixed.t, y, fixed.args))(fixed.y), fixed.h)
        solve = lambda residual, Z: iterate(lambda Z: newton.correction(residual(Z)), Z, fixed.allowed)
        guess = jax.lax.stop_gradient(predicted(solver_state, h))
        Z, converged = jax.lax.custom_root(residual, guess, solve, tangent_solve, has_aux=True)
        error = jnp.where(converged > 0, fixed.error(terms.vf, newton, jax.lax.stop_gradient(Z)), jnp.inf)
        coefficients = jnp.asarray(POLYNOMIAL, dtype) @ Z
        dense = dict(y0=y0, coefficients=coefficients)
        return y0 + Z[-1], error, dense, RadauState(coefficients, jnp.asarray(h, dtype)), dfx.RESULTS.successful


class Start(NamedTuple):
    """Start of a step, its length, and its tolerances."""

    t: Any
    h: Any
    y: Float[Array, " n"]
    args: Any
    rtol: Any
    atol: Any

    def allowed(self, Z: Float[Array, "stages n"]) -> Float[Array, " n"]:
        """The error allowed in the step with these stages."""
        return self.atol + self.rtol * jnp.maximum(jnp.abs(self.y), jnp.abs(self.y + Z[-1]))

    def error(self, rate: Any, newton: "NewtonMatrices", Z: Float[Array, "stages n"]) -> Float[Array, " n"]:
        """The embedded error estimate; ``rate`` is the function f."""
        embedded = jnp.asarray(ERROR_WEIGHTS, Z.dtype) @ Z
        estimate = lambda y: newton.solve_real(self.h * rate(self.t, y, self.args) + embedded)
        error = estimate(self.y)
        # The estimate of a fast part does not decrease with h, unless it is computed twice.
        is_large = optx.rms_norm(error / self.allowed(Z)) > 1
        return jax.lax.cond(is_large, lambda: estimate(self.y + error), lambda: error)


def predicted(state: RadauState, h: Array) -> Float[Array, "stages n"]:
    """Z of the next step, of length h, from the collocation polynomial of the step before.

    It is 0 in the first step, and in a step that is so much longer that the polynomial does not reach its end.
    """
    dtype = state.coefficients.dtype
    ratio = h / jnp.where(state.h > 0, state.h, 1)
    at = 1 + ratio * jnp.asarray(C, dtype)[:, None]
    Z = (at ** jnp.asarray(_POWERS, dtype) - 1) @ state.coefficients
    return jnp.where((state.h > 0) & (ratio <= LONGEST_PREDICTION), Z, 0)


class NewtonMatrices(NamedTuple):
    """Factors of μ − h J for the real eigenvalue μ of A⁻¹, and for one of each complex pair."""

    real: tuple[Array, Array]
    complex: tuple[Array, Array]

    @classmethod
    def of(cls, J: Float[Array, "n n"], h: Array) -> "NewtonMatrices":
        """Factorise for a step of h."""
        unit = jnp.eye(len(J), dtype=J.dtype)
        factors = lambda eigenvalue: jax.scipy.linalg.lu_factor(eigenvalue * unit - h * J)
        pairs = jnp.asarray(EIGENVALUES[1:], _complex(J.dtype))
        return cls(factors(jnp.asarray(np.real(EIGENVALUES[0]), J.dtype)), jax.vmap(factors)(pairs))

    def solve_real(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """(μ − h J)⁻¹ x for the real eigenvalue μ."""
        return jax.scipy.linalg.lu_solve(self.real, x)

    def correction(self, residual: Float[Array, "stages n"]) -> Float[Array, "stages n"]:
        """The correction of Z by a Newton iteration."""
        of_modes = _complex(residual.dtype)
        modes = jnp.asarray(TO_MODES, of_modes) @ residual
        real = self.solve_real(modes[0].real)
        pairs = jax.vmap(jax.scipy.linalg.lu_solve)(self.complex, modes[1:])
        modes = jnp.concatenate([real.astype(of_modes)[None], 2 * pairs])  # twice: for the conjugates
        return -(jnp.asarray(FROM_MODES, of_modes) @ modes).real


def _complex(dtype):
    return jnp.result_type(dtype, np.complex64)


class Iteration(NamedTuple):
    """State of Newton's method: Z, the size of its last change, relative to the error allowed in the step, the ratio of
    the last two sizes, and the number of iterations."""

    Z: Float[Array, "stages n"]
    size: Float[Array, ""]
    rate: Float[Array, ""]
    count: Int[Array, ""]

    @property
    def converged(self) -> Bool[Array, ""]:
        """Whether all further changes together would be small."""
        return (self.count > 0) & (self.rate < 1) & (self.size * self.rate <= NEWTON_TOLERANCE * (1 - self.rate))

    @property
    def diverged(self) -> Bool[Array, ""]:
        """Whether the changes do not decrease."""
        return ~(jnp.isfinite(self.size) & (self.rate < 1))


def iterate(
    correction: Any, Z: Float[Array, "stages n"], allowed: Any
) -> tuple[Float[Array, "stages n"], Float[Array, ""]]:
    """Newton's method from Z, until further corrections are small relative to ``allowed(Z)``, the error allowed in the
    step.

    Returns Z, and whether the method converged, 1 or 0: JAX does not differentiate roots with a boolean.
    """

    def is_running(state):
        return ~state.converged & ~state.diverged & (state.count < MAX_ITERATIONS)

    def advance(state):
        change = correction(state.Z)
        size = optx.rms_norm(change / allowed(state.Z))
        rate = jnp.where(state.count > 0, size / state.size, state.rate)
        return Iteration(state.Z + change, size, jnp.where(size == 0, 0, rate), state.count + 1)

    # The rate of the first iteration is not known. A pessimistic one makes a second iteration follow it.
    first = Iteration(Z, jnp.ones((), Z.dtype), jnp.asarray(0.9, Z.dtype), jnp.zeros((), np.int32))
    last = jax.lax.while_loop(is_running, advance, first)
    return last.Z, last.converged.astype(Z.dtype)


def tangent_solve(linear: Any, y: Float[Array, "stages n"]) -> Float[Array, "stages n"]:
    """The solution Z of ``linear(Z) = y``, where linear(Z)_i = (A⁻¹ Z)_i − h J_i Z_i.

    The Jacobians of the stages follow from values at Z with equal rows.
    """
    stages, n = y.shape
    inverse, unit = jnp.asarray(INVERSE, y.dtype), jnp.eye(n, dtype=y.dtype)
    columns = jax.vmap(lambda direction: linear(jnp.broadcast_to(direction, (stages, n))))(unit)
    blocks = jnp.moveaxis(columns, 0, -1) - jnp.sum(inverse, axis=1)[:, None, None] * unit  # −h J_i
    full = jnp.kron(inverse, unit) + jax.scipy.linalg.block_diag(*blocks)
    return jnp.linalg.solve(full, y.reshape(-1)).reshape(stages, n)
