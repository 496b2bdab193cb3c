"""A coin that turns about the vertical, leaning by one degree, and rolls without slipping.

A disk of 1 cm in the coordinates of ``rolling_disk``. It starts with its centre at rest and the angular velocity
``turn`` about the vertical. The values are the displacement of the contact point after 0.5 s, along the level direction
in the plane of the coin at the start, and across it. Parameters: m [kg], r [m], g [m/s²], lean [rad], turn [rad/s].
"""

import jax.numpy as jnp
import numpy as np

from ...systems.rolling_disk import RollingDisk
from ..base import Derivative, Motion, tolerances


def build(m=1.0, r=0.01, g=9.81, lean=np.pi / 180, turn=10 * np.pi):
    zero = 0 * jnp.asarray(lean)
    tilt = jnp.pi / 2 - lean
    q0 = jnp.stack([zero, zero, r * jnp.sin(tilt), zero, tilt, zero])
    axial = turn * jnp.cos(tilt)
    v0 = jnp.stack([-r * axial, zero, zero, turn + zero, zero, zero])
    return RollingDisk(m=m, r=r, g=g), q0, v0


def displacement(motion):
    def contact(q):
        out = 0.01 * jnp.cos(q[4])
        return q[:2] + out * jnp.stack([jnp.sin(q[3]), -jnp.cos(q[3])])

    return contact(motion.q[-1]) - contact(motion.q[0])


PROBLEM = Motion(
    title="Rolling coin that leans by one degree",
    statement=__doc__,
    source="Rill & Chucholowski, in the tests of Exudyn, rollingCoinTest",
    build=build,
    ts=(0.0, 0.5),
    quantity=displacement,
    compared=("along [m]", "across [m]"),
    reference=(-0.002596923103602372, 0.0020049470207619915),
    doubt=1e-16,
    evidence="Newton's and Euler's equations, extrapolated in 34 digits; SciPy agrees to 5e-13",
    settings=tolerances(1e-6, 1e-9, 1e-12, size=0.01),
    derivative=Derivative("turn", (-0.0010821359656682412, -0.00016512716381861294)),
)
