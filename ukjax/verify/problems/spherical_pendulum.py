"""A point of unit mass on a rod, in Cartesian coordinates (x, y, z), z upwards; the rod is the only constraint.

It starts at 60 degrees from the downward vertical, in the plane of x and z, with a horizontal velocity along y.
The values are x, y and z after 10 s. Parameters: length [m], speed [m/s], g [m/s²].
"""

import jax.numpy as jnp

from ..._constraint import Holonomic
from ..._dynamics import MassForce
from ..._system import System
from ..base import Derivative, Motion, tolerances


def build(length=1.0, speed=2.0, g=9.81):
    weight = -g * jnp.array([0.0, 0.0, 1.0])
    rod = Holonomic(lambda t, q: q @ q - length**2, name="rod")
    q0 = length * jnp.array([jnp.sqrt(3.0) / 2, 0.0, -0.5])
    return System(MassForce(jnp.eye(3), weight), rod), q0, speed * jnp.array([0.0, 1.0, 0.0])


PROBLEM = Motion(
    title="Spherical pendulum in Cartesian coordinates",
    statement=__doc__,
    source="Whittaker, Analytical Dynamics (1937), section 55; parameters of this library",
    build=build,
    ts=(0.0, 10.0),
    quantity=lambda motion: motion.q[-1],
    compared=("x [m]", "y [m]", "z [m]"),
    reference=(0.04578256339846101, -0.7377486044706622, -0.6735213088613132),
    doubt=1e-16,
    evidence="two angles, extrapolated in 34 digits; SciPy agrees to 9e-13",
    settings=tolerances(1e-6, 1e-9, 1e-12),
    derivative=Derivative("speed", (2.9652148888346876, 0.10207555964807791, 0.08975074160519327)),
)
