"""Chaplygin's sleigh: a plate on ice with a knife edge at the distance a behind its centre of mass.

q = (x, y, theta), the centre of mass and the heading. It starts with the edge at rest, turning about it, and ends up
gliding straight. The values are x, y and theta after 5 s. Parameters: m [kg], J [kg m²], a [m], turn [rad/s].
"""

from ...systems.chaplygin_sleigh import ChaplyginSleigh
from ..base import Derivative, Motion, tolerances


def build(m=1.0, J=0.5, a=0.3, turn=1.0):
    sleigh = ChaplyginSleigh(m=m, J=J, a=a, turn=turn)
    return sleigh, *sleigh.start()


PROBLEM = Motion(
    title="Chaplygin's sleigh",
    statement=__doc__,
    source="Chaplygin (1911); Neimark & Fufaev, Dynamics of Nonholonomic Systems (1972)",
    build=build,
    ts=(0.0, 5.0),
    quantity=lambda motion: motion.q[-1],
    compared=("x [m]", "y [m]", "theta [rad]"),
    reference=(-2.093425045734017, 1.1462211312077697, 3.3001642583130453),
    doubt=1e-16,
    evidence="two velocities along and across the edge, extrapolated in 34 digits; SciPy agrees to 7e-15",
    settings=tolerances(1e-6, 1e-9, 1e-12),
    derivative=Derivative("a", (-2.5316787448956304, 9.90086839154933, -5.393901721999297)),
)
