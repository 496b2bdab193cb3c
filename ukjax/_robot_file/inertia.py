"""Masses, centres and inertias."""

from typing import NamedTuple

import numpy as np

from .frame import Frame, matrix, rotated


class Inertia(NamedTuple):
    """``mass`` [kg], ``centre`` (3,) [m], and the inertia (3, 3) [kg m²] about it."""

    mass: float
    centre: np.ndarray
    about_centre: np.ndarray

    def transformed(self, frame: Frame) -> "Inertia":
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


ZERO_INERTIA = Inertia(0.0, np.zeros(3), np.zeros((3, 3)))
