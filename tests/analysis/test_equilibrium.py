"""Equilibria against statics by hand, and their derivatives against closed forms."""

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


def test_redundant_rods_share_their_load():
    """From a level rod, a right angle away: the direction in which the point is free turns on the way down."""
    N = 1
    found = uk.equilibrium(hanging_chain(N, doubled=True), [-1.0, 0.0])
    assert found.stable
    np.testing.assert_allclose(found.q, hanging(N), **EXACT)
    np.testing.assert_allclose(found.constraint_force, np.tile([0, GRAVITY], N), **EXACT)
    assert not np.any(found.unique)
    # Of λ₁ + 3 λ₂ = λ, the smallest are λ / 10 and 3 λ / 10.
    half = -GRAVITY * np.ones(1) / 2
    np.testing.assert_allclose(found.multipliers, [*half / 10, *3 * half[::-1] / 10], **EXACT)


@pytest.mark.slow
def test_held_coordinates_and_an_unstable_equilibrium():
    """A pole upright is unstable also if its cart is held."""
    held = uk.equilibrium(cart_pole(), [0.2, 0.25, 0.45], hold="cart")
    np.testing.assert_allclose(held.q, [0.2, 0.2, 0.5], **EXACT)
    assert held.rows == ("pole", "cart as given") and np.all(held.unique) and not held.stable
    # λ of |d|² − l² is the weight over 2 l: the slope of the constraint is 2 d. Nothing pushes the cart.
    np.testing.assert_allclose(held.multipliers, [0.3 * GRAVITY / (2 * 0.5), 0], **EXACT)
    np.testing.assert_allclose(held.constraint_force, [0, 0, 0.3 * GRAVITY], **EXACT)
    assert len(held.linear.states) == 2
    growth = max(held.linear.eigenvalues.real)
    np.testing.assert_allclose(growth, np.sqrt(GRAVITY / 0.5), **EXACT)


@pytest.mark.slow
def test_the_nearest_of_many_equilibria():
    """The cart may stand anywhere: it stays, and the pole moves by as much as it must, as M weighs both."""
    found = uk.equilibrium(cart_pole(), [0.2, 0.2, 0.45])
    np.testing.assert_allclose(found.q, [0.2, 0.2, 0.5], **EXACT)
    assert not found.stable


def hanging_from_a_spring(stiffness):
    """A bob of unit mass on a spring from the origin, on a wall with slope 1: a 2-D statics problem."""
    spring = lambda t, q, v: jnp.stack([-stiffness * q[0], -stiffness * q[1] - GRAVITY])
    wall = uk.Holonomic(lambda t, q: (q[1] - q[0] + 1.0) / jnp.sqrt(2.0), name="wall")
    return uk.System(uk.MassForce(np.eye(2), spring), wall, coordinates=(("x", "m"), ("y", "m")))


@pytest.mark.slow
def test_derivatives_by_a_parameter():
    """On the wall y = x − 1: k x + k (x − 1) + g = 0, so x = 1/2 − g / (2 k); its force across it is
    λ = (k y + g − k x) / √2 = (g − k) / √2."""
    k = 20.0

    def of(stiffness):
        found = uk.equilibrium(hanging_from_a_spring(stiffness), [0.0, -1.0])
        value = jnp.stack([found.q[0], found.multipliers[0]])
        return value, value

    slopes, values = jax.jacrev(of, has_aux=True)(k)
    np.testing.assert_allclose(values, [0.5 - GRAVITY / (2 * k), (GRAVITY - k) / np.sqrt(2)], **EXACT)
    np.testing.assert_allclose(slopes, [GRAVITY / (2 * k**2), -1 / np.sqrt(2)], **EXACT)


@pytest.mark.slow
def test_second_derivatives_by_a_parameter():
    """q = g / k on a spring: the first in reverse, and that of it forward."""
    spring = lambda k: uk.System(uk.MassForce(np.eye(1), lambda t, q, v: GRAVITY - k * q))
    slope = jax.grad(lambda k: uk.equilibrium(spring(k), [0.0]).q[0])
    first, second = jax.jit(lambda k: jax.jvp(slope, (k,), (1.0,)))(20.0)
    np.testing.assert_allclose([first, second], [-GRAVITY / 20.0**2, 2 * GRAVITY / 20.0**3], **EXACT)


def test_what_cannot_be_found_is_said():
    falling = uk.System(uk.MassForce(np.eye(1), [1.0]))
    with pytest.raises(uk.InputError, match="near must be closer to an equilibrium.*balance of forces"):
        uk.equilibrium(falling, [0.0])
    with pytest.raises(uk.InputError, match="hold names no coordinate 'crat'; did you mean 'cart'"):
        uk.equilibrium(cart_pole(), [0.0, 0.0, 0.5], hold="crat")
    with pytest.raises(uk.InputError, match="near must have shape"):
        uk.equilibrium(cart_pole(), 0.5)


def test_without_constraints_one_search_is_enough(monkeypatch):
    """Rounding of the force at the point that is found is no reason to search again."""
    searches, search = [], equilibrium_module._balanced
    monkeypatch.setattr(equilibrium_module, "_balanced", lambda *given: searches.append(given) or search(*given))
    spring = uk.System(uk.MassForce(jnp.eye(1), lambda t, q, v: 3.0 - 50.0 * q - q**3))
    rest = uk.equilibrium(spring, near=[0.02])
    np.testing.assert_allclose(rest.q, [x.real for x in np.roots([1, 0, 50, -3]) if x.imag == 0], rtol=1e-14)
    assert spring(0.0, rest.q, [0.0]).Q[0] != 0.0  # if it were exactly 0, the test could not fail
    assert len(searches) == 1
