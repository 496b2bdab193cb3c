"""A point of mass m on a massless rod, in Cartesian coordinates (x, y), with the equation of the rod written twice.

It starts at rest at (−length, 0) and falls. The values are x and y after 10 s, about four periods of 2.3678 s.
Parameters: m [kg], length [m], g [m/s²].
"""

from ...systems.pendulum import Pendulum
from ..base import Derivative, Motion, tolerances


def build(m=1.0, length=1.0, g=9.81):
    pendulum = Pendulum(m=m, length=length, g=g)
    return pendulum, *pendulum.start()


PROBLEM = Motion(
    title="IFToMM A01: pendulum in Cartesian coordinates, its rod written twice",
    statement=__doc__,
    source="Gonzalez, Dopico, Lugris & Cuadrado, Multibody Syst. Dyn. 16 (2006) 65",
    build=build,
    ts=(0.0, 10.0),
    quantity=lambda motion: motion.q[-1],
    compared=("x [m]", "y [m]"),
    reference=(-0.2750874625761169, -0.961419205099125),
    doubt=1e-16,
    evidence="Jacobi's elliptic functions, 34 digits; the equation of the angle agrees to 21 digits",
    settings=tolerances(1e-6, 1e-9, 1e-12),
    derivative=Derivative("g", (2.128235525459596, -0.6089444722530448)),
)
