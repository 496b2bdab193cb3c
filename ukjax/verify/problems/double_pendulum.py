"""Two uniform rods in the plane, pinned to the ground and to each other, with three coordinates for each rod.

They start at rest and level. The values are the angles of both rods from the downward vertical after 5 s.
Parameters: m1, m2 [kg], l1, l2 [m], g [m/s²].
"""

from ...systems.double_pendulum import DoublePendulum
from ..base import Derivative, Motion, tolerances


def build(m1=1.0, m2=0.5, l1=1.0, l2=0.7, g=9.81):
    pendulum = DoublePendulum(m1=m1, m2=m2, l1=l1, l2=l2, g=g)
    return pendulum, *pendulum.start()


PROBLEM = Motion(
    title="Double pendulum of two rods, each a free body with two pins",
    statement=__doc__,
    source="standard problem, with parameters of this library",
    build=build,
    ts=(0.0, 5.0),
    quantity=lambda motion: motion.q[-1, 2::3],
    compared=("theta1 [rad]", "theta2 [rad]"),
    reference=(1.4583766654972659, -0.19946212477132846),
    doubt=1e-16,
    evidence="two angles, extrapolated in 34 digits; SciPy agrees to 3e-12",
    settings=tolerances(1e-6, 1e-9, 1e-12),
    derivative=Derivative("l2", (7.119030537020355, -65.50589937005742)),
)
