"""A thin disk that rolls on a plane along a steady circle.

As ``rolling_disk``, without the disturbance. The tilt is constant, the yaw grows with ``precession``, and the centre
moves along a circle. The values are x, y, psi and theta after 5 s. Parameters: m [kg], r [m], g [m/s²], tilt [rad],
precession [rad/s].
"""

import jax.numpy as jnp

from ...systems.rolling_disk import RollingDisk
from ..base import Derivative, Motion, tolerances


def build(m=1.0, r=0.2, g=9.81, tilt=1.2, precession=1.5):
    disk = RollingDisk(m=m, r=r, g=g, tilt=tilt, precession=precession, wobble=0.0)
    return disk, *disk.start()


PROBLEM = Motion(
    title="Rolling disk on a steady circle",
    statement=__doc__,
    source="Neimark & Fufaev, Dynamics of Nonholonomic Systems (1972)",
    build=build,
    ts=(0.0, 5.0),
    quantity=lambda motion: motion.q[-1, jnp.array([0, 1, 3, 4])],
    compared=("x [m]", "y [m]", "psi [rad]", "theta [rad]"),
    reference=(1.0486596077472976, 0.73044474230259, 7.5, 1.2),
    doubt=1e-16,
    evidence="closed form, 34 digits",
    settings=tolerances(1e-6, 1e-9, 1e-12),
    derivative=Derivative("precession", (0.5243273021054181, 4.258849415262649, 5.0, 0.0)),
)
