"""Derivatives of the constrained motion are exact and finite, in forward and reverse mode, against differences."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import ukjax as uk

from ..helpers import DIGITS, central_difference, exact_motion, mass_matrix, motion_tangent

EXACT = 1e-11  # forward against reverse, and against closed forms: rounding times the condition (below 1e3)
DIFFERENCES = 1e-6  # against central differences: step² = 1e-10 times third derivatives, 1e-16 / step of rounding

N = 5
AT = np.array([0.3, 0.7, 0.2])


def family(rng, kind):
    """The data from which ``terms`` makes a system. Each kind has the same shapes, so that all share a compilation."""
    C, R = rng.normal(size=(4, 3)), rng.normal(size=(3, N))
    data = {
        "M": mass_matrix(rng, N),
        "dM": mass_matrix(rng, N),
        "Q": rng.normal(size=N),
        "C": C,
        "dC": rng.normal(size=(4, 3)),
        "R": R,
        "dR": rng.normal(size=(3, N)),
        "e": np.zeros(4),
        "c": np.zeros(N),
    }
    if kind == "full rank":  # 3 rows, and one that remains zero
        C[3] = data["dC"][3] = 0
    if kind == "redundant":  # 4 rows of rank 2
        C[:, 2] = data["dC"][:, 2] = 0
    if kind == "inconsistent":
        C[:, 2] = data["dC"][:, 2] = 0
        data["e"] = rng.normal(size=4)
    if kind == "repeated singular values":  # M = 2 I and orthonormal rows at p = AT, and away from it
        data |= {"M": 2 * np.eye(N), "dM": np.eye(N), "C": np.eye(4, 3), "dC": np.eye(4, 3)}
        data |= {"R": np.eye(3, N), "dR": np.eye(3, N)}
    if kind == "singular mass":  # rank 3, with a constant null space that the rows constrain
        data |= {"M": np.diag([1.0, 2.0, 3.0, 0.0, 0.0]), "dM": np.diag([1.0, 1.0, 2.0, 0.0, 0.0])}
    if kind == "non-ideal":
        data["c"] = rng.normal(size=N)
    return data


KINDS = (
    "full rank",
    "redundant",
    "inconsistent",
    "repeated singular values",
    "singular mass",
    "non-ideal",
)


def factors(p, data):
    C, R = data["C"] + p[1] * data["dC"], data["R"] + p[2] * p[0] * data["dR"]
    y = jnp.stack([p[0], p[1] ** 2, p[0] * p[2]])
    return C, R, C @ y + data["e"] * (1 + p[0] * p[1])


def terms(p, data):
    C, R, b = factors(p, data)
    M, Q = data["M"] + p[0] ** 2 * data["dM"], data["Q"] * jnp.cos(p[2]) + p[1]
    return uk.Terms(M, Q, C @ R, b, data["c"] * (1 + p[2]))


def outputs(p, data):
    motion = uk.constrained_motion(terms(p, data))
    return jnp.concatenate(
        [motion.acceleration, motion.ideal_force, motion.nonideal_force, motion.inconsistency[None] ** 2]
    )


def loss(p, data):
    return jnp.sum(jnp.sin(uk.constrained_motion(terms(p, data)).acceleration))


value = jax.jit(outputs)
first = jax.jit(lambda p, data: (jax.jacfwd(outputs)(p, data), jax.jacrev(outputs)(p, data)))
gradient = jax.jit(jax.grad(loss))
ALONG = np.array([0.6, -0.5, 0.8])


@jax.jit
def second(p, data):
    """The second derivative along a direction: forward over reverse, reverse over forward, and reverse over reverse;
    then forward over forward, twice along the direction."""
    of = lambda p: loss(p, data)
    slope = lambda p: jax.jvp(of, (p,), (ALONG,))[1]
    forward_of_reverse = jax.jvp(jax.grad(of), (p,), (ALONG,))[1]
    reverse_of_reverse = jax.grad(lambda p: jax.grad(of)(p) @ ALONG)(p)
    return forward_of_reverse, jax.grad(slope)(p), reverse_of_reverse, jax.jvp(slope, (p,), (ALONG,))[1]


@pytest.mark.parametrize("kind", KINDS)
def test_forward_and_reverse_derivatives_match_finite_differences(rng, kind):
    data = family(rng, kind)
    forward, reverse = first(AT, data)
    np.testing.assert_allclose(forward, reverse, rtol=0, atol=EXACT)
    differences = central_difference(lambda p: value(p, data), AT)
    np.testing.assert_allclose(forward, differences, rtol=DIFFERENCES, atol=DIFFERENCES)
    assert np.abs(forward[:N]).max() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives_match_differences_of_first(rng, kind):
    data = family(rng, kind)
    *found, twice = second(AT, data)
    differences = central_difference(lambda p: gradient(p, data), AT) @ ALONG
    for each in found:
        np.testing.assert_allclose(each, found[0], rtol=0, atol=100 * EXACT)
    np.testing.assert_allclose(twice, found[0] @ ALONG, rtol=0, atol=100 * EXACT)
    np.testing.assert_allclose(found[0], differences, rtol=DIFFERENCES, atol=DIFFERENCES)
    assert np.abs(found[0]).max() > 0.1


def test_error_of_differences_falls_as_the_square_of_the_step(rng):
    """Taylor's test: half the step has a quarter of the error, so that the gradient is the limit."""
    data = family(rng, "redundant")
    exact = gradient(AT, data)
    wide, narrow = (
        np.abs(central_difference(lambda p: loss_value(p, data), AT, step) - exact).max() for step in (2e-2, 1e-2)
    )
    assert 3.8 < wide / narrow < 4.2


loss_value = jax.jit(loss)


def test_batch_of_gradients_matches_single_members(rng):
    batch = [family(rng, kind) for kind in KINDS]
    together = jax.jit(jax.vmap(jax.grad(loss), in_axes=(None, 0)))(AT, jax.tree.map(lambda *x: np.stack(x), *batch))
    for data, one in zip(batch, together, strict=True):
        np.testing.assert_allclose(one, gradient(AT, data), rtol=0, atol=EXACT)


def test_derivative_of_pseudoinverse_matches_golub_and_pereyra(rng):
    """For redundant and contradictory rows, at constant M."""
    data = family(rng, "inconsistent") | {"dM": np.zeros((N, N))}
    at, change = (jax.tree.leaves(x) for x in jax.jvp(lambda p: terms(p, data), (AT,), (np.array([1.0, -0.5, 2.0]),)))
    M, Q, A, b, _ = map(np.asarray, at)
    _, dQ, dA, db, _ = map(np.asarray, change)
    tangent = first(AT, data)[0][:N] @ np.array([1.0, -0.5, 2.0])
    np.testing.assert_allclose(tangent, motion_tangent(M, Q, A, b, dQ, dA, db), rtol=0, atol=EXACT)


@pytest.mark.parametrize("kind", ("redundant", "inconsistent"))
def test_derivatives_agree_with_fifty_digits(rng, kind):
    """Central differences with a step of 1e-15 in 50 digits have 30 correct digits."""
    data = family(rng, kind)
    derivative = first(AT, data)[0][:N]
    with mpmath.workdps(DIGITS):
        h = mpmath.mpf(10) ** -15
        for i in range(3):
            ahead, behind = (exact(AT, data, i, sign * h) for sign in (1, -1))
            differences = [float((x - y) / (2 * h)) for x, y in zip(ahead, behind, strict=True)]
            np.testing.assert_allclose(derivative[:, i], differences, rtol=0, atol=EXACT)


def exact(at, data, i, step):
    """The acceleration at ``at`` with ``step`` added to entry i, in mpmath; rows of rank 2."""
    p = [mpmath.mpf(x) for x in at]
    p[i] += step
    number = lambda name: np.vectorize(mpmath.mpf, otypes=[object])(data[name])
    M = number("M") + p[0] ** 2 * number("dM")
    Q = number("Q") * mpmath.cos(p[2]) + p[1]
    C = (number("C") + p[1] * number("dC"))[:, :2]
    R = (number("R") + p[2] * p[0] * number("dR"))[:2]
    b = C @ np.array([p[0], p[1] ** 2]) + number("e") * (1 + p[0] * p[1])
    return exact_motion(M, Q, C, R, b)


def test_gradient_is_finite_where_unconstrained_motion_does_not_exist(rng):
    data = family(rng, "singular mass")
    motion = uk.constrained_motion(terms(AT, data))
    assert np.isnan(motion.unconstrained).all()
    assert np.isfinite(gradient(AT, data)).all()
    assert np.isfinite(first(AT, data)[0][:N]).all()
    through_scan = lambda p: jax.lax.scan(lambda x, _: (x + loss(p + x, data), None), 0.0, None, 3)[0]
    assert np.isfinite(jax.jit(jax.grad(through_scan))(AT)).all()


@pytest.mark.parametrize("field", ("M", "Q", "A", "b", "c"))
def test_derivatives_by_each_term_match_finite_differences(rng, field):
    """One term varies, the others are constant. The redundant rows of A remain redundant, but then contradict b."""
    at = terms(AT, family(rng, "redundant") | {"c": rng.normal(size=N)})
    symmetric = mass_matrix(rng, N)
    changes = {"M": symmetric, "Q": rng.normal(size=N), "b": rng.normal(size=4), "c": rng.normal(size=N)}
    changes |= {"A": (rng.normal(size=(4, 4)), rng.normal(size=(N, N)))}
    change = {name: jax.tree.map(lambda x, on=name == field: x * on, x) for name, x in changes.items()}
    forward, reverse = along_derivatives(0.1, at, change)
    np.testing.assert_allclose(forward, reverse, rtol=0, atol=EXACT)
    differences = central_difference(lambda s: along(s[0], at, change), np.array([0.1]))[:, 0]
    np.testing.assert_allclose(forward, differences, rtol=DIFFERENCES, atol=DIFFERENCES)
    assert np.abs(forward).max() > 0.01


@jax.jit
def along(s, at, change):
    left, right = change["A"]
    A = (jnp.eye(4) + s * left) @ at.A @ (jnp.eye(N) + s * right)
    M, Q, b, c = (getattr(at, name) + s * change[name] for name in "MQbc")
    return uk.constrained_motion(uk.Terms(M, Q, A, b, c)).acceleration


along_derivatives = jax.jit(lambda *x: (jax.jacfwd(along)(*x), jax.jacrev(along)(*x)))


def test_every_method_has_the_same_derivatives(rng):
    data = family(rng, "full rank")
    data = data | {name: data[name][:3] for name in ("C", "dC", "e")}

    def derivative(method):
        return jax.jit(jax.jacrev(lambda p: uk.constrained_motion(terms(p, data), method).acceleration))(AT)

    expected = derivative("orthogonal")
    for method in (uk.Cholesky(), uk.KKT(), uk.SVD(), uk.UdwadiaPhohomsiri()):
        np.testing.assert_allclose(derivative(method), expected, rtol=0, atol=EXACT, err_msg=str(method))


@pytest.mark.parametrize("apart", [1e-1, 1e-3, 1e-5])
def test_derivatives_near_a_singular_pose_match_closed_form(apart):
    """Rows (1, 0, 0) and (1, ε, 0): q̈₂ = (b₂ − b₁)/ε, M₃₃ q̈₃ = Q₃ − M₃₁ q̈₁ − M₃₂ q̈₂, and so their derivatives by ε."""
    M = jnp.array([[2.0, 0.3, 0.2], [0.3, 1.5, 0.4], [0.2, 0.4, 1.0]])
    Q, b = jnp.array([0.1, -0.4, 0.7]), jnp.array([0.5, 0.8])

    def acceleration(e):
        A = jnp.stack([jnp.array([1.0, 0.0, 0.0]), jnp.stack([1.0 + 0 * e, e, 0 * e])])
        return uk.constrained_motion(uk.Terms(M, Q, A, b)).acceleration

    slope = -0.3 / apart**2
    exact = np.array([0.0, slope, -0.4 * slope])
    for derivative in (jax.jacfwd, jax.jacrev):
        found = jax.jit(derivative(acceleration))(jnp.array(apart))
        np.testing.assert_allclose(found, exact, rtol=1e-13 / apart, atol=1e-15 / apart**3)


@pytest.mark.slow
def test_derivatives_at_a_singular_pose_are_those_at_constant_rank():
    """ε = 0 with b₁ = b₂: the rank is 1. The derivative by Q is that with a single row, and nothing is NaN."""

    def acceleration(Q, A, b):
        return uk.constrained_motion(uk.Terms(jnp.diag(jnp.array([2.0, 1.5, 1.0])), Q, A, b)).acceleration

    Q, rows, b = jnp.array([0.1, -0.4, 0.7]), jnp.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]), jnp.array([0.5, 0.5])
    by_Q, by_A, by_b = jax.jacrev(acceleration, argnums=(0, 1, 2))(Q, rows, b)
    assert all(np.isfinite(x).all() for x in (by_Q, by_A, by_b))
    np.testing.assert_allclose(by_Q, jax.jacrev(acceleration)(Q, rows[:1], b[:1]), rtol=0, atol=1e-14)
    np.testing.assert_allclose(by_b[0].sum(), 1.0, rtol=1e-13)
