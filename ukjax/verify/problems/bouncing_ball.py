"""A ball of radius R that is dropped from rest at the height h0 and bounces: Newton's restitution e.

The impacts accumulate at 8.1387 s; then the ball rests. The values are the time of the first impact, the heights at 1 s
and at 2.5 s, and the time at which the impacts accumulate. Parameters: h0, R [m], e, g [m/s²].
"""

import jax.numpy as jnp

from ..._constraint import Unilateral
from ..._dynamics import MassForce
from ..._system import System
from ..base import Derivative, Motion, tolerances


def build(h0=1.0, R=0.1, e=0.9, g=9.81):
    fall = MassForce(jnp.eye(1), lambda t, q, v: -g * jnp.ones(1))
    floor = Unilateral(lambda t, q: q[0] - R, e, name="floor")
    return System(fall, floor), h0 * jnp.ones(1), jnp.zeros(1)


def values(motion):
    times = motion.contacts.impact_times
    return jnp.stack([times[0], motion.q[1, 0], motion.q[2, 0], jnp.nanmax(times)])


PROBLEM = Motion(
    title="Bouncing ball: impacts that accumulate",
    statement=__doc__,
    source="Siconos, tutorial BouncingBallED; Acary & Brogliato (2008)",
    build=build,
    ts=(0.0, 1.0, 2.5, 10.0),
    quantity=values,
    compared=("first impact [s]", "height at 1 s [m]", "height at 2.5 s [m]", "accumulation [s]"),
    reference=(0.4283529368781193, 0.6590703904712664, 0.15314289544282972, 8.138705800684267),
    doubt=1e-16,
    evidence="closed form, 34 digits",
    settings=tolerances(1e-6, 1e-9, 1e-12),
    derivative=Derivative("e", (0.0, 2.4021423107743507, 13.123006888795091, 85.67058737562384)),
)
