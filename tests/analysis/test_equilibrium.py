"""Equilibria against statics and closed forms, with their derivatives."""

import importlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk

from .models import GRAVITY, cart_pole, hanging, hanging_chain

equilibrium_module = importlib.import_module("ukjax._analysis.equilibrium")
EXACT: Any = dict(rtol=1e-10, atol=1e-10)


def test_redundant_rods_share_the_load():
    """The search starts at a level rod, at a right angle to the equilibrium."""
    N = 1
    found = uk.equilibrium(hanging_chain(N, doubled=True), [-1.0, 0.0])
    assert found.stable
    np.testing.assert_allclose(found.q, hanging(N), **EXACT)
    np.testing.assert_allclose(found.constraint_force, np.tile([0, GRAVITY], N), **EXACT)
    assert not np.any(found.unique)
    # Of all solutions of λ₁ + 3 λ₂ = λ, the one of least norm is λ / 10 and 3 λ / 10.
    half = -GRAVITY * np.ones(1) / 2
    np.testing.assert_allclose(found.multipliers, [*half / 10, *3 * half[::-1] / 10], **EXACT)


@pytest.mark.slow
def test_unstable_equilibrium_with_a_fixed_coordinate():
    """An upright pole is unstable also if its cart is fixed."""
    held = uk.equilibrium(cart_pole(), [0.2, 0.25, 0.45], hold="cart")
    np.testing.assert_allclose(held.q, [0.2, 0.2, 0.5], **EXACT)
    assert held.rows == ("pole", "cart as given") and np.all(held.unique) and not held.stable
    # λ of |d|² − l² is the weight over 2 l, because the slope of the constraint is 2 d. The force on the cart is zero.
    np.testing.assert_allclose(held.multipliers, [0.3 * GRAVITY / (2 * 0.5), 0], **EXACT)
    np.testing.assert_allclose(held.constraint_force, [0, 0, 0.3 * GRAVITY], **EXACT)
    assert len(held.linear.states) == 2
    growth = max(held.linear.eigenvalues.real)
    np.testing.assert_allclose(growth, np.sqrt(GRAVITY / 0.5), **EXACT)


@pytest.mark.slow
def test_nearest_of_many_equilibria():
    """Any position of the cart is an equilibrium: the cart stays, and the pole moves to the nearest one in the M
    metric."""
    found = uk.equilibrium(cart_pole(), [0.2, 0.2, 0.45])
    np.testing.assert_allclose(found.q, [0.2, 0.2, 0.5], **EXACT)
    assert not found.stable


def hanging_from_a_spring(stiffness):
    """A bob of unit mass on a spring from the origin, on a wall of slope 1: a planar problem of statics."""
    spring = lambda t, q, v: jnp.stack([-stiffness * q[0], -stiffness * q[1] - GRAVITY])
    wall = uk.Holonomic(lambda t, q: (q[1] - q[0] + 1.0) / jnp.sqrt(2.0), name="wall")
    return uk.System(uk.MassForce(np.eye(2), spring), wall, coordinates=(("x", "m"), ("y", "m")))


@pytest.mark.slow
def test_derivatives_of_an_equilibrium_match_closed_form():
    """On the wall y = x − 1, k x + k (x − 1) + g = 0, so that x = 1/2 − g / (2 k).

    The force across it is λ = (k y + g − k x) / √2 = (g − k) / √2.
    """
    k = 20.0

    def of(stiffness):
        found = uk.equilibrium(hanging_from_a_spring(stiffness), [0.0, -1.0])
        value = jnp.stack([found.q[0], found.multipliers[0]])
        return value, value

    slopes, values = jax.jacrev(of, has_aux=True)(k)
    np.testing.assert_allclose(values, [0.5 - GRAVITY / (2 * k), (GRAVITY - k) / np.sqrt(2)], **EXACT)
    np.testing.assert_allclose(slopes, [GRAVITY / (2 * k**2), -1 / np.sqrt(2)], **EXACT)


@pytest.mark.slow
def test_second_derivative_of_an_equilibrium_matches_closed_form():
    """q = g / k on a spring: reverse mode, then forward mode over it."""
    spring = lambda k: uk.System(uk.MassForce(np.eye(1), lambda t, q, v: GRAVITY - k * q))
    slope = jax.grad(lambda k: uk.equilibrium(spring(k), [0.0]).q[0])
    first, second = jax.jit(lambda k: jax.jvp(slope, (k,), (1.0,)))(20.0)
    np.testing.assert_allclose([first, second], [-GRAVITY / 20.0**2, 2 * GRAVITY / 20.0**3], **EXACT)


def test_bad_input_or_no_equilibrium_raises():
    falling = uk.System(uk.MassForce(np.eye(1), [1.0]))
    with pytest.raises(uk.InputError, match="near must be closer to an equilibrium.*balance of forces"):
        uk.equilibrium(falling, [0.0])
    with pytest.raises(uk.InputError, match="hold names no coordinate 'crat'; did you mean 'cart'"):
        uk.equilibrium(cart_pole(), [0.0, 0.0, 0.5], hold="crat")
    with pytest.raises(uk.InputError, match="near must have shape"):
        uk.equilibrium(cart_pole(), 0.5)


def test_equilibrium_without_constraints_needs_one_search(monkeypatch):
    """Rounding of the force at the solution must not cause a second search."""
    searches, search = [], equilibrium_module._balanced
    monkeypatch.setattr(equilibrium_module, "_balanced", lambda *given: searches.append(given) or search(*given))
    spring = uk.System(uk.MassForce(jnp.eye(1), lambda t, q, v: 3.0 - 50.0 * q - q**3))
    rest = uk.equilibrium(spring, near=[0.02])
    np.testing.assert_allclose(rest.q, [x.real for x in np.roots([1, 0, 50, -3]) if x.imag == 0], rtol=1e-14)
    assert spring(0.0, rest.q, [0.0]).Q[0] != 0.0  # if it were exactly 0, the test could not fail
    assert len(searches) == 1
