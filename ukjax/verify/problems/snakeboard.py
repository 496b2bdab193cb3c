"""A snakeboard that coasts: a board and two wheel trucks, each of mass m and inertia I, on steering axes at ± l/2.

q = (x, y, theta, front, back): the middle of the board, its heading, and the angles of the trucks relative to it. The
trucks turn freely; their wheels do not slip sideways: two nonholonomic constraints. It starts along x with ``speed``,
front = 5 degrees and back = −5 degrees, and the truck rates ``first`` and −``first``. The values are q after 8 s.
Parameters: m [kg], I [kg m²], l [m], speed [m/s], first [rad/s].
"""

import jax.numpy as jnp
import numpy as np

from ..._constraint import Nonholonomic
from ..._dynamics import Lagrangian
from ..._system import System
from ..base import Derivative, Motion, tolerances

STEER = np.deg2rad(5.0)


def build(m=1.0, I=0.1, l=0.7, speed=0.1, first=0.01):
    def kinetic(t, q, v):
        truck = (v[2] + v[3]) ** 2 + (v[2] + v[4]) ** 2
        return (3 * m * (v[0] ** 2 + v[1] ** 2) + m * l**2 / 2 * v[2] ** 2 + I * (v[2] ** 2 + truck)) / 2

    def sideways(t, q, v):
        """Velocity of each truck across its wheels."""
        angles, ends = q[2] + q[3:], jnp.stack([l / 2 * v[2], -l / 2 * v[2]])
        at = v[:2, None] + ends * jnp.stack([-jnp.sin(q[2]), jnp.cos(q[2])])[:, None]
        return -jnp.sin(angles) * at[0] + jnp.cos(angles) * at[1]

    system = System(
        Lagrangian(kinetic, lambda t, q: 0.0 * q[0]), Nonholonomic(sideways, name=("front wheels", "back wheels"))
    )
    turning = 2 * jnp.tan(STEER) * speed / l
    v0 = jnp.stack([speed + 0 * turning, 0 * turning, turning, first + 0 * turning, -first + 0 * turning])
    return system, jnp.array([0.0, 0.0, 0.0, STEER, -STEER]), v0


PROBLEM = Motion(
    title="Snakeboard",
    statement=__doc__,
    source="Ostrowski, Lewis, Murray & Burdick (1994); parameters of Moore, Learn Multibody Dynamics (2023)",
    build=build,
    ts=(0.0, 8.0),
    quantity=lambda motion: motion.q[-1],
    compared=("x [m]", "y [m]", "theta [rad]", "front [rad]", "back [rad]"),
    reference=(0.7913530381362212, 0.07871915764633654, 0.2915188371668155, 0.07572171349215584, -0.2588112117072771),
    doubt=1e-16,
    evidence="three independent speeds, extrapolated in 34 digits; SciPy agrees to 8e-15",
    settings=tolerances(1e-6, 1e-9, 1e-12),
    derivative=Derivative(
        "speed", (7.809427869151621, 1.5691614506125824, 2.9209868336253053, -0.9212459530327566, -0.9212459530327566)
    ),
)
