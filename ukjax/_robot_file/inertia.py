"""Mass, centre of mass and inertia of a body."""

from typing import NamedTuple

import numpy as np

from .frame import Frame, matrix, rotated


class Inertia(NamedTuple):
    """``mass`` [kg], ``centre`` (3,) of mass [m], and the inertia (3, 3) about it [kg m²]."""

    mass: float
    centre: np.ndarray
    about_centre: np.ndarray

    def transformed(self, frame: Frame) -> "Inertia":
        """The same inertia, transformed from ``frame`` to the frame in which ``frame`` is defined."""
        R = matrix(frame.u)
        rotated_inertia = R @ self.about_centre @ R.T if np.any(frame.u[1:]) else self.about_centre
        rotated_inertia = np.where(
            np.abs(rotated_inertia) < 1e-15 * np.max(np.abs(rotated_inertia)), 0, rotated_inertia
        )  # rounding of quarter turns
        return Inertia(self.mass, frame.p + rotated(frame.u, self.centre), rotated_inertia)

    def numbers(self) -> np.ndarray:
        """The entries for a ``Body``: three moments, or six entries if there are products of inertia."""
        I = (self.about_centre + self.about_centre.T) / 2
        six = np.array([I[0, 0], I[1, 1], I[2, 2], I[0, 1], I[0, 2], I[1, 2]])
        return six if np.any(six[3:]) else six[:3]


ZERO_INERTIA = Inertia(0.0, np.zeros(3), np.zeros((3, 3)))
