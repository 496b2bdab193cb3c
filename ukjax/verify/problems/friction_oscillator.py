"""A mass on a spring with dry friction, which comes to rest away from the middle: m = k = 1.

m x'' = −k x − f, |f| ≤ friction, f = friction sign(x') while it slides. It starts at 12 m with 6 m/s. The motion is a
chain of half periods about ± friction/k. The values are the position at 10 s, and the position of rest, after 30 s.
Parameters: friction [N], speed [m/s].
"""

import jax.numpy as jnp

from ..._constraint import Coulomb
from ..._dynamics import MassForce
from ..._system import System
from ..base import Derivative, Motion, tolerances


def build(friction=1.0, speed=6.0):
    spring = MassForce(jnp.eye(1), lambda t, q, v: -q)
    return System(spring, Coulomb(lambda t, q, v: v[0], friction)), jnp.array([12.0]), speed * jnp.ones(1)


PROBLEM = Motion(
    title="Oscillator with dry friction that comes to rest",
    statement=__doc__,
    source="Siconos, tutorial OscillatorWithFriction; the numbers are exact here",
    build=build,
    ts=(0.0, 10.0, 30.0),
    quantity=lambda motion: motion.q[1:, 0],
    compared=("x at 10 s [m]", "x at rest [m]"),
    reference=(-7.253501628753118, 0.6821789367236468),
    doubt=1e-16,
    evidence="closed form, 34 digits",
    settings=tolerances(1e-6, 1e-9, 1e-12),
    derivative=Derivative("friction", (6.046157503604676, 14.092040615499549)),
)
