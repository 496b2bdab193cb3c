"""Vectors and rotations in three dimensions, as matrices and quaternions (w, x, y, z)."""

import math
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ._check import as_numbers
from ._errors import InputError


def as_vector(name: str, given: Any) -> Float[Array, " 3"]:
    """Convert ``given`` to a vector of three numbers. Raises ``InputError`` if that is not possible."""
    value = as_numbers(name, given)
    if value.shape != (3,):
        raise InputError(f"{name} must be three numbers (x, y, z), got shape {value.shape}")
    return value


def as_quaternion(name: str, given: Any) -> Float[Array, " 4"]:
    """Convert roll, pitch and yaw [rad], or a quaternion (w, x, y, z) of any length, to a quaternion.

    Raises ``InputError`` if that is not possible.
    """
    value = as_numbers(name, given)
    if value.shape == (3,):
        value = quaternion_of_angles(value)
    if value.shape != (4,):
        raise InputError(
            f"{name} must be roll, pitch and yaw [rad] or a quaternion (w, x, y, z), got shape {value.shape}"
        )
    return value


def cross(a: Float[Array, "*j 3"], b: Float[Array, "*k 3"]) -> Float[Array, "*l 3"]:
    """Return a × b, with broadcasting of leading axes."""
    return _rolled(a * _rolled(b) - _rolled(a) * b)


def _rolled(a):
    return jnp.concatenate([a[..., 1:], a[..., :1]], axis=-1)


def skew(a: Float[Array, " 3"]) -> Float[Array, "3 3"]:
    """Return the matrix S with S b = a × b."""
    x, y, z = a
    return jnp.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])


def unskew(a: Float[Array, "3 3"]) -> Float[Array, " 3"]:
    """Return the vector of the skew-symmetric part of a matrix."""
    return jnp.stack([a[2, 1] - a[1, 2], a[0, 2] - a[2, 0], a[1, 0] - a[0, 1]]) / 2


def of_quaternion(u: Float[Array, " 4"]) -> Float[Array, "3 3"]:
    """Return the rotation matrix of the quaternion u/|u|."""
    w, x, y, z = u
    two = 2 / (u @ u)
    return jnp.array(
        [
            [1 - two * (y * y + z * z), two * (x * y - w * z), two * (x * z + w * y)],
            [two * (x * y + w * z), 1 - two * (x * x + z * z), two * (y * z - w * x)],
            [two * (x * z - w * y), two * (y * z + w * x), 1 - two * (x * x + y * y)],
        ]
    )


def rates_of_quaternions(u: Float[Array, "k 4"], omega: Float[Array, "k 3"]) -> Float[Array, "k 4"]:
    """Return u̇ = ω u/2 for angular velocities ω in the world frame. It preserves |u|."""
    w, vector = u[:, :1], u[:, 1:]
    return jnp.concatenate([-jnp.sum(vector * omega, axis=1)[:, None], w * omega + cross(omega, vector)], axis=1) / 2


def turned_quaternions(u: Float[Array, "k 4"], omega: Float[Array, "k 3"]) -> Float[Array, "k 4"]:
    """Return exp(ω/2) u, the quaternions after unit time with constant angular velocities ω in the world frame.

    exp(ω/2) = cos √z + ω/2 sin(√z)/√z, where z = |ω|²/4. Near ω = 0 both factors are power series, which have all
    derivatives there.
    """
    z = jnp.sum(omega**2, axis=1, keepdims=True) / 4
    is_small = z < 0.1
    root = jnp.sqrt(jnp.where(is_small, 1, z))
    cosine = jnp.where(is_small, _series(z, 0), jnp.cos(root))
    sine = jnp.where(is_small, _series(z, 1), jnp.sin(root) / root)
    return cosine * u + sine * rates_of_quaternions(u, omega)


def _series(z, first):
    """The sum of (−z)ᵏ / (2k + first)!, exact to rounding for z < 0.1."""
    total = jnp.zeros_like(z)
    for k in reversed(range(8)):
        total = 1 / math.factorial(2 * k + first) - z * total
    return total


def quaternion_of(R: Float[Array, "3 3"]) -> Float[Array, " 4"]:
    """Return the unit quaternion of a rotation matrix whose component of largest size is positive."""
    a, b, c = R[0, 0], R[1, 1], R[2, 2]
    # Columns of 4 u uᵀ. The column with the largest diagonal entry is far from zero.
    columns = jnp.array(
        [
            [1 + a + b + c, R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]],
            [R[2, 1] - R[1, 2], 1 + a - b - c, R[0, 1] + R[1, 0], R[0, 2] + R[2, 0]],
            [R[0, 2] - R[2, 0], R[0, 1] + R[1, 0], 1 - a + b - c, R[1, 2] + R[2, 1]],
            [R[1, 0] - R[0, 1], R[0, 2] + R[2, 0], R[1, 2] + R[2, 1], 1 - a - b + c],
        ]
    )
    u = columns[jnp.argmax(jnp.diag(columns))]
    return u / jnp.sqrt(u @ u)


def quaternion_of_angles(angles: Float[Array, " 3"]) -> Float[Array, " 4"]:
    """Return the quaternion of roll, pitch and yaw [rad]: rotations about the fixed axes x, then y, then z."""
    (a, b, c), (x, y, z) = jnp.cos(angles / 2), jnp.sin(angles / 2)
    return jnp.stack([a * b * c + x * y * z, x * b * c - a * y * z, a * y * c + x * b * z, a * b * z - x * y * c])


def quaternion_product(a: Float[Array, " 4"], b: Float[Array, " 4"]) -> Float[Array, " 4"]:
    """Return a b: first the rotation b, then the rotation a, both about fixed axes."""
    vector = a[0] * b[1:] + b[0] * a[1:] + cross(a[1:], b[1:])
    return jnp.concatenate([(a[0] * b[0] - a[1:] @ b[1:])[None], vector])


def rotation_vector(u: Float[Array, " 4"]) -> Float[Array, " 3"]:
    """Return θ e for the rotation u/|u| by the angle θ ≤ π about the unit vector e. Not differentiable at θ = π."""
    w, vector = jnp.where(u[0] < 0, -u[0], u[0]), jnp.where(u[0] < 0, -u[1:], u[1:])
    squared = vector @ vector
    small = squared < 1e-12 * w * w
    s = jnp.sqrt(jnp.where(small, 1.0, squared))
    # 2 atan(x)/x = 2 − 2x²/3 + ... with x = s/w
    ratio = squared / jnp.where(small, w * w, 1.0)
    return jnp.where(small, (2 - 2 * ratio / 3) / jnp.where(small, w, 1.0), 2 * jnp.arctan2(s, w) / s) * vector
