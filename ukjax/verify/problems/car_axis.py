"""An axle between a wheel that stays at the origin and one that runs over a sinusoidal road, as two mass points.

q = (xl, yl, xr, yr), the ends of the car's axle, M eps²/2 each in mass, on springs of rest length L0 and stiffness 1
above the wheels at (0, 0) and (xb, yb), yb = r sin(w t), xb = sqrt(L² − yb²). Gravity 1. Constraints: xb xl + yb yl = 0
and the length L of the axle. The values are q at 3 s. Parameters: eps, M, L, L0, r, w, dimensionless as published.
"""

import jax.numpy as jnp

from ..._constraint import Holonomic
from ..._dynamics import MassForce
from ..._system import System
from ..base import Derivative, Motion, tolerances


def build(eps=0.01, M=10.0, L=1.0, L0=0.5, r=0.1, w=10.0):
    mass = M * eps**2 / 2

    def wheel(t):
        yb = r * jnp.sin(w * t)
        return jnp.stack([jnp.sqrt(L**2 - yb**2), yb])

    def force(t, q, v):
        left, right = q[:2], q[2:] - wheel(t)
        pull = lambda spring: (L0 / jnp.sqrt(spring @ spring) - 1) * spring - mass * jnp.array([0.0, 1.0])
        return jnp.concatenate([pull(left), pull(right)])

    rows = lambda t, q: jnp.stack([wheel(t) @ q[:2], (q[2:] - q[:2]) @ (q[2:] - q[:2]) - L**2])
    q0 = L0 * jnp.array([0.0, 1.0, 0.0, 1.0]) + L * jnp.array([0.0, 0.0, 1.0, 0.0])
    v0 = -L0 * r * w / L * jnp.array([1.0, 0.0, 1.0, 0.0])
    return System(MassForce(mass * jnp.eye(4), force), Holonomic(rows, name=("left", "axle"))), q0, v0


PROBLEM = Motion(
    title="Car axis: a small mass on a road that moves",
    statement=__doc__,
    source="IVP test set, Mazzia & Magherini (2008); Schneider (1999)",
    build=build,
    ts=(0.0, 3.0),
    quantity=lambda motion: motion.q[-1],
    compared=("xl", "yl", "xr", "yr"),
    reference=(0.049345578427524094, 0.4969894602300081, 1.0417425248854262, 0.3739110272653658),
    doubt=1e-16,
    evidence="two coordinates, extrapolated in 34 digits; SciPy agrees to 1e-14",
    settings=tolerances(1e-6, 1e-9, 1e-12),
    derivative=Derivative("r", (0.49394285879253047, -0.04408909836830699, 0.3407287022775768, -1.2794741891359438)),
)
