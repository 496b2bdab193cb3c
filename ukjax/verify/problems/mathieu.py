"""Four pendulums with moving pivots: boundaries of stability of Mathieu's equation x'' + (a − 2 q cos 2t) x = 0.

Points of unit mass on rods of 1 m, in Cartesian coordinates, below pivots at the height (q/2) cos 2t; gravity is a, a
different one for each, and upwards for a < 0. Each hangs; the monodromy matrix of its deviations over the time pi has
the trace 2 or −2 if a is on a boundary. The values are the traces at the boundaries a0, b1, a1 and b2 for q = 1.
Parameter: amplitude q.
"""

import jax
import jax.numpy as jnp
import numpy as np

from ..._constraint import Holonomic
from ..._dynamics import MassForce
from ..._motion.simulate.simulate import simulate
from ..._system import System
from ..base import Analysis, tolerances

BOUNDARIES = np.array([-0.45513860410741, -0.11024881699210, 1.85910807251436, 3.91702477299847])


def build(amplitude=1.0):
    def rods(t, q):
        x, y = q.reshape(4, 2).T
        return x**2 + (y - amplitude / 2 * jnp.cos(2 * t)) ** 2 - 1.0

    weights = np.outer(BOUNDARIES, [0.0, -1.0]).ravel()
    q0 = jnp.tile(jnp.stack([0 * amplitude, amplitude / 2 - 1.0]), 4)
    return System(MassForce(np.eye(8), weights), Holonomic(rods, name="rod")), q0, jnp.zeros(8)


def traces(system, q0, v0, **setting):
    """The traces of the monodromy matrices, by derivatives of the motion with respect to angles and rates."""
    across = jnp.tile(jnp.array([1.0, 0.0]), 4)

    def after(start):
        angle, rate = start
        arm = 1.0 - jnp.cos(angle)
        q = q0 + jnp.sin(angle) * across + jnp.tile(jnp.stack([0 * arm, arm]), 4)
        v = v0 + rate * jnp.tile(jnp.stack([jnp.cos(angle), jnp.sin(angle)]), 4)
        motion = simulate(system, q, v, jnp.array([0.0, jnp.pi]), **setting)
        return jnp.stack([motion.q[-1, ::2], motion.v[-1, ::2]])

    slopes = jax.jacfwd(after)(jnp.zeros(2))
    return slopes[0, :, 0] + slopes[1, :, 1]


PROBLEM = Analysis(
    title="Boundaries of Mathieu's equation, by pendulums with moving pivots",
    statement=__doc__,
    source="Abramowitz & Stegun, Handbook of Mathematical Functions (1964), table 20.1",
    build=build,
    analyse=traces,
    compared=("trace at a0", "trace at b1", "trace at a1", "trace at b2"),
    reference=(2.0, -2.0, -2.0, 2.0),
    doubt=3e-14,
    evidence="boundaries by the eigenvalues of the infinite tridiagonal matrix, 30 digits",
    settings=tolerances(1e-6, 1e-9, 1e-12),
    passes=1e-9,
)
