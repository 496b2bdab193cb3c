"""A thin disk that rolls on a plane without slipping, disturbed from a steady circle.

q = (x, y, z, psi, theta, phi): the centre, yaw, tilt of the axle from the vertical, spin. One holonomic and two
nonholonomic constraints. It starts at the tilt and precession of a steady circle, with ``wobble`` in addition. The
values are x, y, psi and theta after 5 s. Parameters: m [kg], r [m], g [m/s²], tilt [rad], precession, wobble [rad/s].
"""

import jax.numpy as jnp

from ...systems.rolling_disk import RollingDisk
from ..base import Derivative, Motion, tolerances


def build(m=1.0, r=0.2, g=9.81, tilt=1.2, precession=1.5, wobble=0.5):
    disk = RollingDisk(m=m, r=r, g=g, tilt=tilt, precession=precession, wobble=wobble)
    return disk, *disk.start()


PROBLEM = Motion(
    title="Rolling disk",
    statement=__doc__,
    source="Neimark & Fufaev, Dynamics of Nonholonomic Systems (1972); parameters of this library",
    build=build,
    ts=(0.0, 5.0),
    quantity=lambda motion: motion.q[-1, jnp.array([0, 1, 3, 4])],
    compared=("x [m]", "y [m]", "psi [rad]", "theta [rad]"),
    reference=(1.0922064367260707, 0.6479732122944063, 7.35583723845495, 1.1917539127245982),
    doubt=1e-16,
    evidence="Newton's and Euler's equations, extrapolated in 34 digits; SciPy agrees to 1e-14",
    settings=tolerances(1e-6, 1e-9, 1e-12),
    derivative=Derivative(
        "wobble", (0.07574492776051808, -0.18783261696262907, -0.30941756072603716, -0.022555103585670425)
    ),
)
