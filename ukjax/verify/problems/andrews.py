"""Andrews' squeezing mechanism: seven bodies in the plane, seven angles, six equations of three loops, one freedom.

A constant torque mom at the crank squeezes a spring. It starts at rest. The values are the angle beta of the crank at
0.03 s, after two and a half turns, and the joint E of all loops, in cm. Parameters: mom [N m], stiffness c0 [N/m] and
rest length l0 [m] of the spring; the others are those of ``ukjax.systems.AndrewsSqueezer``.
"""

import jax.numpy as jnp

from ...systems.andrews_squeezer import AndrewsSqueezer
from ..base import Motion, tolerances


def build(mom=0.033, c0=4530.0, l0=0.07785):
    squeezer = AndrewsSqueezer(mom=mom, c0=c0, l0=l0)
    return squeezer, *squeezer.start()


def crank_and_joint(motion):
    """E is at the distance ss from B, at right angles to the axis of body 3, whose angle is gamma."""
    beta, gamma = motion.q[-1, 0], motion.q[-1, 2]
    return jnp.stack([beta, -3.635 + 3.5 * jnp.sin(gamma), 3.273 - 3.5 * jnp.cos(gamma)])


PROBLEM = Motion(
    title="IFToMM A03: Andrews' squeezing mechanism",
    statement=__doc__,
    source="IVP test set, Mazzia & Magherini (2008); Hairer & Wanner, Solving ODEs II, section VII.7",
    build=build,
    ts=(0.0, 0.03),
    quantity=crank_and_joint,
    compared=("beta [rad]", "x of E [cm]", "y of E [cm]"),
    reference=(15.810771195153707, -3.4921618395303122, -0.22408410821267433),
    doubt=1e-16,
    evidence="the angle of the crank, the loops as triangles, extrapolated in 34 digits; SciPy agrees to 3e-13",
    settings=tolerances(1e-6, 1e-9, 1e-12),
)
