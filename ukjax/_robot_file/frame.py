"""Frames in NumPy. Attitudes are unit quaternions (w, x, y, z), which represent the identity without rounding."""

from typing import Any, NamedTuple

import numpy as np

IDENTITY = np.array([1.0, 0.0, 0.0, 0.0])


class Frame(NamedTuple):
    """Attitude ``u`` (4,) and origin ``p`` (3,) [m] of a frame in another frame."""

    u: np.ndarray = IDENTITY
    p: np.ndarray = np.zeros(3)

    def then(self, inner: "Frame") -> "Frame":
        """The pose of ``inner`` in the outer frame. ``inner`` is defined in this frame."""
        return Frame(product(self.u, inner.u), self.p + rotated(self.u, inner.p))

    def inverse(self) -> "Frame":
        """The pose of the outer frame in this frame."""
        u = opposite(self.u)
        return Frame(u, -rotated(u, self.p))

    def arguments(self, at: str = "at", turn: str = "turn") -> dict[str, Any]:
        """The arguments of a joint for this frame. An identity rotation or a zero translation is left out.

        A joint without these arguments takes less time to evaluate.
        """
        arguments: dict[str, Any] = {}
        if np.any(self.p):
            arguments[at] = self.p
        if np.any(self.u[1:]):
            arguments[turn] = self.u
        return arguments


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The quaternion of the rotation b followed by the rotation a, in the axes of space."""
    if not np.any(a[1:]) or not np.any(b[1:]):
        return a * b[0] + b * a[0] - IDENTITY * a[0] * b[0]
    vector = a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:])
    return np.array([a[0] * b[0] - a[1:] @ b[1:], *vector])


def opposite(u: np.ndarray) -> np.ndarray:
    """The inverse rotation."""
    return u * [1, -1, -1, -1]


def rotated(u: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The vector x rotated by u."""
    twice = 2 * np.cross(u[1:], x)
    return x + u[0] * twice + np.cross(u[1:], twice)


def matrix(u: np.ndarray) -> np.ndarray:
    """The rotation matrix: the axes of the frame, as columns."""
    return np.stack([rotated(u, e) for e in np.eye(3)], axis=1)


def about(axis: np.ndarray, angle: float) -> np.ndarray:
    """The quaternion of a rotation by ``angle`` [rad] about ``axis``, a vector of any length except 0."""
    return np.array([np.cos(angle / 2), *(np.sin(angle / 2) / np.linalg.norm(axis) * axis)])


def of_angles(roll: float, pitch: float, yaw: float) -> np.ndarray:
    """The quaternion of rotations [rad] about x, then y, then z, in the axes of space."""
    x, y, z = (about(axis, angle) for axis, angle in zip(np.eye(3), (roll, pitch, yaw), strict=True))
    return product(z, product(y, x))


def unit(u: np.ndarray) -> np.ndarray:
    """The normalised quaternion; a quaternion of length 0 is the identity, as in MuJoCo."""
    length = np.linalg.norm(u)
    return u / length if length else IDENTITY
