"""A bead on a hoop that turns about its vertical diameter at a prescribed rate, in Cartesian coordinates (x, y, z).

Two constraints: the distance from the centre, and the plane of the hoop, x sin(turn t) − y cos(turn t) = 0. The bead
starts at rest relative to the hoop, 1 rad from the downward vertical. The values are x, y and z after 5 s.
Parameters: radius [m], turn [rad/s], g [m/s²].
"""

import jax.numpy as jnp

from ..._constraint import Holonomic
from ..._dynamics import MassForce
from ..._system import System
from ..base import Derivative, Motion, tolerances


def build(radius=0.5, turn=6.0, g=9.81):
    weight = -g * jnp.array([0.0, 0.0, 1.0])
    hoop = Holonomic(
        lambda t, q: jnp.stack([q @ q - radius**2, q[0] * jnp.sin(turn * t) - q[1] * jnp.cos(turn * t)]),
        name=("radius", "plane"),
    )
    out, down = radius * jnp.sin(1.0), radius * jnp.cos(1.0)
    q0 = jnp.array([1.0, 0.0, 0.0]) * out - jnp.array([0.0, 0.0, 1.0]) * down
    return System(MassForce(jnp.eye(3), weight), hoop), q0, turn * out * jnp.array([0.0, 1.0, 0.0])


PROBLEM = Motion(
    title="Bead on a turning hoop: constraints that depend on time",
    statement=__doc__,
    source="standard problem, with parameters of this library",
    build=build,
    ts=(0.0, 5.0),
    quantity=lambda motion: motion.q[-1],
    compared=("x [m]", "y [m]", "z [m]"),
    reference=(0.06489901335988968, -0.4156996749056648, -0.2701516210357389),
    doubt=1e-16,
    evidence="one angle, extrapolated in 34 digits; SciPy agrees to 5e-15",
    settings=tolerances(1e-6, 1e-9, 1e-12),
    derivative=Derivative("turn", (2.078463964982621, 0.32471547133599954, -0.00034741690388149517)),
)
