"""Two equal rockers and a coupler, uniform rods of 1 kg, with three angles and the two equations of the loop.

The parallelogram starts upright with a speed of 1 m/s at B0, the end of the first rocker, and turns over. It lies flat
twice in a turn: there both rows are dependent. The rockers stay parallel. The values are x and y of B0 after 10 s.
Parameters: length l [m], g [m/s²], speed [m/s].
"""

import jax.numpy as jnp

from ...systems.four_bar import FourBar
from ..base import Derivative, Motion


def build(l=1.0, g=9.81, speed=1.0):
    linkage = FourBar(l=l, g=g, speed=speed)
    return linkage, *linkage.start()


PROBLEM = Motion(
    title="IFToMM A02 with one window: four-bar linkage through its singular poses",
    statement=__doc__,
    source="Gonzalez, Dopico, Lugris & Cuadrado, Multibody Syst. Dyn. 16 (2006) 65",
    build=build,
    ts=(0.0, 10.0),
    quantity=lambda motion: jnp.stack([jnp.sin(motion.q[-1, 0]), jnp.cos(motion.q[-1, 0])]),
    compared=("x of B0 [m]", "y of B0 [m]"),
    reference=(0.47838505776097057, 0.8781501787912093),
    doubt=1e-16,
    evidence="Jacobi's elliptic functions, 34 digits; the equation of the angle agrees to 21 digits",
    settings=({"dt": 0.02}, {"dt": 0.01}, {"dt": 0.005}, {"dt": 0.0025}),
    derivative=Derivative("speed", (5.564637910807554, -3.0314172822294556)),
)
