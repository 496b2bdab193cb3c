"""Bodies that all float, and joints between them: what many have alike is computed once for all of them.

A mechanism in absolute coordinates has a place and a quaternion for each body. So what is traced and compiled does not
grow with the number of bodies, and every block of M and A is found by itself.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._constraint import AbstractConstraint, Level, Rows
from .._rotation import of_quaternion
from ..joints import AbstractConnection, AbstractJoint
from .kinematics import Pose
from .named import Named
from .tree import Tree

SIZE = 7
"""Coordinates of a body: (x, y, z, qw, qx, qy, qz)."""
STILL = np.array([0.0, 0, 0, 1, 0, 0, 0])
"""Those of the ground."""


class Alike(NamedTuple):
    """Joints that differ in nothing but numbers, stacked, and in whom they join: ``ends`` (k, 2), which bodies, the
    ground being the last; ``rows`` (k, r), which rows of all are theirs."""

    joints: AbstractConnection
    ends: np.ndarray
    rows: np.ndarray

    def of_both(self, x: Float[Array, "bodies 7"]) -> Float[Array, "k 14"]:
        """What ``x`` has for the bodies that they join."""
        return x[self.ends].reshape(-1, 2 * SIZE)


class FloatingJoints(AbstractConstraint):
    """φ(t, q): the gaps of the joints ``among`` the others that have rows, each of its own two bodies."""

    joints: Named
    tree: Tree = eqx.field(static=True)
    among: tuple[str, ...] = eqx.field(static=True)
    name: tuple[str, ...] = eqx.field(static=True)
    level: ClassVar[Level] = "position"

    def rows(self, t: Array, q: Float[Array, " n"], v: Float[Array, " n"]) -> tuple[Array, Array]:
        return self.at(t, q, v)[2:]

    def at(self, t: Array, q: Float[Array, " n"], v: Float[Array, " n"]) -> Rows:
        one = jnp.ones_like(t)

        def each(joint, q, v):
            gap = lambda t, q: _gap(joint, t, q)
            along = lambda t, q: jax.jvp(gap, (t, q), (one, v))
            (phi, rate), (_, bias) = jax.jvp(along, (t, q), (one, v))
            return phi, rate, -bias, jax.jacfwd(gap, argnums=1)(t, q)

        groups, places, rates = self._groups(), _of_bodies(q, STILL), _of_bodies(v, 0 * STILL)
        A, found = jnp.zeros((len(self.name), q.size + SIZE), q.dtype), []  # the last columns are the ground's
        for group in groups:
            *vectors, blocks = eqx.filter_vmap(each)(group.joints, group.of_both(places), group.of_both(rates))
            columns = (SIZE * group.ends[:, :, None] + np.arange(SIZE)).reshape(len(group.ends), 1, 2 * SIZE)
            A = A.at[group.rows[:, :, None], columns].set(blocks)
            found.append(vectors)
        phi, rate, b = (_in_order(groups, parts) for parts in zip(*found, strict=True))
        return Rows(phi, rate, A[:, : q.size], b)

    def position(self, t: Array, q: Float[Array, " n"]) -> Float[Array, " m"]:
        groups, places = self._groups(), _of_bodies(q, STILL)
        gaps = eqx.filter_vmap(lambda joint, q: _gap(joint, t, q))
        return _in_order(groups, [gaps(group.joints, group.of_both(places)) for group in groups])

    def velocity(self, t: Array, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, " m"]:
        return jax.jvp(self.position, (t, q), (jnp.ones_like(t), v))[1]

    def _groups(self) -> list[Alike]:
        bodies = {link.body: i for i, link in enumerate(self.tree.links)}
        alike: dict[Any, list[Any]] = {}
        first = 0
        for name in self.among:
            joint = self.joints[name]
            ends = [bodies.get(end, len(bodies)) for end in (joint.parent, joint.child)]
            rows = range(first, first + len(joint.rows))
            first = rows.stop
            record = {"limits": None} if isinstance(joint, AbstractJoint) else {}  # of which no row knows
            leaves, structure = jax.tree.flatten(replace(joint, parent="", child="", **record))
            # Functions, such as that of a surface, are alike if they are the same.
            kind = (structure, *(x.shape if eqx.is_array(x) else id(x) for x in leaves))
            alike.setdefault(kind, []).append((leaves, ends, rows))
        groups = []
        for (structure, *_), members in alike.items():
            leaves, ends, rows = zip(*members, strict=True)
            together = [jnp.stack(each) if eqx.is_array(each[0]) else each[0] for each in zip(*leaves, strict=True)]
            groups.append(Alike(jax.tree.unflatten(structure, together), np.array(ends), np.array(rows)))
        return groups


def stacked(bodies: Iterable[Any]) -> Any:
    """Things of one structure as one thing of arrays with one axis more."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *bodies)


def _in_order(groups, parts):
    """What the groups have, one entry per row, in the order of all rows."""
    order = np.argsort(np.concatenate([group.rows.ravel() for group in groups]))
    return jnp.concatenate([part.ravel() for part in parts])[order]


def _of_bodies(x, ground):
    """(bodies, 7), the ground's the last."""
    return jnp.concatenate([x.reshape(-1, SIZE), jnp.asarray(ground, x.dtype)[None]])


def _gap(joint, t, q):
    """Of one joint, from the coordinates of both bodies."""
    parent, child = (Pose(of_quaternion(x[3:]), x[:3]) for x in (q[:SIZE], q[SIZE:]))
    return joint.gap(t, *child.frame(joint.in_child()).inside(parent.frame(joint.in_parent())))
