"""Where the bodies are and how they move, from the coordinates of the joints that carry them."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._rotation import cross
from ..joints import AbstractJoint, Free
from ..joints.base import Relative
from .alike import Group, grouped, kinematic_part, in_order
from .named import Named
from .recursion import along, order, turned
from .tree import GROUND, Link, Tree


class Pose(NamedTuple):
    """The axes of a body's frame, as columns, and its origin [m], in space."""

    R: Float[Array, "3 3"]
    p: Float[Array, " 3"]

    def frame(self, frame: tuple[Array, Array]) -> "Pose":
        """A frame that is given in this one."""
        R, p = frame
        return Pose(self.R @ R, self.p + self.R @ p)


class Reversed(NamedTuple):
    """A joint as seen from the child's side."""

    joint: AbstractJoint

    def transform(self, t: Array, q: Float[Array, " k"]) -> tuple[Array, Array]:
        R, p = self.joint.transform(t, q)
        return R.T, -(R.T @ p)

    def relative(self, t: Array, q: Float[Array, " k"], v: Float[Array, " k"]) -> Relative:
        R, p, angular, linear, omega, velocity, alpha, acceleration = self.joint.relative(t, q, v)
        turning = cross(omega, p)
        return Relative(
            R.T,
            -(R.T @ p),
            -(R.T @ angular),
            R.T @ (cross(angular.T, p).T - linear),
            -(R.T @ omega),
            R.T @ (turning - velocity),
            -(R.T @ alpha),
            # d²/dt² of −Rᵀ p, with Ṙ = ω × R
            R.T @ (cross(alpha, p) - cross(omega, turning) + 2 * cross(omega, velocity) - acceleration),
        )

    def in_parent(self) -> tuple[Array, Array]:
        return self.joint.in_child()

    def in_child(self) -> tuple[Array, Array]:
        return self.joint.in_parent()


FLOATING = Free(GROUND, "it")


def joint_of(joints: Named, link: Link) -> AbstractJoint:
    """The joint that carries a body."""
    return FLOATING if link.joint is None else joints[link.joint]


class Placed(NamedTuple):
    """All bodies, in the order of the tree's links, and the ground as the last: the axes of their frames in space, as
    columns; their origins, ``d`` as seen from the origin of the first body of their tree, which is at ``base``.

    Places are differences along the tree, so that a mechanism far from the origin loses no digits.
    """

    R: Float[Array, "places 3 3"]
    d: Float[Array, "places 3"]
    base: Float[Array, "places 3"]

    @property
    def p(self) -> Float[Array, "places 3"]:
        return self.base + self.d


def placed(joints: Named, tree: Tree, t: Array, q: Float[Array, " nq"]) -> Placed:
    """Where the bodies are."""
    groups = _joint_groups(joints, tree)
    found = _map_joints(groups, tree, lambda joint, q: _frames(joint, *joint.transform(t, q)), q)
    return _placed(tree, *(in_order(groups, parts) for parts in zip(*found, strict=True)))[0]


def poses(joints: Named, tree: Tree, t: Array, q: Float[Array, " nq"]) -> dict[str, Pose]:
    """Of all bodies by their names; the ground's among them."""
    there = placed(joints, tree, t, q)
    names = (*(link.body for link in tree.links), GROUND)
    return {name: Pose(there.R[i], there.p[i]) for i, name in enumerate(names)}


class Moving(NamedTuple):
    """Bodies in motion: all along the axes of space, a row for each, the ground's the last.

    Of a tree of bodies all is seen from a point that is where the origin of its first body is and moves evenly, with
    the velocity ``drift`` of that body's joint. ``omega``, ``velocity`` are the angular velocity of each body and the
    velocity of what of it is at that point; ``alpha``, ``acceleration`` their rates of change in a motion in which all
    velocities are constant (Featherstone, Rigid Body Dynamics Algorithms, 2008, section 2.11).
    """

    placed: Placed
    drift: Float[Array, "places 3"]
    omega: Float[Array, "places 3"]
    velocity: Float[Array, "places 3"]
    alpha: Float[Array, "places 3"]
    acceleration: Float[Array, "places 3"]


class BodyMotion(NamedTuple):
    """Bodies in motion, and what velocities of joints do: ``angular`` and ``linear`` are for a unit of each the angular
    velocity and the velocity, where its tree is seen from, of the body that it moves."""

    bodies: Moving
    angular: Float[Array, "n 3"]
    linear: Float[Array, "n 3"]


def moving(
    joints: Named,
    tree: Tree,
    t: Array,
    q: Float[Array, " nq"],
    v: Float[Array, " n"],
    accelerations: Float[Array, " n"] | None = None,
) -> BodyMotion:
    """All bodies in motion. ``accelerations`` are v̇; without them, the accelerations of bodies are those at constant
    velocities of joints."""
    numbers, groups = order(tree), _joint_groups(joints, tree)

    def each(joint, q, v, accelerations):
        here = joint.relative(t, q, v)
        vectors = jnp.stack([here.omega, here.velocity, here.alpha, here.acceleration], axis=1)
        if accelerations is not None:
            vectors = vectors.at[:, 2:].add(
                jnp.stack([here.angular @ accelerations, here.linear @ accelerations], axis=1)
            )
        columns = jnp.stack([here.angular, here.linear], axis=1).transpose(2, 0, 1)
        return *_frames(joint, here.R, here.p), vectors, columns

    *parts, columns = zip(*_map_joints(groups, tree, each, q, v, accelerations), strict=True)
    *frames, vectors = (in_order(groups, part) for part in parts)
    places, axes, x = _placed(tree, *frames)
    omega, sliding, alpha, acceleration = jnp.moveaxis(_in_space(axes, vectors), 2, 0)

    # The first bodies of trees do not slide, as seen from a point that moves with them.
    drift = jnp.concatenate([sliding, jnp.zeros((1, 3))])[numbers.roots]
    sliding = jnp.where(numbers.on_ground[:, None], 0.0, sliding)
    velocity = sliding + cross(x, omega)
    motions = along(tree, jnp.concatenate([omega, velocity], axis=1))
    turning, going = _halves(motions[numbers.parents])
    acceleration = (
        acceleration + cross(sliding, omega) + cross(x, alpha) + cross(turning, velocity) + cross(going, omega)
    )
    changes = along(tree, jnp.concatenate([alpha + cross(turning, omega), acceleration], axis=1))

    where = np.argsort(np.concatenate([_velocities(tree, group).ravel() for group in groups]))
    columns = jnp.concatenate([part.reshape(-1, 3, 2) for part in columns])[where]
    angular, linear = jnp.moveaxis(_in_space(axes[numbers.owners], columns), 2, 0)
    linear = linear + cross(x[numbers.owners], angular)
    return BodyMotion(Moving(places, drift, *_halves(motions), *_halves(changes)), angular, linear)


def _halves(x):
    return x[:, :3], x[:, 3:]


def _frames(joint, R, p):
    """Of a joint at R, p: its axes in the body that carries it, and those of the body in them; in the first body where
    the joint is, in its axes how far it is displaced, and where it is in the second body."""
    (B, at), (C, to) = joint.in_parent(), joint.in_child()
    return B, R @ C.T, at, p, to


def _placed(tree, frame, R, at, p, to) -> tuple[Placed, Array, Array]:
    """Where all bodies are; the axes of their joints, and where these are, as seen from where the bodies are."""
    numbers = order(tree)
    axes, of_bodies = turned(tree, frame, R)
    hand = _in_space(of_bodies[:-1], to)
    arm = _in_space(of_bodies[numbers.parents], at) + _in_space(axes, p) - hand
    d = along(tree, jnp.where(numbers.on_ground[:, None], 0.0, arm))
    base = jnp.concatenate([arm, jnp.zeros((1, 3))])[numbers.roots]
    return Placed(of_bodies, d, base), axes, d[:-1] + hand


def _in_space(axes, x):
    """Vectors (…, 3) or columns (…, 3, k) of each frame along the axes of space."""
    return jnp.einsum("lij,lj...->li...", axes, x)


def _joint_groups(joints: Named, tree: Tree) -> tuple[Group, ...]:
    """The joints that carry the bodies, from the side of what they hang on, those of a kind together."""
    found = (kinematic_part(joint_of(joints, link)) for link in tree.links)
    return grouped(Reversed(joint) if link.reverse else joint for link, joint in zip(tree.links, found, strict=True))


def _coordinates(tree, group):
    """Which coordinates (k, size) are those of the group's joints."""
    return np.array([tree.links[i].coordinates for i in group.places], int)


def _velocities(tree, group):
    """Which velocities (k, size) are those of the group's joints."""
    return np.array([tree.links[i].velocities for i in group.places], int)


def _map_joints(groups, tree, function, q, *velocities):
    """For each group what ``function(joint, ...)`` gives, of its joints' own part of q and of the ``velocities``."""
    pick = lambda group, x: None if x is None else x[_velocities(tree, group)]
    return [
        eqx.filter_vmap(function)(group.things, q[_coordinates(tree, group)], *(pick(group, x) for x in velocities))
        for group in groups
    ]
