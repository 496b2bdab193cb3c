"""Masses, centres and inertias: of solids, and of several together."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from .frame import Frame, matrix, rotated


class Inertia(NamedTuple):
    """``mass`` [kg], ``centre`` (3,) [m], and the inertia (3, 3) [kg m²] about it."""

    mass: float
    centre: np.ndarray
    about_centre: np.ndarray

    def inside(self, frame: Frame) -> "Inertia":
        """The same, where this is given in a ``frame``."""
        R = matrix(frame.u)
        turned = R @ self.about_centre @ R.T if np.any(frame.u[1:]) else self.about_centre
        turned = np.where(np.abs(turned) < 1e-15 * np.max(np.abs(turned)), 0, turned)  # a quarter turn's rounding
        return Inertia(self.mass, frame.p + rotated(frame.u, self.centre), turned)

    def numbers(self) -> np.ndarray:
        """As a body takes it: three moments, or six where axes are not its principal ones."""
        I = (self.about_centre + self.about_centre.T) / 2
        six = np.array([I[0, 0], I[1, 1], I[2, 2], I[0, 1], I[0, 2], I[1, 2]])
        return six if np.any(six[3:]) else six[:3]


NOTHING = Inertia(0.0, np.zeros(3), np.zeros((3, 3)))


def together(parts: Iterable[Inertia]) -> Inertia:
    """As one body."""
    parts = [part for part in parts if part.mass]
    if not parts:
        return NOTHING
    mass = sum(part.mass for part in parts)
    centre = sum((part.mass * part.centre for part in parts), np.zeros(3)) / mass
    total = np.zeros((3, 3))
    for part in parts:
        d = part.centre - centre
        total += part.about_centre + part.mass * (d @ d * np.eye(3) - np.outer(d, d))
    return Inertia(mass, centre, total)


def of_solid(kind: str, size: tuple[float, ...], mass: float | None, density: float) -> Inertia:
    """A full solid of a ``Shape``'s kind and size, of ``mass``, or of ``density`` [kg/m³] where that is None."""
    volume, moments = _SOLIDS[kind](*size)
    mass = density * volume if mass is None else mass
    return Inertia(mass, np.zeros(3), mass * np.diag(moments))


def _box(x, y, z):
    return x * y * z, np.array([y * y + z * z, x * x + z * z, x * x + y * y]) / 12


def _cylinder(r, length):
    across = r * r / 4 + length * length / 12
    return np.pi * r * r * length, np.array([across, across, r * r / 2])


def _ellipsoid(x, y, z):
    return 4 / 3 * np.pi * x * y * z, np.array([y * y + z * z, x * x + z * z, x * x + y * y]) / 5


def _capsule(r, length):
    """Of a cylinder and the two halves of a ball, whose centres of mass are 3r/8 beyond its ends."""
    tube, (across, _, along) = _cylinder(r, length)
    ball = 4 / 3 * np.pi * r**3
    shifted = 2 / 5 * r * r + length * length / 4 + 3 / 8 * r * length
    across, along = (tube * across + ball * shifted), (tube * along + ball * 2 / 5 * r * r)
    return tube + ball, np.array([across, across, along]) / (tube + ball)


_SOLIDS = {
    "box": _box,
    "cylinder": _cylinder,
    "ellipsoid": _ellipsoid,
    "capsule": _capsule,
    "sphere": lambda r: _ellipsoid(r, r, r),
}
