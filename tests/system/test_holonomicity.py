"""Frobenius's test for constraints with known results."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy as sp

import ukjax as uk

CLOSE = 1e-12  # float64 rounding of first derivatives of order 1
POINTS = np.random.default_rng(7).normal(size=(5, 3))


def at_points(A, c=0.0, points=POINTS, t=0.3):
    constraint = uk.Pfaffian(A, c)
    return jax.vmap(lambda q: uk.holonomicity(constraint, t, q))(points)


def lemma(alpha, beta, gamma):
    """Zhao et al. 2018, Lemma 1: the expression that must vanish, and its size relative to the row, as functions of x,
    y, z."""
    x, y, z = names = sp.symbols("x y z")
    value = (
        alpha * (sp.diff(beta, z) - sp.diff(gamma, y))
        + beta * (sp.diff(gamma, x) - sp.diff(alpha, z))
        + gamma * (sp.diff(alpha, y) - sp.diff(beta, x))
    )
    return value, sp.lambdify(names, sp.Abs(value) / (alpha**2 + beta**2 + gamma**2), "numpy")


def test_zhao_example_2_is_holonomic():
    """ẋ + 2y ẏ + ż = 0 integrates to x + y² + z = const."""
    result = at_points(lambda t, q: jnp.array([1.0, 2 * q[1], 1.0]))
    np.testing.assert_allclose(result.defect, 0, rtol=0, atol=CLOSE)
    assert result.defect.shape == (5, 1) and result.holonomic.all()


def test_zhao_example_3_is_holonomic_and_rheonomic():
    """ẋ + 2y ẏ + ż = 1 integrates to x + y² + z − t = const."""
    result = at_points(lambda t, q: jnp.array([1.0, 2 * q[1], 1.0]), 1.0)
    np.testing.assert_allclose(result.defect, 0, rtol=0, atol=CLOSE)
    assert result.holonomic.all()


def test_zhao_example_4_is_not_holonomic():
    """ẋ + 2z ẏ + ż = 0: the lemma gives 2 (the paper prints 1 in eq. 17; the conclusion stands)."""
    value, relative = lemma(sp.Integer(1), 2 * sp.Symbol("z"), sp.Integer(1))
    assert value == 2
    result = at_points(lambda t, q: jnp.array([1.0, 2 * q[2], 1.0]))
    np.testing.assert_allclose(result.defect[:, 0], relative(*POINTS.T), rtol=0, atol=CLOSE)
    assert not result.holonomic.any()


def test_defect_of_one_row_matches_the_lemma():
    x, y, z = names = sp.symbols("x y z")
    row = (sp.sin(y * z) + 2, x**2 - z, sp.exp(x / 2) * y)
    _, relative = lemma(*row)
    numeric = sp.lambdify(names, row, "jax")
    result = at_points(lambda t, q: jnp.stack(numeric(*q)))
    np.testing.assert_allclose(result.defect[:, 0], relative(*POINTS.T), rtol=0, atol=CLOSE)
    assert result.defect.min() > 1e-3


def test_defect_does_not_depend_on_scale_of_row():
    one = at_points(lambda t, q: jnp.array([1.0, 2 * q[2], 1.0]))
    scaled = at_points(lambda t, q: 1e6 * jnp.exp(q[0]) * jnp.array([1.0, 2 * q[2], 1.0]))
    np.testing.assert_allclose(scaled.defect, one.defect, rtol=0, atol=CLOSE)


def test_rolling_without_slip_is_not_holonomic():
    """The unicycle: ẋ sin θ − ẏ cos θ = 0; its defect is 1 everywhere."""
    result = at_points(lambda t, q: jnp.array([jnp.sin(q[2]), -jnp.cos(q[2]), 0.0]))
    np.testing.assert_allclose(result.defect, 1, rtol=0, atol=CLOSE)
    assert not result.holonomic.any()


def test_an_integrating_factor_makes_a_row_holonomic():
    """y dx − x dy is not a differential, but it is y² d(x/y)."""
    result = at_points(lambda t, q: jnp.array([q[1], -q[0], 0.0]))
    np.testing.assert_allclose(result.defect, 0, rtol=0, atol=CLOSE)
    assert result.holonomic.all()


def test_rows_may_be_holonomic_together_though_not_alone():
    """dx + z dy alone is not holonomic. With dz = 0 it is d(x + z y)."""
    alone = at_points(lambda t, q: jnp.array([1.0, q[2], 0.0]))
    together = at_points(lambda t, q: jnp.array([[1.0, q[2], 0.0], [0.0, 0.0, 1.0]]))
    assert not alone.holonomic.any()
    np.testing.assert_allclose(together.defect, 0, rtol=0, atol=CLOSE)
    assert together.defect.shape == (5, 2) and together.holonomic.all()


def test_defect_shows_which_of_two_rows_is_not_holonomic():
    """In four coordinates: dw = 0 is holonomic, and the unicycle is not."""
    points = np.random.default_rng(8).normal(size=(3, 4))
    rows = lambda t, q: jnp.array([[0.0, 0.0, 0.0, 1.0], [jnp.sin(q[2]), -jnp.cos(q[2]), 0.0, 0.0]])
    result = at_points(rows, points=points)
    np.testing.assert_allclose(result.defect, [[0.0, 1.0]] * 3, rtol=0, atol=CLOSE)
    assert not result.holonomic.any()


def test_redundant_rows_do_not_matter():
    result = at_points(lambda t, q: jnp.array([[1.0, 2 * q[1], 1.0], [2.0, 4 * q[1], 2.0]]))
    assert result.holonomic.all()
    result = at_points(lambda t, q: jnp.array([[1.0, 2 * q[2], 1.0], [2.0, 4 * q[2], 2.0]]))
    assert not result.holonomic.any()


@pytest.mark.parametrize(
    ("c", "holonomic"),
    (
        (lambda t, q: jnp.cos(t), True),  # ẋ = cos t
        (lambda t, q: q[0] * t, True),  # ẋ = x t, with an integrating factor 1/x
        (lambda t, q: q[1], False),  # ẋ = y: in (t, x, y) the form dx − y dt
    ),
)
def test_explicit_time_counts_as_a_coordinate(c, holonomic):
    result = at_points(np.array([[1.0, 0.0, 0.0]]), c)
    assert (result.holonomic == holonomic).all()


def test_moving_rows_of_a_scleronomic_form_are_not_integrable():
    """ẋ cos t + ẏ sin t = 0, a knife edge that turns with time."""
    result = at_points(lambda t, q: jnp.array([jnp.cos(t), jnp.sin(t), 0.0]))
    np.testing.assert_allclose(result.defect, 1, rtol=0, atol=CLOSE)
    assert not result.holonomic.any()


def test_tolerance_changes_the_result():
    nearly = uk.Pfaffian(lambda t, q: jnp.array([1.0, 1e-6 * q[2], 1.0]))
    assert not uk.holonomicity(nearly, 0.0, np.zeros(3)).holonomic
    assert uk.holonomicity(nearly, 0.0, np.zeros(3), tolerance=1e-3).holonomic


def test_a_batch_of_points_needs_vmap():
    with pytest.raises(ValueError, match=r"q must be one point of shape \(n,\), got shape \(5, 3\); use jax.vmap"):
        uk.holonomicity(uk.Pfaffian(np.ones((1, 3))), 0.0, POINTS)
