"""A puck on an inclined table without friction, attracted by a fixed point of the table as by a planet.

Three Cartesian coordinates, force −mu q/|q|³ − weight n per unit mass, and one constraint n·q = 0; n is the normal of
the table, inclined by ``incline`` about x. The puck starts at its smallest distance 1 − e from the point, at right
angles to it, on an ellipse of semi-axis 1 m and eccentricity e. The constraint carries the weight. The values are x, y
and z after 20 s. Parameters: mu [m³/s²], e, weight [m/s²], incline [rad].
"""

import jax.numpy as jnp

from ..._constraint import Holonomic
from ..._dynamics import MassForce
from ..._system import System
from ..base import Derivative, Motion, tolerances


def build(mu=1.0, e=0.6, weight=2.0, incline=0.5):
    c, s = jnp.cos(incline), jnp.sin(incline)
    normal, across = jnp.stack([0 * c, -s, c]), jnp.stack([0 * c, c, s])
    force = lambda t, q, v: -mu * q / jnp.sqrt(q @ q) ** 3 - weight * normal
    table = Holonomic(lambda t, q: normal @ q, name="table")
    q0 = (1 - e) * jnp.array([1.0, 0.0, 0.0])
    return System(MassForce(jnp.eye(3), force), table), q0, jnp.sqrt(mu * (1 + e) / (1 - e)) * across


PROBLEM = Motion(
    title="Kepler's ellipse on an inclined table",
    statement=__doc__,
    source="Kepler's equation; parameters of this library",
    build=build,
    ts=(0.0, 20.0),
    quantity=lambda motion: motion.q[-1],
    compared=("x [m]", "y [m]", "z [m]"),
    reference=(-0.7700755784112404, 0.691837664150964, 0.3779526384933838),
    doubt=1e-16,
    evidence="closed form by Kepler's equation, 34 digits",
    settings=tolerances(1e-6, 1e-9, 1e-12),
    derivative=Derivative("mu", (-8.941837319886915, -1.0834789128566964, -0.5919072277868566)),
)
