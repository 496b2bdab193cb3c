"""Vectors and rotations in space, as matrices and quaternions (w, x, y, z)."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ._check import as_numbers


def as_vector(name: str, given: Any) -> Float[Array, " 3"]:
    """Three finite numbers, or ``ValueError``."""
    value = as_numbers(name, given)
    if value.shape != (3,):
        raise ValueError(f"{name} must be three numbers (x, y, z), got shape {value.shape}")
    return value


def cross(a: Float[Array, "*j 3"], b: Float[Array, "*k 3"]) -> Float[Array, "*l 3"]:
    """a × b of vectors, which broadcast."""
    return _rolled(a * _rolled(b) - _rolled(a) * b)


def _rolled(a):
    return jnp.concatenate([a[..., 1:], a[..., :1]], axis=-1)


def skew(a: Float[Array, " 3"]) -> Float[Array, "3 3"]:
    """The matrix of a ×."""
    x, y, z = a
    return jnp.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])


def unskew(a: Float[Array, "3 3"]) -> Float[Array, " 3"]:
    """The vector of the part of a matrix that is skew."""
    return jnp.stack([a[2, 1] - a[1, 2], a[0, 2] - a[2, 0], a[1, 0] - a[0, 1]]) / 2


def of_quaternion(u: Float[Array, " 4"]) -> Float[Array, "3 3"]:
    """The rotation by u/|u|: its length is of no matter."""
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
    """u̇ = ω u/2, ω in space: it keeps the length of each."""
    w, vector = u[:, :1], u[:, 1:]
    return jnp.concatenate([-jnp.sum(vector * omega, axis=1)[:, None], w * omega + cross(omega, vector)], axis=1) / 2


def quaternion_of(R: Float[Array, "3 3"]) -> Float[Array, " 4"]:
    """One of the two unit quaternions of a rotation: the one whose largest component is positive."""
    a, b, c = R[0, 0], R[1, 1], R[2, 2]
    # The columns of 4 u uᵀ; the one with the largest diagonal is nowhere near zero.
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
    """Of roll, pitch and yaw [rad]: about x, then about y, then about z, all in space."""
    (a, b, c), (x, y, z) = jnp.cos(angles / 2), jnp.sin(angles / 2)
    return jnp.stack([a * b * c + x * y * z, x * b * c - a * y * z, a * y * c + x * b * z, a * b * z - x * y * c])


def quaternion_product(a: Float[Array, " 4"], b: Float[Array, " 4"]) -> Float[Array, " 4"]:
    """a b: the rotation b, then the rotation a, both in space."""
    vector = a[0] * b[1:] + b[0] * a[1:] + cross(a[1:], b[1:])
    return jnp.concatenate([(a[0] * b[0] - a[1:] @ b[1:])[None], vector])


def rotation_vector(u: Float[Array, " 4"]) -> Float[Array, " 3"]:
    """θ e of the rotation by u/|u| about the unit vector e, the shorter way: θ ≤ π. Its length has no derivative where
    θ = π."""
    w, vector = jnp.where(u[0] < 0, -u[0], u[0]), jnp.where(u[0] < 0, -u[1:], u[1:])
    squared = vector @ vector
    small = squared < 1e-12 * w * w
    s = jnp.sqrt(jnp.where(small, 1.0, squared))
    # 2 atan(x)/x = 2 − 2x²/3 + ... with x = s/w
    ratio = squared / jnp.where(small, w * w, 1.0)
    return jnp.where(small, (2 - 2 * ratio / 3) / jnp.where(small, w, 1.0), 2 * jnp.arctan2(s, w) / s) * vector
