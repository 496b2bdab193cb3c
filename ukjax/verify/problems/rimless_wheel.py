"""A wheel of eight spokes without a rim rolls down a slope from spoke to spoke, without rebound or slip.

Coordinates: hub x and y along and across the slope, and the angle of the wheel; unit mass, spokes of 1 m, g = 1 m/s².
The angular momentum about the next spoke is conserved in an impact, so that the speed changes by the factor
r = (inertia + cos 45°)/(inertia + 1), and the multiplier of the gait is r². The values are the turning speed after an
impact in the periodic gait, and this multiplier. Parameters: inertia about the hub [kg m²], slope [rad].
"""

import jax
import jax.numpy as jnp
import numpy as np

from ..._analysis import periodic
from ..._constraint import Unilateral
from ..._dynamics import MassForce
from ..._system import System
from ..base import Analysis

ANGLES = np.pi / 4 * np.arange(3)
BEGIN = -0.2
"""Angle of the standing spoke at the start, between two impacts [rad]."""


STEPS = 64
"""Steps of the Runge–Kutta method in a period."""


def build(inertia=0.1, slope=0.08):
    tip = lambda q: q[0] + jnp.sin(q[2] + ANGLES)
    height = lambda t, q: q[1] - jnp.cos(q[2] + ANGLES)
    slip = lambda t, q, v: jax.jvp(tip, (q,), (v,))[1]
    spokes = Unilateral(height, friction=3.0, slip=slip, name="spoke")
    weight = jnp.stack([jnp.sin(slope), -jnp.cos(slope), 0.0])
    q0 = np.array([-np.sin(BEGIN), np.cos(BEGIN), BEGIN])
    v0 = 0.3 * np.array([np.cos(BEGIN), np.sin(BEGIN), -1.0])
    mass = jnp.diag(jnp.stack([1.0, 1.0, jnp.asarray(inertia)]))
    return System(MassForce(mass, lambda t, q, v: weight), spokes), q0, v0


def values(system, q, v):
    advance = {"q1": 2 * np.sin(np.pi / 8), "q3": -np.pi / 4}
    orbit = periodic(system, q, v, 2.8, advance=advance, hold=("q1", "q3"), steps=STEPS)
    M, force = (getattr(system(0.0, orbit.q, orbit.v), name) for name in ("M", "Q"))
    height = lambda angle: force[0] * jnp.sin(angle) - force[1] * jnp.cos(angle)
    square = orbit.v[2] ** 2 - 2 * (height(np.pi / 8) - height(BEGIN)) / (1 + M[2, 2])
    return jnp.stack([jnp.sqrt(square), jnp.min(jnp.abs(orbit.multipliers))])


PROBLEM = Analysis(
    title="Rimless wheel: gait with impacts and its multiplier",
    statement=__doc__,
    source="McGeer, Int. J. Robotics Research 9(2) (1990) 62",
    build=build,
    analyse=values,
    compared=("speed after an impact [rad/s]", "multiplier"),
    reference=(0.36012696111917034, 0.538364757220917),
    doubt=1e-16,
    evidence="closed form, 34 digits; without inertia it gives the published 0.3497543674325097, and 1/2",
    settings=({},),
)
