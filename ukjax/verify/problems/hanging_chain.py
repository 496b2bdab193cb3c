"""Five beads of 1 kg that hang on massless rods of length l, in Cartesian coordinates, with a constraint for each rod.

The values are the squares of the five natural frequencies about the equilibrium: g/l times the zeros of the Laguerre
polynomial of degree five. Parameters: g [m/s²], l [m].
"""

import jax.numpy as jnp

from ..._analysis import linearize
from ..._constraint import Holonomic
from ..._dynamics import MassForce
from ..._system import System
from ..base import Analysis, Derivative

BEADS = 5
STATES = tuple(f"{rate}q{2 * i + 1}" for rate in ("", "d") for i in range(BEADS))


def build(g=9.81, l=1.0):
    def rods(t, q):
        points = jnp.concatenate([jnp.zeros((1, 2)), q.reshape(BEADS, 2)])
        return jnp.sum(jnp.diff(points, axis=0) ** 2, axis=1) - l**2

    weight = -g * jnp.tile(jnp.array([0.0, 1.0]), BEADS)
    hanging = -l * jnp.stack([jnp.zeros(BEADS), jnp.arange(1.0, BEADS + 1)], axis=1).ravel()
    return System(MassForce(jnp.eye(2 * BEADS), weight), Holonomic(rods, name="rod")), hanging, jnp.zeros(2 * BEADS)


def squares(system, q, v):
    eigenvalues = linearize(system, q, v, states=STATES).eigenvalues
    return jnp.sort(jnp.abs(eigenvalues))[::2] ** 2


PROBLEM = Analysis(
    title="Natural frequencies of a hanging chain",
    statement=__doc__,
    source="D. Bernoulli (1733); Szegő, Orthogonal Polynomials (1939)",
    build=build,
    analyse=squares,
    compared=tuple(f"square of frequency {i + 1} [rad²/s²]" for i in range(BEADS)),
    reference=(2.585526736434962, 13.86548400983493, 35.280936813909484, 69.5117961574752, 124.00625628234543),
    doubt=1e-16,
    evidence="zeros of the Laguerre polynomial, 34 digits",
    settings=({},),
    derivative=Derivative(
        "l", (-2.585526736434962, -13.86548400983493, -35.280936813909484, -69.5117961574752, -124.00625628234543)
    ),
)
