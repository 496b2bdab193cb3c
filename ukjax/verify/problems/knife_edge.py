"""A skate on an inclined plane that turns at a constant rate: its edge lets it move along, not across.

q = (x, y, theta), x downhill. It starts at the origin with its spin alone. On average it moves sideways, not downhill.
The values are x and y after 3 s: x = k sin²(spin t), y = k (spin t − sin(2 spin t)/2), k = g sin(slope)/(2 spin²).
Parameters: m [kg], J [kg m²], g [m/s²], slope [rad], spin [rad/s].
"""

import numpy as np

from ...systems.knife_edge import KnifeEdge
from ..base import Derivative, Motion, tolerances


def build(m=1.0, J=0.3, g=9.81, slope=np.pi / 6, spin=2.0):
    skate = KnifeEdge(m=m, J=J, g=g, slope=slope, spin=spin)
    return skate, *skate.start()


PROBLEM = Motion(
    title="Knife edge on an inclined plane",
    statement=__doc__,
    source="Bloch, Nonholonomic Mechanics and Control (2003), section 1.6",
    build=build,
    ts=(0.0, 3.0),
    quantity=lambda motion: motion.q[-1, :2],
    compared=("x [m]", "y [m]"),
    reference=(0.047868520776070386, 3.8432431351745078),
    doubt=1e-16,
    evidence="closed form, 34 digits",
    settings=tolerances(1e-6, 1e-9, 1e-12),
    derivative=Derivative("spin", (-1.0348273318231203, -3.5560320105180856)),
)
