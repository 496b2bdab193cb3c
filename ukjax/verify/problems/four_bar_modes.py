"""Forty four-bar linkages in a row, hanging: 41 rockers and 40 couplers, uniform rods of 1 kg and 1 m.

Three coordinates for each rod, x, y and angle: 243 coordinates and 282 equations, of rank 242. The value is the square
of the only natural frequency, ω² = g ((N + 1)/2 + N)/((N + 1)/3 + N). Parameter: g [m/s²].
"""

import jax.numpy as jnp
import numpy as np

from ..._analysis import linearize
from ..._constraint import Holonomic
from ..._dynamics import MassForce
from ..._system import System
from ..base import Analysis, Derivative

N = 40
RODS = 2 * N + 1


def joints(t, q):
    x, y, angle = q.reshape(RODS, 3).T
    half = jnp.stack([jnp.sin(angle), -jnp.cos(angle)], axis=1) / 2
    centre = jnp.stack([x, y], axis=1)
    first, last = centre - half, centre + half
    ground = jnp.stack([jnp.arange(N + 1.0), jnp.zeros(N + 1)], axis=1)
    pinned = first[: N + 1] - ground, last[:N] - first[N + 1 :], last[1 : N + 1] - last[N + 1 :]
    return jnp.concatenate([*(part.ravel() for part in pinned), (last - first)[N + 1 :, 1]])


def build(g=9.81):
    weight = -g * jnp.tile(jnp.array([0.0, 1.0, 0.0]), RODS)
    rockers = np.stack([np.arange(N + 1.0), np.full(N + 1, -0.5), np.zeros(N + 1)], axis=1)
    couplers = np.stack([np.arange(N) + 0.5, np.full(N, -1.0), np.full(N, np.pi / 2)], axis=1)
    q = jnp.asarray(np.concatenate([rockers, couplers]).ravel())
    mass = np.diag(np.tile([1.0, 1.0, 1 / 12], RODS))
    return System(MassForce(mass, weight), Holonomic(joints, name="joint")), q, jnp.zeros(q.size)


PROBLEM = Analysis(
    title="Natural frequency of forty four-bar linkages, redundant constraints",
    statement=__doc__,
    source="IFToMM A02, hanging",
    build=build,
    analyse=lambda system, q, v: jnp.max(linearize(system, q, v, states=("q3", "dq3")).eigenvalues.imag)[None] ** 2,
    compared=("square of the frequency [rad²/s²]",),
    reference=(11.059099378881987,),
    doubt=1e-16,
    evidence="closed form for parallel rockers",
    settings=({},),
    derivative=Derivative("g", (1.1273291925465838,)),
)
