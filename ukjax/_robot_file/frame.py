"""Frames as files give them, in NumPy: unit quaternions (w, x, y, z), so that no turn at all is one exactly."""

from typing import Any, NamedTuple

import numpy as np

IDENTITY = np.array([1.0, 0.0, 0.0, 0.0])


class Frame(NamedTuple):
    """Its attitude ``u`` (4,) and its origin ``p`` (3,) [m] in another."""

    u: np.ndarray = IDENTITY
    p: np.ndarray = np.zeros(3)

    def then(self, inner: "Frame") -> "Frame":
        """A frame that is given in this one."""
        return Frame(product(self.u, inner.u), self.p + rotated(self.u, inner.p))

    def inverse(self) -> "Frame":
        """The other as seen from this one."""
        u = opposite(self.u)
        return Frame(u, -rotated(u, self.p))

    def arguments(self, at: str = "at", turn: str = "turn") -> dict[str, Any]:
        """What a joint is told of it: nothing of what is no turn and no shift, which costs nothing then."""
        told: dict[str, Any] = {}
        if np.any(self.p):
            told[at] = self.p
        if np.any(self.u[1:]):
            told[turn] = self.u
        return told


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The turn b, then the turn a, along the axes of space."""
    if not np.any(a[1:]) or not np.any(b[1:]):
        return a * b[0] + b * a[0] - IDENTITY * a[0] * b[0]
    vector = a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:])
    return np.array([a[0] * b[0] - a[1:] @ b[1:], *vector])


def opposite(u: np.ndarray) -> np.ndarray:
    """The turn back."""
    return u * [1, -1, -1, -1]


def rotated(u: np.ndarray, x: np.ndarray) -> np.ndarray:
    """x after the turn u."""
    twice = 2 * np.cross(u[1:], x)
    return x + u[0] * twice + np.cross(u[1:], twice)


def matrix(u: np.ndarray) -> np.ndarray:
    """The axes of the frame, as columns."""
    return np.stack([rotated(u, e) for e in np.eye(3)], axis=1)


def about(axis: np.ndarray, angle: float) -> np.ndarray:
    """The turn by an angle [rad] about an axis of any length but 0."""
    return np.array([np.cos(angle / 2), *(np.sin(angle / 2) / np.linalg.norm(axis) * axis)])


def of_angles(roll: float, pitch: float, yaw: float) -> np.ndarray:
    """About x, then y, then z, all in space [rad]."""
    x, y, z = (about(axis, angle) for axis, angle in zip(np.eye(3), (roll, pitch, yaw), strict=True))
    return product(z, product(y, x))


def unit(u: np.ndarray) -> np.ndarray:
    """A quaternion as a file has it, of length 1; of length 0 it is no turn, as MuJoCo has it."""
    length = np.linalg.norm(u)
    return u / length if length else IDENTITY
