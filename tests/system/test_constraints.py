"""Rows A q̈ = b of every kind of constraint, against SymPy, by hand, and by differences along a path."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy as sp

import ukjax as uk

CLOSE = 1e-12  # float64 rounding of expressions of order 1 to 10
DIFFERENCES = 1e-6  # second central differences: step² = 1e-8 times derivatives, 1e-16 / step² = 1e-8 of rounding

T, Q, V = 0.4, np.array([0.3, -0.8, 1.2]), np.array([0.7, 0.5, -1.1])


def phi(t, q):
    x, y, z = q
    return [x**2 + jnp.sin(y * z) - t**2 * x, jnp.exp(x * y) - jnp.cos(t) * z]


def psi(t, q, v):
    """Nonlinear in v: a prescribed speed, and a product of velocities."""
    x, y, z = q
    return [v[0] ** 2 + v[1] ** 2 - x * t, v[0] * v[2] * jnp.sin(y) - z * v[1] ** 3]


def symbols():
    t, s = sp.symbols("t s")
    return t, s, sp.symbols("x y z"), sp.symbols("vx vy vz"), sp.symbols("ax ay az")


def along_the_motion(expression, t, q, v, a):
    """d/dt of an expression in t, q and v."""
    chain = sum(sp.diff(expression, x) * y for x, y in zip((*q, *v), (*v, *a), strict=True))
    return sp.diff(expression, t) + chain


def by_sympy(statements, times, t, q, v, a):
    """A and b of the statements differentiated ``times`` times, at (T, Q, V)."""
    for _ in range(times):
        statements = [along_the_motion(s, t, q, v, a) for s in statements]
    A, b = sp.linear_eq_to_matrix(statements, a)
    at = dict(zip((t, *q, *v), (T, *Q, *V), strict=True))
    return np.array(A.subs(at), float), np.array(b.subs(at), float)[:, 0]


def rows(constraint, t=T, q=Q, v=V):
    return constraint.rows(jnp.asarray(t), jnp.asarray(q), jnp.asarray(v))


def same_rows(constraint, A, b):
    found = rows(constraint)
    np.testing.assert_allclose(found[0], A, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(found[1], b, rtol=0, atol=CLOSE)


def path(t):
    """Any path through Q with velocity V at T; its acceleration is ``bend`` (1, 2, 3)."""
    s = t - T
    return Q + V * s + jnp.array([1.0, 2.0, 3.0]) * s**2 / 2 + jnp.array([0.5, -1.0, 0.3]) * s**3


BEND = np.array([1.0, 2.0, 3.0])


# --- A and b -------------------------------------------------------------------------------------------------------


def test_holonomic_rows_match_sympy():
    t, _, q, v, a = symbols()
    x, y, z = q
    statements = [x**2 + sp.sin(y * z) - t**2 * x, sp.exp(x * y) - sp.cos(t) * z]
    same_rows(uk.Holonomic(phi), *by_sympy(statements, 2, t, q, v, a))


def test_nonholonomic_rows_nonlinear_in_the_velocity_match_sympy():
    t, _, q, v, a = symbols()
    (x, y, z), (vx, vy, vz) = q, v
    statements = [vx**2 + vy**2 - x * t, vx * vz * sp.sin(y) - z * vy**3]
    same_rows(uk.Nonholonomic(psi), *by_sympy(statements, 1, t, q, v, a))


def test_pfaffian_rows_match_sympy():
    """A v = c: the sign of c is that of the right-hand side."""
    t, _, q, v, a = symbols()
    (x, y, z), (vx, vy, vz) = q, v
    constraint = uk.Pfaffian(
        lambda t, q: jnp.array([[q[1], t, jnp.sin(q[0])], [1.0, q[2] ** 2, 0.0]]), lambda t, q: [q[0] * t, q[1]]
    )
    statements = [y * vx + t * vy + sp.sin(x) * vz - x * t, vx + z**2 * vy - y]
    same_rows(constraint, *by_sympy(statements, 1, t, q, v, a))
    at = dict(zip((t, *q, *v), (T, *Q, *V), strict=True))
    residual = constraint.velocity(*map(jnp.asarray, (T, Q, V)))
    np.testing.assert_allclose(residual, [float(s.subs(at)) for s in statements], rtol=0, atol=CLOSE)


def test_circle_by_hand():
    """x² + y² = r²: x ẍ + y ÿ = −(ẋ² + ẏ²)."""
    A, b = rows(uk.Holonomic(lambda t, q: (q @ q - 1) / 2), 0.0, np.array([0.6, 0.8]), np.array([1.6, -1.2]))
    np.testing.assert_allclose(A, [[0.6, 0.8]], rtol=0, atol=CLOSE)
    np.testing.assert_allclose(b, [-4.0], rtol=0, atol=CLOSE)


def test_a_prescribed_path_by_hand():
    """x = sin 2t: ẍ = −4 sin 2t."""
    A, b = rows(uk.Holonomic(lambda t, q: q[0] - jnp.sin(2 * t)))
    np.testing.assert_allclose(A, [[1.0, 0.0, 0.0]], rtol=0, atol=CLOSE)
    np.testing.assert_allclose(b, [-4 * np.sin(2 * T)], rtol=0, atol=CLOSE)


def test_holonomic_second_derivative_matches_difference_along_a_path():
    h, along = 1e-4, lambda t: np.array(phi(t, path(t)))
    differences = (along(T + h) - 2 * along(T) + along(T - h)) / h**2
    A, b = rows(uk.Holonomic(phi))
    np.testing.assert_allclose(A @ BEND - b, differences, rtol=0, atol=DIFFERENCES)


def test_nonholonomic_derivative_matches_difference_along_a_path():
    h, along = 1e-4, lambda t: np.array(psi(t, path(t), jax.jacfwd(path)(t)))
    A, b = rows(uk.Nonholonomic(psi))
    np.testing.assert_allclose(A @ BEND - b, (along(T + h) - along(T - h)) / (2 * h), rtol=0, atol=DIFFERENCES)


@pytest.mark.parametrize("A", (np.array([[1.0, 2.0, 3.0]]), lambda t, q, v: [[1.0, 2.0, 3.0]], [1.0, 2.0, 3.0]))
@pytest.mark.parametrize("b", (np.array([4.0]), lambda t, q, v: 4.0, 4.0))
def test_rows_of_acceleration_constraint_are_its_arguments(A, b):
    same_rows(uk.AccelerationConstraint(A, b), [[1.0, 2.0, 3.0]], [4.0])


@pytest.mark.parametrize("result", (lambda x: x, lambda x: [x], lambda x: jnp.stack([x]), lambda x: (x,)))
def test_functions_may_return_a_number_a_list_or_a_vector(result):
    same_rows(uk.Holonomic(lambda t, q: result(q[0] ** 2)), [[2 * Q[0], 0, 0]], [-2 * V[0] ** 2])
    same_rows(uk.Nonholonomic(lambda t, q, v: result(v[0] ** 2)), [[2 * V[0], 0, 0]], [0.0])


# --- residuals of positions and velocities -------------------------------------------------------------------------


def test_residuals_are_the_function_and_its_first_derivative():
    holonomic, nonholonomic = uk.Holonomic(phi), uk.Nonholonomic(psi)
    h, along = 1e-6, lambda t: np.array(phi(t, path(t)))
    t, q, v = map(jnp.asarray, (T, Q, V))
    np.testing.assert_allclose(holonomic.position(t, q), phi(T, Q), rtol=0, atol=CLOSE)
    np.testing.assert_allclose(
        holonomic.velocity(t, q, v), (along(T + h) - along(T - h)) / (2 * h), rtol=0, atol=DIFFERENCES
    )
    assert nonholonomic.position(t, q).shape == (0,)
    np.testing.assert_allclose(nonholonomic.velocity(t, q, v), psi(T, Q, V), rtol=0, atol=CLOSE)


def test_acceleration_constraint_has_no_residuals():
    t, q, v = map(jnp.asarray, (T, Q, V))
    constraint = uk.AccelerationConstraint(np.ones((2, 3)), np.ones(2))
    assert constraint.position(t, q).shape == constraint.velocity(t, q, v).shape == (0,)


# --- stabilisation -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("alpha", "beta"), ((3.0, 5.0), (np.array([1.0, 7.0]), np.array([0.0, 2.0])), (2.0, 0.0)))
def test_stabilised_rows_obey_baumgartes_equation(rng, alpha, beta):
    """φ̈ + α φ̇ + β φ = 0, row by row, at states off the constraint."""
    plain, stabilised = uk.Holonomic(phi), uk.Holonomic(phi, alpha, beta)
    for _ in range(5):
        t, q, v = map(jnp.asarray, (rng.normal(), rng.normal(size=3), rng.normal(size=3)))
        (A, b), (A_stabilised, b_stabilised) = plain.rows(t, q, v), stabilised.rows(t, q, v)
        x = np.linalg.lstsq(A_stabilised, b_stabilised)[0]
        second = A @ x - b  # φ̈ along the motion with the stabilised rows
        residual = second + alpha * plain.velocity(t, q, v) + beta * plain.position(t, q)
        np.testing.assert_allclose(residual, 0, rtol=0, atol=1e-10)
        assert np.abs(second).max() > 1e-3


def test_velocity_constraints_decay_at_their_rate():
    """ψ̇ + α ψ = 0."""
    alpha = np.array([3.0, 0.5])
    plain, stabilised = uk.Nonholonomic(psi), uk.Nonholonomic(psi, alpha)
    t, q, v = map(jnp.asarray, (T, Q, V))
    np.testing.assert_allclose(
        rows(stabilised)[1] - rows(plain)[1], -alpha * plain.velocity(t, q, v), rtol=0, atol=CLOSE
    )
    A, c = lambda t, q: q[None] * t, lambda t, q: t**2
    change = rows(uk.Pfaffian(A, c, 3.0))[1] - rows(uk.Pfaffian(A, c))[1]
    np.testing.assert_allclose(change, [-3 * (T * Q @ V - T**2)], rtol=0, atol=CLOSE)


@pytest.mark.parametrize("rate", (5.0, np.array([1.0, 4.0])))
def test_critical_damping_has_one_double_root(rate):
    alpha, beta = uk.critically_damped(rate)
    for a, b, r in np.broadcast(alpha, beta, rate):
        np.testing.assert_allclose(np.roots([1.0, a, b]), [-r, -r], rtol=0, atol=1e-6)  # a double root: √eps
    assert np.shape(uk.Holonomic(phi, *uk.critically_damped(rate)).alpha) == np.shape(rate)


# --- cost ----------------------------------------------------------------------------------------------------------


def shapes(jaxpr):
    """The shapes of all intermediate results, also in called functions."""
    for equation in jaxpr.eqns:
        yield from (variable.aval.shape for variable in equation.outvars)
        for inner in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            if hasattr(inner, "eqns") or hasattr(inner, "jaxpr"):
                yield from shapes(getattr(inner, "jaxpr", inner))


def is_second_derivative(shape, m, n):
    return sorted(shape) in (sorted((n, n, n)), sorted((m, n, n)))


def test_the_second_derivative_is_never_formed():
    """No intermediate of shape (m, n, n) or (n, n, n), which jax.hessian of the same φ does have."""
    m, n = 3, 7
    weights = np.random.default_rng(0).normal(size=(m, n))
    phi, t, q = lambda t, q: jnp.tanh(weights @ q * t), jnp.asarray(T), jnp.arange(float(n))
    rows = lambda t, q, v: uk.Holonomic(phi).rows(t, q, v)
    found = list(shapes(jax.make_jaxpr(rows)(t, q, q).jaxpr))
    assert (m, n) in found or (n, m) in found
    assert not [shape for shape in found if is_second_derivative(shape, m, n)]
    hessian = shapes(jax.make_jaxpr(jax.hessian(phi, argnums=1))(t, q).jaxpr)
    assert any(is_second_derivative(shape, m, n) for shape in hessian)


# --- through JAX ---------------------------------------------------------------------------------------------------


def test_parameters_of_a_constraint_are_leaves_with_gradients():
    """φ = |q|²/2 − r²/2, where r is a leaf: b = −|v|² − β φ, ∂b/∂r = β r."""

    class Sphere(eqx.Module):
        radius: jax.Array

        def __call__(self, t, q):
            return (q @ q - self.radius**2) / 2

    constraint = uk.Holonomic(Sphere(jnp.asarray(2.0)), 0.0, 3.0)
    gradient = eqx.filter_grad(lambda c: rows(c)[1][0])(constraint)
    np.testing.assert_allclose(gradient.phi.radius, 6.0, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(gradient.beta, -(Q @ Q - 4) / 2, rtol=0, atol=CLOSE)


def test_batch_of_rows_matches_single_states(rng):
    constraint, q, v = uk.Holonomic(phi, 1.0, 2.0), rng.normal(size=(4, 3)), rng.normal(size=(4, 3))
    A, b = jax.jit(jax.vmap(constraint.rows, in_axes=(None, 0, 0)))(jnp.asarray(T), q, v)
    for i in range(4):
        one = rows(constraint, T, q[i], v[i])
        np.testing.assert_allclose(A[i], one[0], rtol=0, atol=CLOSE)
        np.testing.assert_allclose(b[i], one[1], rtol=0, atol=CLOSE)


def test_single_precision_stays_single():
    t, q, v = (jnp.asarray(x, jnp.float32) for x in (T, Q, V))
    for constraint in (uk.Holonomic(phi), uk.Nonholonomic(psi), uk.Pfaffian(lambda t, q: q[None] * t)):
        assert [x.dtype for x in constraint.rows(t, q, v)] == [jnp.float32] * 2
