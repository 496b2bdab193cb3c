"""Coefficients of the Runge–Kutta methods."""

import diffrax as dfx
import numpy as np
import pytest

from ukjax._motion.stepper.tableau import DOPRI8, RUNGE_KUTTA4, Tableau

ROUNDING = 5e-15  # entries of Dormand and Prince's method are up to 48, and are printed as fractions of 18 digits


def arrays(tableau):
    return tableau.weights(), np.array(tableau.b), np.array(tableau.c), np.array(tableau.b_error)


def test_dopri8_equals_diffrax_bitwise():
    """The last stage in diffrax is the first of the next step, and has weight zero."""
    ours, theirs = DOPRI8, Tableau.of(dfx.Dopri8())
    assert ours.order == theirs.order == 8 and ours.stages == theirs.stages - 1
    assert theirs.b[-1] == theirs.b_error[-1] == 0 and theirs.a[-1] == theirs.b[:-1]
    assert ours.c == theirs.c[:-1] and ours.b == theirs.b[:-1] and ours.b_error == theirs.b_error[:-1]
    np.testing.assert_array_equal(ours.weights(), theirs.weights()[:-1, :-1])


@pytest.mark.parametrize("tableau", (DOPRI8, RUNGE_KUTTA4), ids=("Dopri8", "RungeKutta4"))
def test_weights_of_each_stage_sum_to_its_time(tableau):
    A, b, c, b_error = arrays(tableau)
    np.testing.assert_allclose(A.sum(1), c, rtol=0, atol=2e-14)
    np.testing.assert_array_equal(A, np.tril(A, -1))  # explicit
    assert b.sum() == pytest.approx(1, abs=ROUNDING) and b_error.sum() == pytest.approx(0, abs=ROUNDING)


@pytest.mark.parametrize("tableau", (DOPRI8, RUNGE_KUTTA4), ids=("Dopri8", "RungeKutta4"))
def test_method_integrates_polynomials_of_its_order(tableau):
    """Σ bᵢ cᵢᵏ⁻¹ = 1/k: the order conditions of the bushy trees."""
    _, b, c, b_error = arrays(tableau)
    for k in range(1, tableau.order + 1):
        assert b @ c ** (k - 1) == pytest.approx(1 / k, abs=ROUNDING)
    if np.any(b_error):  # of a method of one order less
        for k in range(1, tableau.order):
            assert b_error @ c ** (k - 1) == pytest.approx(0, abs=ROUNDING)
        assert abs(b_error @ c ** (tableau.order - 1)) > 1e-6


@pytest.mark.parametrize("tableau", (DOPRI8, RUNGE_KUTTA4), ids=("Dopri8", "RungeKutta4"))
def test_method_has_its_order_for_linear_equations(tableau):
    """bᵀ Aᵏ⁻¹ 1 = 1/k!, the order conditions of the tall trees: the series of exp up to the order, and not further."""
    A, b, _, _ = arrays(tableau)
    power, factorial = np.ones(tableau.stages), 1.0
    for k in range(1, tableau.order + 1):
        factorial *= k
        assert b @ power == pytest.approx(1 / factorial, abs=1e-14)
        power = A @ power
    assert abs(b @ power - 1 / (factorial * (tableau.order + 1))) > 1e-9


def test_mixed_order_conditions_hold():
    """Σ bᵢ cᵢᵖ (A cᵠ)ᵢ = 1/((q + 1)(p + q + 2)), for all p and q up to order eight."""
    A, b, c, _ = arrays(DOPRI8)
    for p in range(7):
        for q in range(1, 7 - p):
            assert b @ (c**p * (A @ c**q)) == pytest.approx(1 / ((q + 1) * (p + q + 2)), abs=1e-14)
