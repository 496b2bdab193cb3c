"""Loss functions ρ of least squares, with the names of SciPy."""

import numpy as np

LOSS_DERIVATIVES = {
    "linear": lambda z: np.ones_like(z),
    "soft_l1": lambda z: (1 + z) ** -0.5,
    "huber": lambda z: np.minimum(1.0, np.maximum(z, 1e-300) ** -0.5),
    "cauchy": lambda z: 1 / (1 + z),
    "arctan": lambda z: 1 / (1 + z**2),
}
"""Derivative ρ'(z) of each loss, z = r², as defined by SciPy's ``least_squares``."""
