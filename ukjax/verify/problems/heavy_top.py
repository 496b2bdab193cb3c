"""A symmetric top on a fixed point, fast about its axis, in unit quaternions.

Mass m, its centre at distance length along the body's y axis, inertias ``across`` about x and z and ``axial`` about y,
at the centre. Gravity along −z. It starts unturned, its axis level, with the angular velocity (0, spin, precession)
about the body's axes. The values are x, y and z of the centre after 1 s. Parameters: m [kg], length [m], across, axial
[kg m²], spin, precession [rad/s], g [m/s²].
"""

import jax.numpy as jnp

from ..._mechanism import Body, Mechanism
from ...joints import Spherical
from ..base import Derivative, Motion, tolerances


def build(m=15.0, length=1.0, across=0.234375, axial=0.46875, spin=150.0, precession=-4.61538, g=9.81):
    X, Y, Z = jnp.eye(3)
    body = Body(m, length * Y, across * (X + Z) + axial * Y)
    top = Mechanism({"top": body}, {"point": Spherical("ground", "top")}, gravity=-g * Z)
    return top, jnp.array([1.0, 0.0, 0.0, 0.0]), spin * Y + precession * Z


def centre(motion):
    a, b, c, d = motion.q[-1]
    return jnp.stack([2 * (b * c - a * d), a**2 - b**2 + c**2 - d**2, 2 * (c * d + a * b)])


PROBLEM = Motion(
    title="Heavy top, fast about its axis",
    statement=__doc__,
    source="Brüls & Cardona, J. Comput. Nonlinear Dyn. 5 (2010) 031002; Terze, Müller & Zlatar (2016)",
    build=build,
    ts=(0.0, 1.0),
    quantity=centre,
    compared=("x [m]", "y [m]", "z [m]"),
    reference=(0.17334396409838604, 0.6400885920705688, -0.7484907911335813),
    doubt=1e-16,
    evidence="Euler's equations, extrapolated in 34 digits; SciPy agrees to 6e-13",
    settings=tolerances(1e-6, 1e-9, 1e-12),
    derivative=Derivative("m", (0.010430925741561717, 0.08527170190703821, 0.07533770929765764)),
)
