"""Rotations by quaternions, in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

from ukjax._rotation import turned_quaternions

U = np.array([0.5, -0.1, 0.7, 0.5])


def turned(omega):
    return turned_quaternions(jnp.asarray(U)[None], jnp.asarray(omega)[None])[0]


def half_turning(omega):
    """The matrix N with N u = ω u/2, a product of quaternions."""
    x, y, z = omega
    return np.array([[0, -x, -y, -z], [x, 0, -z, y], [y, z, 0, -x], [z, -y, x, 0]]) / 2


@pytest.mark.parametrize("angle", (0, 1e-9, 0.63, 0.64, 3, 10))
def test_turn_with_constant_angular_velocity_is_the_matrix_exponential(angle):
    omega = angle * np.array([0.6, 0.0, -0.8])
    np.testing.assert_allclose(turned(omega), expm(half_turning(omega)) @ U, rtol=0, atol=1e-14)


def test_first_and_second_derivatives_of_a_turn_by_zero():
    slope, curvature = jax.jacfwd(turned)(np.zeros(3)), jax.jacrev(jax.jacfwd(turned))(np.zeros(3))
    np.testing.assert_allclose(slope.T, [half_turning(axis) @ U for axis in np.eye(3)], atol=1e-16)
    np.testing.assert_allclose(curvature, np.multiply.outer(-U / 4, np.eye(3)), atol=1e-16)
