"""How coordinates move: q̇ = N(q) v, where attitudes are quaternions and their velocities the rates of turning.

Three of these for each, rather than the four u̇ with a row |u|² = 1 and a mass along u that makes M regular: both were
measured. A chain of five balls took 0.68 of the time for a step (15 velocities and no rows in place of 20 and 5), a
third of it in a batch of 1024, compiled in a quarter of the time.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._rotation import rates_of_quaternions
from .kinematics import joint_of
from .named import Named
from .tree import Tree


class Turning(eqx.Module):
    """q̇ of a mechanism, of whose coordinates and velocities the quaternions and their rates of turning begin at the
    ``places`` (k, 2)."""

    tree: Tree = eqx.field(static=True)
    places: tuple[tuple[int, int], ...] = eqx.field(static=True)

    def __call__(self, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " nq"]:
        if (q.size, v.size) != (self.tree.nq, self.tree.n):
            raise ValueError(
                f"q and v must have shapes ({self.tree.nq},) and ({self.tree.n},), one entry per coordinate and one "
                f"per velocity, got shapes {q.shape} and {v.shape}"
            )
        of_q, of_v = np.array(self.places).T
        u, omega = of_q[:, None] + np.arange(4), of_v[:, None] + np.arange(3)
        plain, plain_v = np.setdiff1d(np.arange(self.tree.nq), u), np.setdiff1d(np.arange(self.tree.n), omega)
        rates = jnp.concatenate([v[plain_v], rates_of_quaternions(q[u], v[omega]).ravel()])
        return rates[np.argsort(np.concatenate([plain, u.ravel()]))]


def quaternions(joints: Named, tree: Tree) -> tuple[tuple[int, int], ...]:
    """Where the quaternions begin, among coordinates and among velocities."""
    found = []
    for link in tree.links:
        first = joint_of(joints, link).quaternion
        if first is not None:
            found.append((link.first_of_q + first, link.first + first))
    return tuple(found)
