"""Twenty points on the unit sphere that repel each other come to rest at Fekete points, with damping.

The force on point i is Σ (p_i − p_j)/|p_i − p_j|² − damping v_i; all masses are 1. Sixty Cartesian coordinates and
twenty constraints |p_i| = 1. The points start at rest in four rings with 3, 7, 6 and 4 points, at the latitudes 3π/8,
π/8, −2π/15 and −3π/10. The values are the places of the first and of the last point after 1000 s. Parameter: damping
[1/s].
"""

import jax.numpy as jnp
import numpy as np

from ..._constraint import Holonomic
from ..._dynamics import MassForce
from ..._system import System
from ..base import Motion, tolerances

RINGS = ((3, 3 / 8, 1 / 13, 1), (7, 1 / 8, 1 / 29, 1), (6, -2 / 15, 1 / 7, 1), (4, -3 / 10, 1 / 17, 0))
"""Number of points, latitude and longitude of the first one in units of π, and how many places later it begins."""


def start():
    places = []
    for number, latitude, turn, first in RINGS:
        angles = 2 * np.pi * (np.arange(number) + first) / number + np.pi * turn
        out, up = np.cos(np.pi * latitude), np.sin(np.pi * latitude)
        places.append(np.stack([out * np.cos(angles), out * np.sin(angles), np.full(number, up)], axis=1))
    return np.concatenate(places).ravel()


def build(damping=0.5):
    def force(t, q, v):
        p = q.reshape(20, 3)
        apart = p[:, None] - p[None]
        square = jnp.sum(apart**2, axis=2) + jnp.eye(20)
        return jnp.sum(apart / square[..., None], axis=1).ravel() - damping * v

    sphere = Holonomic(lambda t, q: jnp.sum(q.reshape(20, 3) ** 2, axis=1) - 1, name="sphere")
    return System(MassForce(np.eye(60), force), sphere), start(), np.zeros(60)


PROBLEM = Motion(
    title="Twenty points on a sphere come to rest at Fekete points",
    statement=__doc__,
    source="Bendtsen & Thomsen (1999); IVP test set, fekete",
    build=build,
    ts=(0.0, 1000.0),
    quantity=lambda motion: jnp.concatenate([motion.q[-1, :3], motion.q[-1, 57:]]),
    compared=("x of the first", "y", "z", "x of the last", "y of the last", "z of the last"),
    reference=(
        -0.4070263380331588,
        0.3463758772817672,
        0.8451942450020605,
        0.2414481766967785,
        -0.34164568183983357,
        -0.9082846503437106,
    ),
    doubt=1e-13,
    evidence="DOP853 of SciPy at two tolerances, which agree to 4e-14; the published digits to 3e-12",
    settings=tolerances(1e-6, 1e-9, 1e-12),
)
