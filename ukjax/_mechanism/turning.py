"""How coordinates move: q̇ = N(q) v, where attitudes are quaternions and their velocities the rates of turning.

Three of these for each, rather than the four u̇ with a row |u|² = 1 and a mass along u that makes M regular: both were
measured. A chain of five balls took 0.68 of the time for a step (15 velocities and no rows in place of 20 and 5), a
third of it in a batch of 1024, compiled in a quarter of the time.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._kinematic_map import AbstractSettlingMap
from .._rotation import rates_of_quaternions
from .elements import JointCoordinates
from .kinematics import joint_of
from .named import Named
from .tree import Tree


class QuaternionMap(AbstractSettlingMap):
    """q̇ of a mechanism, of whose coordinates and velocities the quaternions and their rates of turning begin at the
    ``places`` (k, 2).

    ``counted`` are the coordinates, at the end of q, of joints that close loops and whose turns are counted: their
    rates are those that the bodies have. None where there are none.
    """

    tree: Tree = eqx.field(static=True)
    places: tuple[tuple[int, int], ...] = eqx.field(static=True)
    counted: JointCoordinates | None = None

    def __call__(self, q: Float[Array, " nq"], v: Float[Array, " n"]) -> Float[Array, " nq"]:
        if (q.size, v.size) != (self.tree.nq, self.tree.n):
            raise ValueError(
                f"q and v must have shapes ({self.tree.nq},) and ({self.tree.n},), one entry per coordinate and one "
                f"per velocity, got shapes {q.shape} and {v.shape}"
            )
        rates, counted = self._link_rates(q, v), self.counted
        if counted is None:
            return rates
        along = jnp.concatenate([rates, jnp.zeros(q.size - rates.size, q.dtype)])
        return jnp.concatenate([rates, jax.jvp(lambda q: counted(jnp.zeros((), q.dtype), q), (q,), (along,))[1]])

    def settled(self, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
        """q whose counted coordinates, which the integration of their rates leaves near to where the bodies are, are
        exactly there."""
        if self.counted is None:
            return q
        return q.at[self.tree.counted[0].first_of_q :].set(self.counted(jnp.zeros((), q.dtype), q))

    def _link_rates(self, q, v):
        if not self.places:
            return v
        of_q, of_v = np.array(self.places).T
        u, omega = of_q[:, None] + np.arange(4), of_v[:, None] + np.arange(3)
        plain, plain_v = np.setdiff1d(np.arange(_end(self.tree)), u), np.setdiff1d(np.arange(self.tree.n), omega)
        rates = jnp.concatenate([v[plain_v], rates_of_quaternions(q[u], v[omega]).ravel()])
        return rates[np.argsort(np.concatenate([plain, u.ravel()]))]


def kinematic_map_of(joints: Named, tree: Tree) -> QuaternionMap | None:
    """q̇ = N(q) v of a mechanism; None where v is q̇."""
    places = quaternions(joints, tree)
    counted = tuple(joint.joint for joint in tree.counted)
    if not counted:
        return QuaternionMap(tree, places) if places else None
    return QuaternionMap(tree, places, JointCoordinates(joints, tree, counted))


def _end(tree):
    """How many coordinates the links have."""
    return tree.links[-1].coordinates.stop


def quaternions(joints: Named, tree: Tree) -> tuple[tuple[int, int], ...]:
    """Where the quaternions begin, among coordinates and among velocities."""
    found = []
    for link in tree.links:
        first = joint_of(joints, link).quaternion
        if first is not None:
            found.append((link.first_of_q + first, link.first + first))
    return tuple(found)
